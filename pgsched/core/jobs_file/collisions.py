"""Which starts of jobs fall on the same minute in the coming week, and how much jitter would part them.

Invariant: all jobs count alike, whether they are paused or not, and whatever overlap and limits say.

Jobs with the same schedule are computed once. The starts of a schedule with more than FEW slots a week are counted by
the hour: two hours with as many slots are taken to have them in the same minutes.
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
from pgsched.core.schedule.base import Schedule
from pgsched.core.schedule.calendar import calendar
from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError

HOURS, MINUTES = 7 * 24, 7 * 24 * 60
FEW = 200  # slots a week that are computed one by one
MOST_SLOTS = 150_000  # that are computed one by one, of all schedules together
MOST_FREQUENT = 200  # schedules with more than FEW slots
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
BUSIEST = 5
NAMED = 5  # jobs that are named for one minute
MANY = 5  # starts in one minute, from which on jitter is proposed
AIM = 5  # starts a minute that jitter is to leave, about
LONGEST_JITTER = timedelta(hours=1)
STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)  # minutes of jitter that are proposed


@dataclass(frozen=True, slots=True)
class BusyMinute:
    """A minute in which many jobs start.

    `jobs`: the names of some of them. `jitter`: what would part those that have none; None: nothing useful.
    """

    at: datetime
    starts: int
    jobs: tuple[str, ...]
    jitter: timedelta | None
    without_jitter: int


@dataclass(frozen=True, slots=True)
class Collisions:
    """The starts of the coming week.

    `begin`: the full hour with which it begins. `peaks`: the most starts in one minute, by hour.
    `starts`: how many starts there are. `left_out`: jobs that start so often that they were not counted.
    """

    begin: datetime
    peaks: tuple[int, ...]
    starts: int
    busiest: tuple[BusyMinute, ...]
    left_out: int


@dataclass(slots=True)
class _Group:
    """Jobs with the same schedule."""

    schedule: Schedule
    jobs: list[Mapping[str, Any]] = field(default_factory=list)
    jittered: list[Mapping[str, Any]] = field(default_factory=list)
    slots: int = 0
    minutes: Counter[int] = field(default_factory=Counter)  # of one job without jitter


def collide(jobs: Iterable[Mapping[str, Any]], now: datetime) -> Collisions:
    """Return the starts of the coming week.

    `jobs`: rows with id, name, schedule, timezone, anchor_at, jitter, excluded and ends_at.
    """
    begin = now.replace(minute=0, second=0, microsecond=0)
    groups = _groups(jobs, begin)
    counts, left_out = Counter[int](), 0
    counted: list[_Group] = []
    budget, frequent = MOST_SLOTS, MOST_FREQUENT
    for group in groups:
        if group.slots <= FEW:
            budget -= group.slots
        else:
            frequent -= 1
        if (budget if group.slots <= FEW else frequent) < 0:
            left_out += len(group.jobs) + len(group.jittered)
            continue
        slots = _count(group, begin)
        for minute, starts in group.minutes.items():
            counts[minute] += starts * len(group.jobs)
        for job in group.jittered:
            counts.update(_moved(job, slots, group, begin))
        counted.append(group)
    peaks = [0] * HOURS
    for minute, starts in counts.items():
        peaks[minute // 60] = max(peaks[minute // 60], starts)
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
    """Return the jobs by schedule, the seldom ones first."""
    found: dict[tuple[Any, ...], _Group] = {}
    for job in jobs:
        if job["schedule"] is None:
            continue
        try:
            schedule = parse(job["schedule"], job["timezone"], job["anchor_at"])
        except ScheduleError:
            continue
        dates = tuple(map(tuple, job["excluded"] or ()))
        group = found.setdefault((schedule, dates, job["ends_at"]), _Group(schedule))
        (group.jittered if job["jitter"] else group.jobs).append(job)
    for group in found.values():
        group.slots = group.schedule.count(begin, begin + HOURS * HOUR) or 0
    return sorted(found.values(), key=lambda group: group.slots)


def _count(group: _Group, begin: datetime) -> list[datetime]:
    """Count the minutes of a group; return the slots if they are few."""
    end = begin + HOURS * HOUR
    if group.slots <= FEW:
        some = next(iter([*group.jobs, *group.jittered]))
        dates = calendar(some["excluded"], some["timezone"])
        last = end if some["ends_at"] is None else min(end, some["ends_at"])
        slots = [one for one in group.schedule.between(begin - MINUTE / 60, last) if not dates.excluded(one)]
        group.minutes = Counter((one - begin) // MINUTE for one in slots if one < end)
        return slots
    patterns: dict[int, Counter[int]] = {}  # minutes within the hour, by the number of slots in it
    tick = timedelta(seconds=1)
    for hour in range(HOURS):
        since = begin + hour * HOUR - tick
        slots_of_hour = group.schedule.count(since, since + HOUR) or 0
        if slots_of_hour and slots_of_hour not in patterns:
            # of a schedule with seconds, a minute's worth of each slot in it is enough
            found = islice(group.schedule.between(since, since + HOUR), 240)
            exact = Counter((one - since - tick) // MINUTE for one in found)
            share = slots_of_hour // 60
            patterns[slots_of_hour] = exact if slots_of_hour <= 240 else Counter(dict.fromkeys(range(60), share))
        for minute, starts in patterns.get(slots_of_hour, Counter()).items():
            group.minutes[hour * 60 + minute] += starts
    return []


def _moved(job: Mapping[str, Any], slots: list[datetime], group: _Group, begin: datetime) -> Counter[int]:
    """Return the minutes in which a job with jitter starts."""
    if not slots:
        return group.minutes  # it starts so often that jitter changes little
    number = job["id"] or crc32(job["name"].encode())  # a new job has no id yet, so this is only an example
    starts = ((one + jitter.offset(number, one, job["jitter"]) - begin) // MINUTE for one in slots)
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

    It is at most a quarter of the time until the next slot of any of these jobs.
    """
    if count < MANY:
        return None
    gaps = []
    for group in groups:
        following = group.schedule.after(at + MINUTE - timedelta(microseconds=1))
        if following is not None:
            gaps.append(following - at)
    most = min([*(gap / 4 for gap in gaps), LONGEST_JITTER])
    wanted = max(count / AIM, 1)
    fitting = [step * MINUTE for step in STEPS if step * MINUTE <= most]
    if not fitting:
        return None
    return next((step for step in fitting if step >= wanted * MINUTE), fitting[-1])
