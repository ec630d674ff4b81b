"""A job's calendar: what became of each day's slots, which are to come, and which dates are excluded.

Invariant: every date and time in it is of the job's time zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pgsched.core.model import Row
from pgsched.core.schedule import zones
from pgsched.core.schedule.preview import preview_job
from pgsched.services.jobs.slots import Month

FORESEEN = 100  # slots to come, at most, that are counted
# what became of slots: how it looks and what it is called
KINDS = {
    "ran": ("ran", ""), "late": ("late", " late"), "skipped": ("skipped", " skip"), "cancelled": ("skipped", " cancel"),
    "missed": ("bad", " miss"), "dead": ("bad", " dead"), "open": ("open", " open"), "to come": ("next", " to come"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Day:
    """A day of the calendar. `more`: there may be more slots to come than are counted; `excluded`: why it does not
    run."""

    date: date
    counts: dict[str, int]
    more: bool
    excluded: str | None


def days(job: Row, month: Month) -> list[Day]:
    """The days of a month."""
    fires = [] if job["paused"] else list(preview_job(job, FORESEEN).fires)
    zone = zones.zone(job["timezone"])
    coming = Counter(fire.at.astimezone(zone).date() for fire in fires if not fire.excluded)
    last = fires[-1].at.astimezone(zone).date() if len(fires) == FORESEEN else date.max
    found = []
    for day in month.days:
        counts = day.counts | ({"to come": coming[day.date]} if day.date <= last and coming[day.date] else {})
        found.append(Day(day.date, counts, day.date == last, excluded(job, day.date)))
    return found


def excluded(job: Row, day: date) -> str | None:
    """Why the job does not run on this date; None: nothing is said against it."""
    for first, until, reason in spans(job["excluded"] or ()):
        if first <= day <= until:
            return f"excluded: {reason}" if reason else "excluded"
    return None


def spans(found: Iterable[tuple[date | str, date | str, str | None]]) -> Iterable[tuple[date, date, str | None]]:
    """Excluded dates as dates, whichever way the row has them."""
    for first, until, reason in found:
        yield a_date(first), a_date(until), reason


def a_date(value: date | str) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else value
