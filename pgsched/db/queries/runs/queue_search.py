"""Find the queues that have runs for a worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from pgsched.db.arrays import literal
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.queries.runs.claims import WorkerOffer
from pgsched.db.statements import sql

STEPS = 1000  # of one search for queues, for which a claim waits


class QueueSearch(NamedTuple):
    """What a search for queues has found.

    `queues`: those with work
    `notified_for_s`: for how many seconds producers are sure to notify workers; None: not asked
    `after`: the name behind which to go on; None: all queues were seen
    """

    queues: list[str]
    notified_for_s: float | None
    after: str | None


async def claimable_queues(
    conn: AsyncConnection[Any],
    wanted: WorkerOffer,
    asleep_s: float | None = None,
    *,
    look: bool = True,
    known: Iterable[str] = (),
    among: Sequence[str] = (),
    after: str = "",
    steps: int = STEPS,
) -> QueueSearch:
    """Find the queues that have runs for this worker, if `look`; those in `known` are left out.

    `among`: search these queues only; else all behind the name `after`, in at most `steps` steps
    `asleep_s`: for this many seconds producers have to notify, because workers may sleep; None: no change
    """
    values = {
        "asleep_s": asleep_s, "look": look, "known": literal(known), "among": literal(among) if among else None,
        "after": after, "steps": steps, "kinds": wanted.values["kinds"], "tasks": wanted.values["tasks"],
    }  # fmt: skip
    async with conn.cursor(row_factory=dict_row) as cursor:
        rows = await (await cursor.execute(sql("claimable_queues"), values)).fetchall()
    (asked,) = [row for row in rows if row["queue"] is None]
    return QueueSearch([row["queue"] for row in rows if row["queue"] is not None], asked["sure_s"], asked["after"])


async def newest_queues(conn: AsyncConnection[Any], wanted: WorkerOffer, n: int) -> list[str]:
    """Return the queues of those of the newest `n` runs that this worker may claim."""
    values = {"n": n, "kinds": wanted.values["kinds"], "tasks": wanted.values["tasks"]}
    async with conn.cursor(row_factory=dict_row) as cursor:
        return [row["queue"] for row in await (await cursor.execute(sql("newest_queues"), values)).fetchall()]
