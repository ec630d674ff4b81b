"""The rule: slots that an edit or a resume passed over end in one row that says why, with their range and count.

A trigger notes the stretch, in the transaction of the edit; only the leader can tell which slots lie in it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgsched import log
from pgsched.core.plan import SlotRow
from pgsched.core.schedule import parse
from pgsched.db import leading
from pgsched.db.connect import Connection
from pgsched.db.query import fetch
from pgsched.errors import PgschedError

logger = log.get("leader")
BATCH = 200


def record(conn: Connection[Any]) -> int:
    """Turn a batch of stretches into rows, in the caller's transaction; returns how many stretches there were."""
    stretches = fetch(conn, "passed_over_take", {"n": BATCH})
    leading.insert_slots(
        conn, [((stretch["job_id"],), row) for stretch in stretches if (row := row_of(stretch)) is not None]
    )
    return len(stretches)


def row_of(stretch: dict[str, Any]) -> SlotRow | None:
    """The row of a stretch, at the newest of its slots; None where no slot lies in it."""
    start, end = stretch["after_at"], stretch["until_at"]
    if stretch["schedule"] is None:  # a job that runs once
        return SlotRow(end, stretch["state"], end, reason=stretch["reason"])
    try:
        schedule = parse(stretch["schedule"], stretch["timezone"], stretch["anchor_at"])
        newest = schedule.last(start, end)
    except PgschedError as error:  # a schedule that cannot be read never had a slot
        logger.warning("passed over", job=stretch["job_id"], error=str(error))
        return None
    if newest is None:
        return None
    first, count = schedule.after(start), schedule.count(start, newest + timedelta(microseconds=1))
    return SlotRow(newest, stretch["state"], newest, reason=stretch["reason"], covers_from=first,
                   covers_until=newest, covers_count=count)  # fmt: skip
