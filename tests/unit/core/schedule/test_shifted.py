"""A calendar shifts slots to the next or the previous business day, and the sequence stays a function of its inputs."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule.base import Once
from pgsched.core.schedule.calendar import calendar
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.shift_progress import decided_at, overtaken
from pgsched.core.schedule.shifted import Shifted
from pgsched.core.schedule.shifting_days import LOOK_AROUND, STEPS, ShiftingDays
from pgsched.core.schedule.zones import zone
from pgsched.errors import ScheduleError
from tests.support.simulation.drawn import ZONES, crons, moments
from tests.support.simulation.shifting import Restated, Times

DAY, INSTANT = timedelta(days=1), timedelta(microseconds=1)
FOR_EVER = datetime(8000, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"
WEEKEND = Times(weekdays=(0, 6))
NEXT, PREVIOUS = STEPS["next_business_day"], STEPS["previous"]


def shifted(expression: str, tz: str, rows: list[Times], step: int) -> Shifted:
    days = ShiftingDays(calendar([row.row() for row in rows], tz), step, zone(tz))
    return Shifted(expression, tz, parse(expression, tz), days)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(slots: list[datetime], tz: str = BERLIN) -> list[str]:
    return [f"{slot.astimezone(zone(tz)):%a %m-%d %H:%M}" for slot in slots]


# ---- by hand


def test_slots_of_a_weekend_move_to_monday_and_are_one_slot_with_its_own() -> None:
    found = shifted("0 9 * * *", BERLIN, [WEEKEND], NEXT)
    slots = list(islice(found.between(utc("2026-12-03 12:00"), FOR_EVER), 4))
    assert local(slots) == ["Fri 12-04 09:00", "Mon 12-07 09:00", "Tue 12-08 09:00", "Wed 12-09 09:00"]
    assert [found.nominal_of(slot) for slot in slots] == [None] * 4


def test_a_shifted_slot_tells_its_nominal_instant() -> None:
    christmas = Times(date(2026, 12, 25), date(2026, 12, 26))
    found = shifted("0 9 25 * *", BERLIN, [WEEKEND, christmas], PREVIOUS)
    slots = list(islice(found.between(utc("2026-10-01"), FOR_EVER), 3))
    assert local(slots) == ["Fri 10-23 09:00", "Wed 11-25 09:00", "Thu 12-24 09:00"]
    assert [found.nominal_of(slot) for slot in slots] == [utc("2026-10-25 08:00"), None, utc("2026-12-25 08:00")]


def test_a_part_of_a_day_moves_to_the_same_time_of_a_day_where_that_is_allowed() -> None:
    evening = Times(weekdays=(5,), begins=time(18), ends=time(23, 59, 59))
    found = shifted("0 9,20 * * *", BERLIN, [WEEKEND, evening], NEXT)
    slots = list(islice(found.between(utc("2026-12-03 12:00"), FOR_EVER), 4))
    assert local(slots) == ["Thu 12-03 20:00", "Fri 12-04 09:00", "Mon 12-07 09:00", "Mon 12-07 20:00"]
    assert found.nominal_of(slots[3]) is None


def test_a_slot_without_an_allowed_time_near_it_stays() -> None:
    closed = Times(date(2026, 7, 1), date(2026, 8, 15))
    found = shifted("0 9 10 * *", BERLIN, [closed], NEXT)
    slots = list(islice(found.between(utc("2026-06-20"), FOR_EVER), 3))
    assert local(slots) == ["Fri 07-10 09:00", "Sun 08-16 09:00", "Thu 09-10 09:00"]
    assert found.target(slots[0]) is None and found.target(utc("2026-08-10 07:00")) == slots[1]
    assert LOOK_AROUND == 31


def test_a_time_that_a_gap_has_moved_keeps_its_time_of_day() -> None:
    """On the Sunday of the change 02:30 runs at 03:00; on Monday it is 02:30 again, and one slot with Monday's own."""
    found = shifted("30 2 * * *", BERLIN, [WEEKEND], NEXT)
    slots = list(islice(found.between(utc("2026-03-27 12:00"), FOR_EVER), 2))
    assert local(slots) == ["Mon 03-30 02:30", "Tue 03-31 02:30"]
    back = shifted("30 2 * * SUN", BERLIN, [WEEKEND], PREVIOUS)
    assert local(list(islice(back.between(utc("2026-03-26"), FOR_EVER), 1))) == ["Fri 03-27 02:30"]


def test_both_passes_of_a_repeated_hour_move_to_one_slot() -> None:
    found = shifted("*/30 2 * * SUN", BERLIN, [WEEKEND], NEXT)
    slots = list(found.between(utc("2026-10-24"), utc("2026-10-27")))
    assert local(slots) == ["Mon 10-26 02:00", "Mon 10-26 02:30"]
    assert found.nominal_of(slots[1]) == utc("2026-10-25 00:30")


def test_a_job_that_runs_once_is_shifted() -> None:
    days = ShiftingDays(calendar([WEEKEND.row()], BERLIN), PREVIOUS, zone(BERLIN))
    once = Shifted("", BERLIN, Once("", BERLIN, utc("2026-12-06 08:00")), days)
    assert once.after(utc("2026-12-01")) == utc("2026-12-04 08:00")
    assert once.nominal_of(utc("2026-12-04 08:00")) == utc("2026-12-06 08:00")
    assert once.after(utc("2026-12-04 08:00")) is None


def test_an_empty_calendar_and_a_full_one_leave_slots_where_they_are() -> None:
    start = utc("2026-05-01")
    expected = list(islice(parse("0 9 * * *", BERLIN).between(start, FOR_EVER), 50))
    for rows in ([], [Times(weekdays=(0, 1, 2, 3, 4, 5, 6))]):
        for step in STEPS.values():
            assert list(islice(shifted("0 9 * * *", BERLIN, rows, step).between(start, FOR_EVER), 50)) == expected


# ---- against the restatement

hours = st.integers(0, 23)
some_days = st.dates(date(2026, 3, 1), date(2026, 4, 30))
weekdays = st.sets(st.integers(0, 6), min_size=1, max_size=4).map(lambda days: tuple(sorted(days)))


def _dated(first: date, length: int) -> tuple[date, date]:
    return first, first + length * DAY


@st.composite
def calendars(draw: st.DrawFn, around: datetime) -> list[Times]:
    """Draw rows near an instant: dates, weekdays and parts of days, alone and together."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        first = around.date() + draw(st.integers(-6, 6)) * DAY
        dates = (first, first + draw(st.sampled_from([0, 1, 2, 9, 40])) * DAY) if draw(st.booleans()) else (None, None)
        days = draw(weekdays) if dates[0] is None or draw(st.booleans()) else None
        begins = draw(st.sampled_from([0, 1, 2, 3, 8, 12, 20]))
        times = (time(begins, draw(st.sampled_from([0, 30]))), time(begins + draw(st.integers(1, 3)), 15))
        if dates[0] is not None and days is None:
            times = draw(st.sampled_from([times, (None, None), (None, None)]))
        rows.append(Times(*dates, days, *draw(st.sampled_from([times, (None, None)]))))
    return rows


EXPRESSIONS = ["30 2 * * *", "*/30 2 * * *", "0 */6 * * *", "0 9 * * *", "0 12 1,15,L * *", "15 0,2 * * SUN",
               "0 3 * * MON#1", "0 0 * * *", "30 0-3 * * 6,0"]  # fmt: skip
expressions = st.one_of(st.sampled_from(EXPRESSIONS), crons)


# The restatement takes long for a schedule with many slots: the quick tests leave those out.
FEW, MANY = 350, 1500
quick, thorough = settings(max_examples=60, deadline=None), settings(max_examples=250, deadline=None)
slot_args = given(st.data(), expressions, st.sampled_from(ZONES), moments, st.sampled_from(sorted(STEPS.values())))
mark_args = given(st.data(), expressions, st.sampled_from(ZONES), moments, st.sampled_from([NEXT, PREVIOUS]))
change_args = given(st.data(), expressions, st.sampled_from(ZONES), moments)


def has_more(expression: str, tz: str, around: datetime, most: int) -> bool:
    """Check whether a schedule has more than `most` slots near an instant; True if it cannot be parsed."""
    try:
        return (parse(expression, tz).count(around - 40 * DAY, around + 40 * DAY) or 0) > most
    except ScheduleError:
        return True


def check_slots(data: st.DataObject, expression: str, tz: str, start: datetime, step: int, most: int) -> None:
    """Compare slots and their nominal instants with the restatement."""
    rows = data.draw(calendars(start))
    if has_more(expression, tz, start, most):
        return
    restated = Restated(expression, tz, rows, step)
    found, end = shifted(expression, tz, rows, step), start + 6 * DAY
    expected = restated.by_slot(start, end)
    slots = sorted(slot for slot in expected if start < slot <= end)
    assert list(found.between(start, end)) == slots
    assert found.last(start, end) == (slots[-1] if slots else None)
    assert found.count(start, end) in (len(slots), None)
    for slot in slots:
        assert found.nominal_of(slot) == (None if slot in expected[slot] else min(expected[slot]))


@quick
@slot_args
def test_slots_and_nominal_instants_are_those_of_the_restatement(
    data: st.DataObject, expression: str, tz: str, start: datetime, step: int
) -> None:
    check_slots(data, expression, tz, start, step, FEW)


@pytest.mark.long
@thorough
@slot_args
def test_many_slots_and_nominal_instants_are_those_of_the_restatement(
    data: st.DataObject, expression: str, tz: str, start: datetime, step: int
) -> None:
    check_slots(data, expression, tz, start, step, MANY)


def check_mark(data: st.DataObject, expression: str, tz: str, mark: datetime, step: int, most: int) -> None:
    """Compare which nominal slots are decided with those that the restatement has up to the mark."""
    rows = data.draw(calendars(mark))
    if has_more(expression, tz, mark, most):
        return
    restated, schedule = Restated(expression, tz, rows, step), shifted(expression, tz, rows, step)
    if data.draw(st.booleans()) and (slot := schedule.after(mark)) is not None and slot < mark + 30 * DAY:
        mark = slot
    decided = decided_at(schedule, mark)
    for slot, nominals in restated.by_slot(mark - 5 * DAY, mark + 5 * DAY).items():
        for nominal in nominals:
            assert (decided.skip(nominal) is not None) == (slot <= mark), (nominal, slot)
    again = Shifted(expression, tz, schedule.nominal, schedule.days, decided)
    assert again.after(mark) == schedule.after(mark)
    assert list(overtaken(again)) == []


@quick
@mark_args
def test_a_nominal_slot_is_decided_when_its_slot_lies_up_to_the_mark(
    data: st.DataObject, expression: str, tz: str, mark: datetime, step: int
) -> None:
    check_mark(data, expression, tz, mark, step, FEW)


@pytest.mark.long
@thorough
@mark_args
def test_of_many_nominal_slots_those_are_decided_whose_slots_lie_up_to_the_mark(
    data: st.DataObject, expression: str, tz: str, mark: datetime, step: int
) -> None:
    check_mark(data, expression, tz, mark, step, MANY)


def check_changes(data: st.DataObject, expression: str, tz: str, start: datetime, most: int) -> None:
    """Move the mark on slot by slot, and change calendars and policies between. Each nominal slot is decided once."""
    if has_more(expression, tz, start, most):
        return
    nominal = parse(expression, tz)
    mark, state, times = start, None, {}
    for _ in range(data.draw(st.integers(2, 5))):
        rows, step = data.draw(calendars(mark)), data.draw(st.sampled_from([NEXT, PREVIOUS, NEXT, PREVIOUS, 0]))
        restated = Restated(expression, tz, rows, step)
        days = ShiftingDays(calendar([row.row() for row in rows], tz), step, zone(tz))
        schedule = Shifted(expression, tz, nominal, days, state)
        if state is None:  # slots before the first mark do not exist
            state = decided_at(schedule, mark)
            schedule = Shifted(expression, tz, nominal, days, state)
            near = restated.by_slot(mark - 40 * DAY, mark + 40 * DAY)
            times = {one: "before" for slot, ones in near.items() if slot <= mark for one in ones}
        late = {one: slot for slot, one in overtaken(schedule)}
        near = restated.by_slot(mark - 40 * DAY, mark + 10 * DAY, times.__contains__)
        behind = {one: slot for slot, ones in near.items() if slot <= mark for one in ones}
        assert set(late) <= set(behind) and all(late[one] == behind[one] for one in late)
        times |= dict.fromkeys(behind, "overtaken")
        for _ in range(data.draw(st.integers(0, 6))):
            slot = schedule.after(mark)
            expected = min((slot for slot in near if slot > mark), default=None)
            if slot is None or slot > start + 9 * DAY:
                break
            assert slot == expected
            assert not any(one in times for one in near[slot])
            times |= dict.fromkeys(near.pop(slot), "slot")
            mark = slot
        state = decided_at(schedule, mark)


@settings(max_examples=25, deadline=None)
@change_args
def test_no_nominal_slot_is_decided_twice_or_lost_however_the_calendar_changes(
    data: st.DataObject, expression: str, tz: str, start: datetime
) -> None:
    check_changes(data, expression, tz, start, FEW)


@pytest.mark.long
@thorough
@change_args
def test_of_many_nominal_slots_none_is_decided_twice_or_lost_however_the_calendar_changes(
    data: st.DataObject, expression: str, tz: str, start: datetime
) -> None:
    check_changes(data, expression, tz, start, 400)


def test_many_windows_take_no_long_time() -> None:
    rows = [Times(begins=time(n // 4, n % 4 * 15), ends=time(n // 4, n % 4 * 15 + 7)) for n in range(96)]
    schedule = shifted("* * * * *", BERLIN, rows, PREVIOUS)
    assert len(list(islice(schedule.between(utc("2026-05-01"), FOR_EVER), 20))) == 20


@pytest.mark.parametrize("step", [NEXT, PREVIOUS])
def test_which_slots_move_past_a_day_is_computed_once(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is decided each second, and each time the leader asks for it."""
    rows = [Times(begins=time(n // 4, n % 4 * 15), ends=time(n // 4, n % 4 * 15 + 7)) for n in range(96)]
    schedule = shifted("* * * * * *", BERLIN, rows, step)
    first = decided_at(schedule, utc("2026-05-01 10:00:01"))
    asked: list[date] = []
    monkeypatch.setattr(ShiftingDays, "_on_their_way", lambda _, day: asked.append(day) or iter(()))
    assert decided_at(schedule, utc("2026-05-01 10:00:01")) == first
    decided_at(schedule, utc("2026-05-01 10:00:02"))
    assert asked == []
    decided_at(schedule, utc("2026-05-02 10:00:00"))
    assert asked == [date(2026, 5, 2)]


@pytest.mark.parametrize("step", [NEXT, PREVIOUS])
def test_a_rare_schedule_is_found(step: int) -> None:
    schedule = shifted("0 9 29 2 *", BERLIN, [WEEKEND, Times(begins=time(2), ends=time(3))], step)
    slots = list(islice(schedule.between(utc("2026-01-01"), FOR_EVER), 2))
    expected = {NEXT: ["Tue 02-29 09:00", "Mon 03-01 09:00"], PREVIOUS: ["Tue 02-29 09:00", "Fri 02-27 09:00"]}
    assert local(slots) == expected[step]
