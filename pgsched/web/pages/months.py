"""The calendar on a job's page: past and coming slots of each day of a month, and excluded dates.

Invariant: every date and time is in the job's time zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pgsched.core.model import Row
from pgsched.core.planning.job_schedule import job_calendar
from pgsched.core.schedule import zones
from pgsched.core.schedule.preview import preview_job
from pgsched.core.schedule.wall_times import WHOLE_DAY_US
from pgsched.services.jobs.slots import Month

FORESEEN = 100  # coming slots that are counted, at most
# by outcome of a slot: its CSS class and its label
KINDS = {
    "ran": ("ran", ""), "late": ("late", " late"), "skipped": ("skipped", " skip"), "cancelled": ("skipped", " cancel"),
    "missed": ("bad", " miss"), "dead": ("bad", " dead"), "open": ("open", " open"), "to come": ("next", " to come"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Day:
    """One day of the calendar.

    `counts`: the number of slots by outcome, as in KINDS.
    `more`: there may be more coming slots than `counts` says.
    `excluded`: why the job does not run on this day, or None.
    """

    date: date
    counts: dict[str, int]
    more: bool
    excluded: str | None


def days(job: Row, month: Month) -> list[Day]:
    """Return the days of a month, with outcomes of past slots and counts of coming ones."""
    fires = [] if job["paused"] else list(preview_job(job, FORESEEN).fires)
    zone = zones.zone(job["timezone"])
    coming = Counter(fire.at.astimezone(zone).date() for fire in fires if not fire.excluded)
    last = fires[-1].at.astimezone(zone).date() if len(fires) == FORESEEN else date.max
    found = []
    for day in month.days:
        counts = day.counts | ({"to come": coming[day.date]} if day.date <= last and coming[day.date] else {})
        found.append(Day(day.date, counts, day.date == last, exclusion_reason(job, day.date)))
    return found


def exclusion_reason(job: Row, day: date) -> str | None:
    """Return why the job does not run on this date, or None if the date is not excluded."""
    for first, until, reason in parse_excluded(job["excluded"] or ()):
        if first <= day <= until:
            return f"excluded: {reason}" if reason else "excluded"
    windows = job_calendar(job).windows(day)
    whole = sum(window.ends - window.begins for window in windows) == WHOLE_DAY_US
    return "; ".join(dict.fromkeys(window.reason for window in windows)) if whole else None


def parse_excluded(
    found: Iterable[tuple[date | str, date | str, str | None]],
) -> Iterable[tuple[date, date, str | None]]:
    """Yield the excluded dates as dates; a row may have them as texts."""
    for first, until, reason in found:
        yield to_date(first), to_date(until), reason


def to_date(value: date | str) -> date:
    """Return the date; a text is read as YYYY-MM-DD."""
    return date.fromisoformat(value) if isinstance(value, str) else value
