"""The next slots of jobs that the leader keeps for readers: `next_slots_` statements in sql/ticks.sql."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pgsched.db.arrays import literal, plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import column, fetch_as
from pgsched.db.statements import sql


class Wanting(NamedTuple):
    """A job whose next slots are to be computed: `next_slots_wanting`.

    `after_at`: they lie after this
    `calendar`, `on_excluded`, `shifts`, `excluded`: as in core/planning/job_schedule.py
    `mark`: by which excluded times its slots are shifted; None: by none
    """

    id: int
    schedule: str
    timezone: str
    anchor_at: datetime
    after_at: datetime
    calendar: str | None = None
    on_excluded: str = "skip"
    shifts: dict[str, Any] | None = None
    excluded: list[Any] | None = None
    mark: str | None = None


class Kept(NamedTuple):
    """The next slots of a schedule.

    `offsets`: what its zone is ahead of UTC at each slot, in seconds.
    `refresh_at`: when further ones are to be computed; None: there are none.
    `nominals`: where the schedule has the slots that a calendar has shifted, None for the others; empty: for all.
    """

    slots: Sequence[datetime]
    offsets: Sequence[int]
    refresh_at: datetime | None
    nominals: Sequence[datetime | None] = ()


def list_wanting(conn: Connection[Any], job_ids: Iterable[int], rules: str, ahead_s: float) -> list[Wanting]:
    """Return those of these jobs whose next slots are not kept, or run out within `ahead_s` seconds.

    `rules`: the release of the time zone rules of this process; slots by other rules count as not kept.
    """
    values = {"job_ids": plain(job_ids), "rules": rules, "ahead_s": ahead_s}
    return fetch_as(conn, Wanting, "next_slots_wanting", values)


def page_of_jobs(conn: Connection[Any], after: int, n: int) -> list[int]:
    """Return the next `n` ids of jobs behind `after`."""
    return column(conn, "next_slots_page", {"after": after, "n": n})


def keep(conn: Connection[Any], jobs: Sequence[tuple[Wanting, Kept]], rules: str) -> None:
    """Keep the next slots of these jobs, in place of those that were kept."""
    wanting, kept = [job for job, _ in jobs], [slots for _, slots in jobs]
    values = {
        "job_ids": plain(job.id for job in wanting),
        "schedules": literal(job.schedule for job in wanting),
        "timezones": literal(job.timezone for job in wanting),
        "anchors": literal(job.anchor_at for job in wanting),
        "afters": literal(job.after_at for job in wanting),
        "slots": literal(literal(one.slots) for one in kept),
        "offsets": literal(plain(one.offsets) for one in kept),
        "refresh_ats": literal(one.refresh_at for one in kept),
        "nominals": literal(literal(one.nominals) for one in kept),
        "excludeds": literal(job.mark for job in wanting),
        "rules": rules,
    }
    conn.execute(sql("next_slots_keep"), values)
