"""The rule: a backfill goes on slot by slot whoever leads, and never has more runs open than it was allowed.

One batch is one fenced transaction: it holds the backfill's row, starts runs, and moves the cursor past them. How many
are open is counted from the runs themselves. The job's high-water mark and overlap policy have no part in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched import log
from pgsched.core.planning.backfill import Choice, batch, count, up_to
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.backfills import decided, left_out
from pgsched.db.rows import Row, fetch
from pgsched.db.statements import sql
from pgsched.errors import PgschedError
from pgsched.leader.bisecting import isolated

logger = log.get("leader")
BACKFILLS = 20
SLOTS = 500
LONGEST_S = 1.0
SHORTEST_PAUSE_S = 0.1  # how late the end of a short run may be noticed
LONGEST_PAUSE_S = 1.0


@dataclass
class Turn:
    """Where a leader is among the open backfills. `after`: the id that it looked at last; `moved_at`: the monotonic
    instant at which one of them last went on."""

    after: int = 0
    moved_at: float = -math.inf

    def pause_s(self) -> float:
        """Until the next look: about as long as nothing has moved, so a long run costs no polling."""
        return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, time.monotonic() - self.moved_at))


def work(conn: Connection[Any], turn: Turn | None = None) -> bool:
    """Start what the open backfills may start, in the caller's transaction; True when more can be done at once."""
    turn = turn or Turn()
    until = time.monotonic() + LONGEST_S
    more = False
    for wanted in fetch(conn, "backfill_open", {"n": BACKFILLS, "after": turn.after}):
        if time.monotonic() > until:
            return True
        turn.after = wanted["id"]
        more |= alone(conn, wanted, turn)
    return more


def alone(conn: Connection[Any], wanted: Row, turn: Turn) -> bool:
    """One batch of one backfill; what it cannot do now (a run or the job is locked) must not stop the others."""

    def one() -> bool:
        with conn.transaction():
            more = step(conn, wanted)
        turn.moved_at = time.monotonic()
        return more

    return bool(
        isolated(
            one,
            lambda error: logger.debug("backfill waits", id=wanted["id"], error=error),
            lambda error: logger.error("backfill failed", id=wanted["id"], error=error),
        )
    )


def step(conn: Connection[Any], wanted: Row) -> bool:
    """One batch of one backfill; True when it looked at many slots and has room still."""
    if not wanted["job_exists"]:
        return ended(conn, wanted, f"job {wanted['job']} was deleted")
    try:
        schedule = parse(wanted["schedule"], wanted["timezone"], wanted["anchor_at"])
        if wanted["slots"] is None and not counted(conn, wanted, schedule):
            return ended(conn, wanted, "there is no slot in that range")
        slots = batch(schedule, wanted, SLOTS)
    except PgschedError as error:
        return ended(conn, wanted, str(error))
    if not slots:
        return False if wanted["active"] else ended(conn, wanted, None)
    room = wanted["max_active"] - wanted["active"]
    dates = left_out(conn, wanted["job_id"], wanted["timezone"])
    chosen = up_to(decided(conn, wanted["job_id"], wanted["mode"], slots, dates), room)
    started = start(conn, wanted, chosen)
    advance(conn, wanted, cursor_at=chosen[-1].slot, considered=len(chosen), started=started)
    return bool(started < room)


def counted(conn: Connection[Any], wanted: Row, schedule: Schedule) -> int:
    """Count the slots of a backfill that pgsched.backfill() asked for; InputError where there are too many."""
    found = count(schedule, wanted["from_at"], wanted["to_at"])
    if found:
        conn.execute(sql("backfill_count"), {"id": wanted["id"], "slots": found})
    return found


def start(conn: Connection[Any], wanted: Row, chosen: Sequence[Choice]) -> int:
    """Make the runs of these slots; returns how many there are."""
    values = {name: wanted[name] for name in ("id", "job_id", "priority")}
    new = [choice.slot for choice in chosen if choice.action == "run"]
    again = [choice.run_id for choice in chosen if choice.action == "again"]
    born = fetch(conn, "backfill_insert", values | {"slots": new}) if new else []
    revived = fetch(conn, "backfill_rerun", values | {"ids": again}) if again else []
    return len(born) + len(revived)


def ended(conn: Connection[Any], wanted: Row, error: str | None) -> bool:
    """Close a backfill: nothing is left to start, or nothing can be."""
    advance(conn, wanted, finished=True, error=error)
    logger.info("backfill ended", id=wanted["id"], job=wanted["job"], error=error)
    return False


def advance(
    conn: Connection[Any], wanted: Row, *, cursor_at: Any = None, considered: int = 0, started: int = 0,
    finished: bool = False, error: str | None = None,
) -> None:  # fmt: skip
    """Write down how far a backfill is."""
    conn.execute(
        sql("backfill_advance"),
        {"id": wanted["id"], "cursor_at": cursor_at, "considered": considered, "started": started,
         "finished": finished, "error": error},
    )  # fmt: skip
