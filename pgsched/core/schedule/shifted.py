"""A schedule whose slots a calendar shifts away from excluded times.

Invariant: a shifted slot lies at no excluded time, and the sequence is a function of the schedule and the calendar.

The rules:

- A slot at an excluded time moves to the same time of day of the next day (`next_business_day`) or of the day before it
  (`previous`). It moves on, day by day, until that time is not excluded. So a day that is excluded whole is passed by.
- If there is no such time within LOOK_AROUND days, the slot stays where it is, and is skipped.
- The time of day is the wall clock that the schedule names: a slot at 02:30 that a gap has moved to 03:00 is a slot of
  02:30. On the day that it moves to, gaps and repeated hours mean what they mean for fixed times.
- Slots at one instant are one slot.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pgsched.core.schedule import zones
from pgsched.core.schedule.base import Schedule, to_utc
from pgsched.core.schedule.decided_times import DecidedTimes
from pgsched.core.schedule.shifting_days import LOOK_AROUND, ShiftingDays, midnight_of_even_day
from pgsched.core.schedule.wall_times import WHOLE_DAY_US, Walls, intersect, on_day, since_midnight

DAY, INSTANT = timedelta(days=1), timedelta(microseconds=1)
# Nominal slots of a stretch that is counted: some 50 ms.
MOST_COUNTED = 1000
# A slot and its nominal instant, which is the same where the slot was not shifted.
Shift = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Shifted(Schedule):
    """The slots of a nominal schedule, shifted by a calendar.

    `days`: to which times slots can move.
    `decided`: nominal slots that are left out, because they are decided; None: all slots.
    """

    nominal: Schedule
    days: ShiftingDays
    decided: DecidedTimes | None = None

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after an instant, in UTC; None when there is none."""
        found = self.shift_after(instant)
        return None if found is None else found[0]

    def count(self, start: datetime, end: datetime) -> int | None:
        """Return how many slots lie in (start, end]; None where that would take long."""
        around = LOOK_AROUND * DAY
        nominal = self.nominal.count(to_utc(start) - around, to_utc(end) + around)
        if nominal is None or nominal > MOST_COUNTED:
            return None
        return sum(1 for _ in self.between(start, end))

    def nominal_of(self, slot: datetime) -> datetime | None:
        """Return the first nominal instant of a slot; None where the slot was not shifted, or is none."""
        found = self.shift_after(slot - INSTANT)
        return None if found is None or found[0] != slot or found[1] == slot else found[1]

    def target(self, nominal: datetime) -> datetime | None:
        """Return where a nominal slot lies; None where it is skipped, as no time near it is allowed."""
        if not self.days.step or self.days.calendar.excluded(nominal) is None:
            return nominal
        day, wall = self.days.day_of(nominal), since_midnight(self.nominal.wall_clock(nominal))
        for _ in range(LOOK_AROUND):
            day += self.days.step * DAY
            found = zones.instant_at(self.days.tz, on_day(day, wall))
            if self.days.calendar.excluded(found) is None:
                return found
        return None

    def shift_after(self, instant: datetime) -> Shift | None:
        """Return the first slot strictly after an instant, with its nominal instant."""
        try:
            return self._first_after(to_utc(instant))
        except OverflowError:
            return None

    def _first_after(self, instant: datetime) -> Shift | None:
        day = self.days.day_of(instant)
        last = day + LOOK_AROUND * DAY  # of the days to which nominal slots of `day` and before may shift
        while True:
            found = list(self._of_day(day, instant))
            if found:
                slot = min(found)[0]
                return (slot, slot) if (slot, slot) in found else min(found)
            day += DAY
            following = self.nominal.after(zones.midnight(self.days.tz, day) - INSTANT)
            nearest = None if following is None else self.days.day_of(following)
            if self.days.step > 0 and nearest == day:
                last = day + LOOK_AROUND * DAY
            elif self.days.step > 0 and day <= last and self.days.closed(day - DAY):
                continue  # slots that are still on their way
            elif nearest is None:
                return None
            else:
                day = max(day, nearest - LOOK_AROUND * DAY if self.days.step < 0 else nearest)
                last = day + LOOK_AROUND * DAY

    def _of_day(self, day: date, instant: datetime) -> Iterator[Shift]:
        """Yield slots of a day after an instant, the first of all among them."""
        moved = set(self.moved_by_gaps(day)) if self.days.step else set()
        in_place = self.days.stuck_excluded(day) if self.days.step else self.days.excluded(day)
        staying = [
            nominal for walls in (self.days.allowed(day), in_place)
            for nominal in self._firsts(day, walls, moved, instant)
        ]  # fmt: skip
        yield from zip(staying, staying, strict=True)
        if not self.days.step:
            return
        yield from self._shifted_to(day, instant, moved, min(staying, default=None))
        for nominal in moved:
            slot = self.target(nominal) or nominal
            if slot > instant and self.days.day_of(slot) == day and not self.is_decided(nominal):
                yield slot, nominal

    def _shifted_to(
        self, day: date, instant: datetime, moved: Container[datetime], first: datetime | None
    ) -> Iterator[Shift]:
        """Yield slots that shift to a day, after an instant, the first of all among them.

        Where clocks do not change on that day, those after `first`, and after one that was found, are not looked for.
        """
        is_even, until = midnight_of_even_day(self.days.tz, day) is not None, WHOLE_DAY_US
        if is_even and first is not None:
            until = since_midnight(zones.wall_clock_at(self.days.tz, first)) + 1
        walls = intersect(self.days.reachable(day), [(self.days.reached(day, instant), until)])
        for n in range(1, LOOK_AROUND + 1):
            source = day - n * self.days.step * DAY
            walls = intersect(walls, self.days.closed(source))
            if not walls:
                return
            for nominal in self._firsts(source, walls, moved):
                wall = since_midnight(zones.wall_clock_at(self.days.tz, nominal))
                yield zones.instant_at(self.days.tz, on_day(day, wall)), nominal
                until = wall + 1 if is_even else until
            walls = intersect(walls, [(0, until)])

    def _firsts(
        self, day: date, walls: Walls, moved: Container[datetime], instant: datetime | None = None
    ) -> Iterator[datetime]:
        """Yield undecided nominal slots in parts of a day, after an instant if one is given: the first one of all.

        Where clocks change on that day, the first one of each part. Slots in `moved` are left out.
        """
        midnight = midnight_of_even_day(self.days.tz, day)
        asked = following = None  # the first nominal slot after `asked`, once it is known
        for begins, ends in self._instants(day, walls, midnight):
            since = begins - INSTANT if instant is None else max(begins - INSTANT, instant)
            if since >= ends:
                continue
            if asked is None or since < asked or (following is not None and following <= since):
                asked, following = since, self.nominal.after(since)
            while following is not None and following < ends:
                decided = None if self.decided is None else self.decided.skip(following)
                if decided is None and following not in moved:
                    yield following
                    if midnight is not None:
                        return
                    break
                asked = decided or following
                following = self.nominal.after(asked)

    def _instants(self, day: date, walls: Walls, midnight: datetime | None) -> Iterator[tuple[datetime, datetime]]:
        """Yield the instants of parts of a day. `midnight`: when the day begins; None: clocks change on it."""
        for begin, end in walls:
            if midnight is not None:
                yield midnight + begin * INSTANT, midnight + end * INSTANT
            else:
                yield from zones.instants_between(self.days.tz, on_day(day, begin), on_day(day, end))

    def moved_by_gaps(self, day: date) -> Iterator[datetime]:
        """Yield the excluded slots near a day that a gap has moved from the wall clock that names them."""
        for year in {(day - LOOK_AROUND * DAY).year, (day + LOOK_AROUND * DAY).year}:
            for change in zones.gaps_of_year(self.days.tz, year):
                if (
                    abs(change.after.date() - day) <= LOOK_AROUND * DAY
                    and self.nominal.after(change.at - INSTANT) == change.at
                    and self.nominal.wall_clock(change.at) < change.after
                    and self.days.calendar.excluded(change.at) is not None
                ):
                    yield change.at

    def is_decided(self, nominal: datetime) -> bool:
        """Check whether a nominal slot is left out because it is decided."""
        return self.decided is not None and self.decided.skip(nominal) is not None
