"""To which times of which days slots can move: what a calendar leaves open of a day.

Parts of days are wall clocks. A wall clock in a gap stands for the end of the gap, so it is open if that instant is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from pgsched.core.schedule import zones
from pgsched.core.schedule.calendar import Calendar
from pgsched.core.schedule.wall_times import WHOLE_DAY, WHOLE_DAY_US, Walls, intersect, join, on_day, subtract

Found = TypeVar("Found")
DAY, MICROSECOND = timedelta(days=1), timedelta(microseconds=1)
MOST_REMEMBERED = 1000
LOOK_AROUND = 31  # days by which a slot is shifted at most
# What becomes of a slot at an excluded time (jobs.on_excluded), as days by which it moves at a time.
STEPS = {"skip": 0, "next_business_day": 1, "previous": -1}


class OnTheirWay(NamedTuple):
    """A day and the parts of it whose slots move to another day (`arriving`), and past that one (`passing`)."""

    source: date
    arriving: Walls
    passing: Walls


@dataclass(frozen=True, slots=True)
class ShiftingDays:
    """What a calendar leaves open.

    `step`: days by which a slot moves at a time: 1, -1, or 0 where nothing is shifted any more.
    """

    calendar: Calendar
    step: int
    tz: ZoneInfo

    def excluded(self, day: date) -> Walls:
        """Return the excluded parts of a day."""
        return self._remembered(
            ("excluded", day), lambda: join((window.begins, window.ends) for window in self.calendar.windows(day))
        )

    def closed(self, day: date) -> Walls:
        """Return the parts of a day to which no slot can move."""
        return self._remembered(("closed", day), lambda: self._closed(day))

    def allowed(self, day: date) -> Walls:
        """Return the parts of a day that are not excluded."""
        return self._remembered(("allowed", day), lambda: subtract(WHOLE_DAY, self.excluded(day)))

    def reachable(self, day: date) -> Walls:
        """Return the parts of a day to which slots can move."""
        return self._remembered(("reachable", day), lambda: subtract(WHOLE_DAY, self.closed(day)))

    def _closed(self, day: date) -> Walls:
        found = self.excluded(day)
        for change in zones.gaps_of_year(self.tz, day.year):
            if change.before.date() <= day <= change.after.date():
                begins, ends = max(since(day, change.before), 0), min(since(day, change.after), WHOLE_DAY_US)
                closed = self.calendar.excluded(change.at) is not None
                found = join([*found, (begins, ends)]) if closed else subtract(found, [(begins, ends)])
        return found

    def stuck_excluded(self, day: date) -> Walls:
        """Return the excluded parts of a day whose slots stay there, and are skipped."""
        return self._remembered(("stuck", day, self.step), lambda: self._stuck(day, self.excluded(day)))

    def _stuck(self, day: date, walls: Walls) -> Walls:
        for n in range(1, LOOK_AROUND + 1):
            if not walls:
                break
            walls = intersect(walls, self.closed(day + n * self.step * DAY))
        return walls

    def on_their_way(self, day: date) -> Sequence[OnTheirWay]:
        """Return the parts of days whose slots move to a day or past it."""
        return self._remembered(("on their way", day, self.step), lambda: list(self._on_their_way(day)))

    def _on_their_way(self, day: date) -> Iterator[OnTheirWay]:
        closed, excluded = self.closed(day), self.excluded(day)
        walls: Walls = WHOLE_DAY
        beyond: list[Walls] = [WHOLE_DAY]  # what is closed on each of the next n days
        for n in range(1, LOOK_AROUND + 1):
            beyond.append(intersect(beyond[-1], self.closed(day + n * self.step * DAY)))
        yield OnTheirWay(day, (), subtract(excluded, intersect(excluded, beyond[LOOK_AROUND])))
        for n in range(1, LOOK_AROUND + 1):
            source = day - n * self.step * DAY
            walls = intersect(walls, self.closed(source))
            if not walls:
                return
            going_on = intersect(walls, closed)
            yield OnTheirWay(
                source, subtract(walls, closed), subtract(going_on, intersect(going_on, beyond[LOOK_AROUND - n]))
            )

    def _remembered(self, key: tuple[Any, ...], compute: Callable[[], Found]) -> Found:
        """Return what was computed of a day before, for any schedule of this calendar."""
        memory = self.calendar.memory
        found: Found | None = memory.get(key)
        if found is None:
            found = compute()
            if len(memory) >= MOST_REMEMBERED:
                memory.clear()
            memory[key] = found
        return found

    def reached(self, day: date, instant: datetime) -> int:
        """Return how much of a day has been reached by an instant, in microseconds since midnight."""
        return min(max(since(day, zones.last_wall_reached(self.tz, instant)) + 1, 0), WHOLE_DAY_US)

    def day_of(self, instant: datetime) -> date:
        """Return the date of an instant in the zone."""
        return zones.wall_clock_at(self.tz, instant).date()


@lru_cache(maxsize=4096)
def midnight_of_even_day(tz: ZoneInfo, day: date) -> datetime | None:
    """Return the instant at which a day of 24 hours begins; None for a day on which clocks change."""
    found = zones.instants_between(tz, on_day(day, 0), on_day(day, WHOLE_DAY_US))
    return found[0][0] if len(found) == 1 and found[0][1] - found[0][0] == DAY else None


def since(day: date, naive: datetime) -> int:
    """Return how far a wall clock lies behind the midnight of a day, in microseconds; negative before it."""
    return (naive - datetime.combine(day, time())) // MICROSECOND
