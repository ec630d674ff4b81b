"""Claim, renew, settle: the three statements about ownership, each safe to send twice.

A claim's token is picked before the statement is sent, so that a lost answer can be asked for again; every later write
is fenced by (id, token, running).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter, lt
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from psycopg.rows import dict_row

from pgsched.config import CRASH_LIMIT
from pgsched.core import payload
from pgsched.core.model import DONE, SUCCEEDED, Claim, Claims, Key, Row, Settlement, keys_of
from pgsched.db import fleets
from pgsched.db.arrays import literal, plain
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.queries.runs.claim_rows import claimed, prepare
from pgsched.db.rows import fetch
from pgsched.db.statements import sql

LOCKED = "locked"
STEPS = 1000  # of one look for queues: a claim waits for it
RUN, OUTCOME = itemgetter(Settlement._fields.index("id")), itemgetter(Settlement._fields.index("outcome"))
TOKEN = itemgetter(1)  # of a run's id and its token
FROM_THE_START: Mapping[str, str] = {
    "priorities": plain(range(10)),
    "after_ats": plain(["-infinity"] * 10),
    "after_ids": plain([0] * 10),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker may run: every task of `kinds`, and the python `tasks` that its app registered. `named`: claims say
    the name that each run has outside of the database."""

    worker_id: int
    lease_s: float
    kinds: list[str]
    tasks: list[str]
    named: bool = False
    values: Mapping[str, object] = field(init=False)

    def __post_init__(self) -> None:
        kinds, tasks = literal(self.kinds), literal(self.tasks)
        values = {"worker_id": self.worker_id, "lease_s": self.lease_s, "kinds": kinds, "tasks": tasks}
        object.__setattr__(self, "values", values | {"named": self.named})


async def claim(
    conn: AsyncConnection[Any],
    wanted: Wanted,
    queue: str,
    n: int,
    token: UUID,
    span: Mapping[str, str] = FROM_THE_START,
    places: int = 0,
) -> Claims:
    """Take up to `n` queued runs of `queue` whose keys lie in the span that a claim cursor gives. `places`: how many
    places of the worker are free now."""
    values = {"queue": queue, "n": n, "places": places, "token": token, **wanted.values, **span}
    text = sql("claim_start") if span is FROM_THE_START else sql("claim")
    return await claimed(conn, text, values, token, queue)


async def plan_claims(
    conn: AsyncConnection[Any],
    wanted: Wanted,
    spans: Sequence[Mapping[str, str]] = (FROM_THE_START, {**FROM_THE_START}),
) -> None:
    """Have the server plan, on this connection, what claims, by claiming no run of no queue: the first claims would
    wait for that longer than they take."""
    for span in spans:
        await claim(conn, wanted, "", 0, uuid4(), span)


async def plan_settlements(conn: AsyncConnection[Any]) -> None:
    """The same of what settles."""
    await settle_succeeded(conn, ended([], []))


async def claim_many(
    conn: AsyncConnection[Any], wanted: Wanted, queues: Sequence[str], n: int, token: UUID, places: int = 0
) -> Claims:
    """Take up to `n` queued runs of these queues, of the first ones first. `places`: as claim."""
    values = {"queues": literal(queues), "queue": "", "n": n, "places": places, "token": token, **wanted.values}
    found = await claimed(conn, sql("claim_many"), values, token, "")
    found.sort(
        key=lambda claim: claim.max_attempts > 1
    )  # what begins at once has a place: it comes before other queues'
    return found


async def claim_again(conn: AsyncConnection[Any], queues: Sequence[str], token: UUID) -> Claims:
    """The claims that a claim of these queues with this token made although its answer was lost."""
    queue = queues[0] if len(queues) == 1 else ""
    values = {"queues": literal(queues), "queue": queue, "token": token, "named": False}
    return await claimed(conn, sql("claim_unconfirmed"), values, token, queue)


class Found(NamedTuple):
    """Queues with work; for how many seconds it is sure that who makes a run notifies (None: not asked); the name
    behind which a look is to go on (None: it saw all)."""

    queues: list[str]
    sure_s: float | None
    after: str | None


async def lease_left(conn: AsyncConnection[Any], claims: Sequence[Claim]) -> float | None:
    """For how many seconds claims of one token are still believed, the first of them to end."""
    values = {"ids": plain(map(RUN, claims)), "token": claims[0].token}
    async with conn.cursor(row_factory=dict_row) as cursor:
        (row,) = await (await cursor.execute(sql("claim_lease_left"), values)).fetchall()
    left_s: float | None = row["left_s"]
    return left_s


async def claimable_queues(
    conn: AsyncConnection[Any],
    wanted: Wanted,
    asleep_s: float | None = None,
    *,
    look: bool = True,
    known: Iterable[str] = (),
    among: Sequence[str] = (),
    after: str = "",
    steps: int = STEPS,
) -> Found:
    """The queues (`among`: of these; else of all behind `after`, in so many steps) that have runs for this worker, with
    `look`, but for those `known`. For `asleep_s` seconds, who makes a run is to notify (None: as it was)."""
    values = {
        "asleep_s": asleep_s, "look": look, "known": literal(known), "among": literal(among) if among else None,
        "after": after, "steps": steps, "kinds": wanted.values["kinds"], "tasks": wanted.values["tasks"],
    }  # fmt: skip
    async with conn.cursor(row_factory=dict_row) as cursor:
        rows = await (await cursor.execute(sql("claimable_queues"), values)).fetchall()
    (asked,) = [row for row in rows if row["queue"] is None]
    return Found([row["queue"] for row in rows if row["queue"] is not None], asked["sure_s"], asked["after"])


async def settle_succeeded(conn: AsyncConnection[Any], values: Mapping[str, str | None]) -> int:
    """Record attempts that succeeded; how many of them were ours."""
    cursor = await conn.execute(sql("settle_succeeded"), values, prepare=prepare(conn))
    return cursor.rowcount


async def settle(
    conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str, crash_limit: int = CRASH_LIMIT
) -> list[str]:
    """Record a batch of outcomes; returns for each of them the run's new state, 'repeated' or 'lost'. A run that has
    crashed `crash_limit` times is not tried again."""
    order = sorted(batch, key=RUN)
    if list(map(OUTCOME, order)).count(DONE) == len(order):  # nearly always, and seen at once
        succeeded = order
    else:
        succeeded = [s for s in order if s.outcome.result is SUCCEEDED]
    ids = list(map(RUN, succeeded))
    if not all(map(lt, ids, ids[1:])):  # of two claims of a run one at most is ours: which?
        succeeded = []
    verdicts: dict[Key, str] = {}
    ours = 0
    if succeeded:
        given = None if succeeded is order else results(succeeded)
        tokens, values = [s.token for s in succeeded], None if given is None else array(given)
        ours = await settle_succeeded(conn, ended(ids, tokens, values))
        if ours == len(batch):
            return ["succeeded"] * ours
        if ours == len(succeeded):
            verdicts.update(dict.fromkeys(keys_of(succeeded), "succeeded"))
    others = [s for s in order if s.outcome.result is not SUCCEEDED] if succeeded else order
    if others:
        told = {**keys(others), **evidence(others), "worker": worker, "crash_limit": crash_limit}
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql("settle"), told)
            verdicts.update((others[row["n"] - 1].key, row["state"]) for row in await cursor.fetchall())
    missing = [s for s in order if s.key not in verdicts]
    if missing:
        async with conn.cursor(row_factory=dict_row) as cursor:
            found = await (await cursor.execute(sql("settle_missing"), keys(missing))).fetchall()
        for row in found:
            s, verdict = missing[row["n"] - 1], row["verdict"]
            # a batch is sent again as a whole: if some were ours now, what is recorded is so by this statement (or a
            # handler's own transaction did it, a moment before)
            now = verdict == "repeated" and ours > 0 and s.outcome.result is SUCCEEDED
            verdicts[s.key] = "succeeded" if now else verdict
    return [verdicts[s.key] for s in batch]


async def settle_unlocked(
    conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str, crash_limit: int = CRASH_LIMIT
) -> list[str]:
    """As `settle`, but it waits for nobody: an outcome whose run somebody has locked is not recorded, and its verdict
    is LOCKED."""
    async with conn.transaction():
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql("settle_lock"), keys(batch))
            locked = {row["n"] - 1 for row in await cursor.fetchall() if row["locked"]}
        free = [s for n, s in enumerate(batch) if n not in locked]
        verdicts = iter(await settle(conn, free, worker, crash_limit) if free else [])
        return [LOCKED if n in locked else next(verdicts) for n in range(len(batch))]


def keys(batch: Sequence[Settlement]) -> dict[str, str]:
    """What every settlement is fenced by."""
    return fences(keys_of(batch))


def fences(keys: Iterable[Key]) -> dict[str, str]:
    """Keys of claims as the parallel arrays `ids` and `tokens`."""
    keys = list(keys)
    texts: dict[int, str] = {}  # many claims have one token
    tokens = [texts.get(token) or texts.setdefault(token, f"{token:032x}") for _, token in keys]
    return {"ids": plain([run_id for run_id, _ in keys]), "tokens": plain(tokens)}


def ended(ids: Sequence[int], tokens: Sequence[UUID], values: str | None = None) -> dict[str, str | None]:
    """What `settle_succeeded` is told of claims: their runs' ids, ascending and none twice, the token of each, and the
    results as a JSON array."""
    stretches = [(next(runs)[0], token.hex) for token, runs in groupby(zip(ids, tokens, strict=True), TOKEN)]
    firsts, each = zip(*stretches, strict=True) if stretches else ((), ())
    return {"ids": plain(ids), "firsts": plain(firsts), "tokens": plain(each), "results": values}


def array(texts: Iterable[str | None]) -> str:
    """A JSON array of values in JSON, None for null."""
    return "[" + ",".join([text or "null" for text in texts]) + "]"


def results(batch: Sequence[Settlement]) -> list[str | None] | None:
    """The results as JSON; None when no attempt has one."""
    values = [s.outcome.value for s in batch]
    if values.count(None) == len(values):
        return None
    return [None if value is None else payload.encode(value) for value in values]


def evidence(batch: Sequence[Settlement]) -> dict[str, Any]:
    """What is kept of attempts that did not succeed."""
    return {
        "outcomes": [str(s.outcome.result) for s in batch],
        "retry_ins": [s.retry_in_s for s in batch],
        "results": results(batch),
        "errors": [s.outcome.error for s in batch],
        "tracebacks": [s.outcome.traceback for s in batch],
        "log_tails": [s.outcome.log_tail for s in batch],
    }


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a worker says of itself with each heartbeat. `begun`: the attempts that are being made. `blocked`: for how
    many seconds its loop has not turned, and who is at it."""

    begun: frozenset[Key] = frozenset()
    abandoned: int = 0
    stopping: bool = False
    blocked: tuple[float, str] | None = None


WELL = Vitals()


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learned: the claims renewed, those it could not look at because somebody held the row, and
    which of either somebody wants cancelled. Any other claim was lost. Of the worker itself: does the database know it,
    and who has asked it to drain?"""

    kept: frozenset[Key]
    unsure: frozenset[Key]
    cancel: frozenset[Key]
    known: bool
    drain_by: str | None


def cancel_asked(conn: Connection[Any], held: Sequence[Key]) -> tuple[list[Key], frozenset[Key]]:
    """Those of the held claims that were taken away, and those that somebody wants cancelled."""
    found = fetch(conn, "cancel_asked", fences(held))
    return [key_of(row) for row in found if not row["cancel"]], frozenset(key_of(row) for row in found if row["cancel"])


def heartbeat(
    conn: Connection[Any],
    worker_id: int,
    lease_s: float,
    held: Sequence[Key],
    vitals: Vitals = WELL,
    *,
    name: str = "",
) -> Beat:
    """Renew the lease of every held claim and the worker's own row. `name`: the worker's."""
    values = {
        "worker_id": worker_id,
        "name": name,
        "fleet": fleets.expected(conn),
        "lease_s": lease_s,
        "running": len(held),
        "abandoned": vitals.abandoned,
        "stopping": vitals.stopping,
        "blocked_s": vitals.blocked and vitals.blocked[0],
        "blocked_by": vitals.blocked and vitals.blocked[1],
        "clock_s": time.time(),
        **fences(held),
        "begun": plain(["t" if key in vitals.begun else "f" for key in held]),
    }
    found = fetch(conn, "heartbeat", values)
    rows, mine = [row for row in found if row["id"] is not None], [row for row in found if row["id"] is None]
    return Beat(
        kept=frozenset(key_of(row) for row in rows if row["renewed"]),
        unsure=frozenset(key_of(row) for row in rows if not row["renewed"]),
        cancel=frozenset(key_of(row) for row in rows if row["cancel"]),
        known=bool(mine),
        drain_by=str(mine[0]["asked_by"]) if mine and mine[0]["cancel"] else None,
    )


def key_of(row: Row) -> Key:
    """The key of a claim, of a row that names it."""
    return row["id"], row["token"].int
