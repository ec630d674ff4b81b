"""Which starts of jobs fall on the same minute in the coming week, and how much jitter would part them.

Invariant: all jobs with a schedule count alike, whether they are paused or not, and whatever overlap and limits say. A
job counts once in a minute, however often it starts in it. Jobs that run once do not count.

Jobs with the same slots are computed once. The starts of a schedule with more than FEW slots a week are counted by the
hour: two hours with as many slots, of several expressions also with the same first one, are taken to have them in the
same minutes. Minutes that begin at an excluded time have none. A calendar shifts slots of at most MOST_SHIFTED
schedules; of others, excluded slots are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from zlib import crc32

from pgsched.core.planning import jitter
from pgsched.core.planning.job_schedule import is_shifted, job_calendar, job_schedule, nominal_schedule
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.union import Union
from pgsched.errors import ScheduleError

HOURS, MINUTES = 7 * 24, 7 * 24 * 60
# The busiest minute of each quarter of an hour is kept. A full hour of any time zone begins with one of these quarters.
QUARTER = 15
FEW = 200  # slots a week that are computed one by one
MOST_SLOTS = 150_000  # that are computed one by one, of all schedules together
MOST_FREQUENT = 200  # schedules with more than FEW slots, each of several expressions counted UNION_COST times
MOST_SHIFTED = 500  # schedules whose slots a calendar shifts
UNION_COST = 4  # how much longer such an expression takes
FEW_AN_HOUR, MOST_AN_HOUR = 60, 3600  # slots of one schedule
MOST_LISTED = 240  # slots an hour that are looked at one by one
HOUR, MINUTE, TICK = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
BUSIEST = 5
NAMED = 5  # jobs that are named for one minute
MANY = 5  # starts in one minute, from which on jitter is proposed
AIM = 5  # starts a minute that jitter is to leave, about
LONGEST_JITTER = timedelta(hours=1)
STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)  # minutes of jitter that are proposed


@dataclass(frozen=True, slots=True)
class BusyMinute:
    """A minute in which many jobs start.

    `starts`: how many jobs. `jobs`: the names of some of them.
    `jitter`: what would part those that have none; None: nothing useful.
    """

    at: datetime
    starts: int
    jobs: tuple[str, ...]
    jitter: timedelta | None
    without_jitter: int


@dataclass(frozen=True, slots=True)
class Collisions:
    """The starts of the coming week.

    `begin`: the full hour with which it begins. `peaks`: the most starts in one minute, of each QUARTER of an hour.
    `starts`: how many starts there are, one of each job in a minute.
    `left_out`: jobs that start so often that they were not counted.
    """

    begin: datetime
    peaks: tuple[int, ...]
    starts: int
    busiest: tuple[BusyMinute, ...]
    left_out: int

    @property
    def peaks_by_hour(self) -> tuple[int, ...]:
        """The most starts in one minute, by hour."""
        size = 60 // QUARTER
        return tuple(max(self.peaks[at : at + size]) for at in range(0, len(self.peaks), size))


@dataclass(slots=True)
class _Group:
    """Jobs with the same slots. `slots`: how many their schedule has, before a calendar shifts or excludes some."""

    schedule: Schedule  # without a calendar
    jobs: list[Mapping[str, Any]] = field(default_factory=list)
    jittered: list[Mapping[str, Any]] = field(default_factory=list)
    slots: int = 0
    minutes: Counter[int] = field(default_factory=Counter)  # of one job without jitter

    @property
    def any_job(self) -> Mapping[str, Any]:
        """One of the jobs."""
        return self.jobs[0] if self.jobs else self.jittered[0]


def collide(jobs: Iterable[Mapping[str, Any]], now: datetime) -> Collisions:
    """Return the starts of the coming week.

    `jobs`: rows as `core.planning.job_schedule` takes them, with id, name, jitter, starts_at and ends_at.
    """
    begin = now.replace(minute=0, second=0, microsecond=0)
    groups = _groups(jobs, begin)
    counts, left_out = Counter[int](), 0
    counted: list[_Group] = []
    budget, frequent, shifted = MOST_SLOTS, MOST_FREQUENT, MOST_SHIFTED
    for group in groups:
        if group.slots <= FEW:
            budget -= group.slots
        else:
            frequent -= len(group.schedule.members) * UNION_COST if isinstance(group.schedule, Union) else 1
        if (budget if group.slots <= FEW else frequent) < 0:
            left_out += len(group.jobs) + len(group.jittered)
            continue
        shifted -= (shifts := is_shifted(group.any_job))
        slots = _count(group, begin, shifts=shifts and shifted >= 0)
        for minute, starts in group.minutes.items():
            counts[minute] += starts * len(group.jobs)
        for job in group.jittered:
            counts.update(_moved(job, slots, group, begin))
        counted.append(group)
    peaks = [0] * (MINUTES // QUARTER)
    for minute, starts in counts.items():
        peaks[minute // QUARTER] = max(peaks[minute // QUARTER], starts)
    busiest = [(minute, starts) for minute, starts in counts.most_common(BUSIEST * 60) if starts > 1]
    busiest.sort(key=lambda one: (-one[1], one[0]))
    return Collisions(
        begin,
        tuple(peaks),
        sum(counts.values()),
        tuple(_busy(minute, starts, counted, begin) for minute, starts in busiest[:BUSIEST]),
        left_out,
    )


def _groups(jobs: Iterable[Mapping[str, Any]], begin: datetime) -> list[_Group]:
    """Return the jobs by what decides about their slots, the seldom ones first."""
    found: dict[tuple[Any, ...], _Group] = {}
    for job in jobs:
        if job["schedule"] is None:
            continue
        try:
            schedule = nominal_schedule(job)
        except ScheduleError:
            continue
        dates = tuple(map(tuple, job["excluded"] or ()))
        # the name of a calendar stands for its times
        own = (job.get("calendar"), job.get("on_excluded"), str(job.get("shifts")))
        group = found.setdefault((schedule, dates, job["starts_at"], job["ends_at"], *own), _Group(schedule))
        (group.jittered if job["jitter"] else group.jobs).append(job)
    for group in found.values():
        group.slots = _count_slots(group.schedule, begin, begin + HOURS * HOUR, FEW)
    return sorted(found.values(), key=lambda group: group.slots)


def _count_slots(schedule: Schedule, start: datetime, end: datetime, few: int) -> int:
    """Return how many slots lie in (start, end].

    Where several expressions have more than `few` together, slots that they have in common may count twice.
    """
    if isinstance(schedule, Union):
        counts = [member.count(start, end) or 0 for member in schedule.members]
        if sum(counts) > few:
            return sum(counts)
    return schedule.count(start, end) or 0


def _count(group: _Group, begin: datetime, *, shifts: bool) -> list[datetime]:
    """Count the minutes of a group; return the slots if they are few. `shifts`: a calendar shifts some."""
    some = group.any_job
    dates = job_calendar(some)
    end = begin + HOURS * HOUR
    first = begin if some["starts_at"] is None else max(begin, some["starts_at"])
    last = end if some["ends_at"] is None else min(end, some["ends_at"])
    if group.slots <= FEW:
        schedule = job_schedule(some) if shifts else group.schedule
        slots = [one for one in schedule.between(first - TICK, last) if not dates.excluded(one)]
        group.minutes = Counter({(one - begin) // MINUTE for one in slots if one < end})
        return slots
    patterns: dict[tuple[int, timedelta | None], set[int]] = {}  # minutes within the hour, by its number of slots
    for hour in range(HOURS):
        since = begin + hour * HOUR - TICK
        slots_of_hour = min(_count_slots(group.schedule, since, since + HOUR, FEW_AN_HOUR), MOST_AN_HOUR)
        if not slots_of_hour:
            continue
        earliest = group.schedule.after(since) if isinstance(group.schedule, Union) else None
        pattern = slots_of_hour, None if earliest is None else earliest - since
        if pattern not in patterns:
            patterns[pattern] = _minutes_of_hour(group.schedule, since, slots_of_hour)
        group.minutes.update(hour * 60 + minute for minute in patterns[pattern])
    excluded = [part for part in dates.parts(begin - TICK, end) if part.excluded is not None]
    outside = [(begin - MINUTE, first - TICK), (last, end)]
    for after, until in [*((part.after, part.until) for part in excluded), *outside]:
        for minute in range(max((after - begin) // MINUTE + 1, 0), (until - begin) // MINUTE + 1):
            group.minutes.pop(minute, None)
    return []


def _minutes_of_hour(schedule: Schedule, since: datetime, slots: int) -> set[int]:
    """Return the minutes of an hour, from 0, in which a schedule has slots. `since`: just before the hour."""
    if slots <= MOST_LISTED:
        return {(one - since - TICK) // MINUTE for one in islice(schedule.between(since, since + HOUR), slots)}
    begins = (since + minute * MINUTE for minute in range(60))
    following = [(begin, schedule.after(begin)) for begin in begins]
    return {at for at, (begin, slot) in enumerate(following) if slot is not None and slot <= begin + MINUTE}


def _moved(job: Mapping[str, Any], slots: list[datetime], group: _Group, begin: datetime) -> Counter[int]:
    """Return the minutes in which a job with jitter starts."""
    if not slots:
        return group.minutes  # it starts so often that jitter changes little
    number = job["id"] or crc32(job["name"].encode())  # a new job has no id yet, so this is only an example
    starts = {(one + jitter.offset(number, one, job["jitter"]) - begin) // MINUTE for one in slots}
    return Counter(minute for minute in starts if minute < MINUTES)


def _busy(minute: int, starts: int, groups: list[_Group], begin: datetime) -> BusyMinute:
    """Return a busy minute with names of jobs, and the jitter that would part them."""
    here = [group for group in groups if group.jobs and group.minutes[minute]]
    count = sum(len(group.jobs) for group in here)
    names = sorted(job["name"] for group in here for job in group.jobs[:NAMED])
    at = begin + minute * MINUTE
    return BusyMinute(at, starts, tuple(names[:NAMED]), _proposal(here, count, at), count)


def _proposal(groups: list[_Group], count: int, at: datetime) -> timedelta | None:
    """Return the jitter that leaves about AIM starts a minute; None where it would be of no use.

    It is at most a quarter of the time until the next slot of any of these jobs, without those that start so often that
    jitter would not part them.
    """
    gaps = []
    for group in groups:
        following = group.schedule.after(at + MINUTE - timedelta(microseconds=1))
        if following is not None and (following - at) / 4 < MINUTE:
            count -= len(group.jobs)
        elif following is not None:
            gaps.append(following - at)
    if count < MANY:
        return None
    most = min([*(gap / 4 for gap in gaps), LONGEST_JITTER])
    wanted = max(count / AIM, 1)
    fitting = [step * MINUTE for step in STEPS if step * MINUTE <= most]
    if not fitting:
        return None
    return next((step for step in fitting if step >= wanted * MINUTE), fitting[-1])
