"""For any expression, time zone and instant, slots rise strictly, and none is missing or doubled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule.cron import Schedule, parse
from pgsched.errors import ScheduleError
from tests.support.fuzz.profile import examples
from tests.support.simulation.drawn import ZONES, crons, intervals, moments, seconds
from tests.support.timing import took


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw any accepted schedule; a drawn one that never fires is replaced by a daily one."""
    text = draw(st.one_of(crons, crons, seconds, intervals))
    try:
        return parse(text, draw(st.sampled_from(ZONES)))
    except ScheduleError as error:
        assert "never fires" in str(error)
        return parse("30 2 * * *", draw(st.sampled_from(ZONES)))


@settings(deadline=None)
@given(schedules(), moments)
def test_slots_rise_strictly(schedule: Schedule, start: datetime) -> None:
    slots = list(islice(schedule.between(start, datetime.max.replace(tzinfo=UTC)), 20))
    assert all(earlier < later for earlier, later in pairwise([start, *slots]))
    assert all(slot.tzinfo is UTC for slot in slots)


@settings(deadline=None)
@given(schedules(), moments)
def test_between_equals_repeated_calls_of_after(schedule: Schedule, start: datetime) -> None:
    expected, slot = [], schedule.after(start)
    while slot is not None and len(expected) < 20:
        expected.append(slot)
        slot = schedule.after(slot)
    if expected:
        assert list(schedule.between(start, expected[-1])) == expected


@examples(50, 100)
@given(schedules(), moments, st.floats(0, 1, exclude_max=True))
def test_every_instant_between_two_slots_has_the_same_next_slot(
    schedule: Schedule, start: datetime, share: float
) -> None:
    first = schedule.after(start)
    second = schedule.after(first) if first else None
    if first is not None and second is not None:
        last_moment = second - timedelta(microseconds=1)
        assert schedule.after(min(first + (second - first) * share, last_moment)) == second
        assert schedule.after(last_moment) == second


@settings(max_examples=60, deadline=None)
@given(schedules(), moments, st.timedeltas(timedelta(0), timedelta(days=3)))
def test_count_and_last_agree_with_walking(schedule: Schedule, start: datetime, length: timedelta) -> None:
    slots = list(islice(schedule.between(start, start + length), 3000))
    end = slots[-1] if len(slots) == 3000 else start + length
    assert schedule.count(start, end) == len(slots)
    assert schedule.last(start, end) == (slots[-1] if slots else None)


@settings(deadline=None)
@given(st.text(max_size=60), st.one_of(st.just("UTC"), st.text(max_size=30)))
def test_arbitrary_text_is_accepted_or_refused_with_a_schedule_error(expression: str, zone: str) -> None:
    try:
        parse(expression, zone)
    except ScheduleError as error:
        assert str(error).startswith(f"{error.field}: ") and "\n" not in str(error)


@settings(deadline=None)
@given(st.text("0123456789*/,-LW#@ ?", max_size=30))
def test_text_that_looks_like_cron_is_accepted_or_refused_with_a_schedule_error(expression: str) -> None:
    test_arbitrary_text_is_accepted_or_refused_with_a_schedule_error.hypothesis.inner_test(expression, "UTC")


def test_one_schedule_may_be_used_by_many_threads() -> None:
    schedule, wrong = parse("*/7 3 * * 1-5", "Europe/Berlin"), []
    starts = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(100)]
    expected = {start: schedule.after(start) for start in starts}

    def ask() -> None:
        wrong.extend(start for start in starts if schedule.after(start) != expected[start])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


@pytest.mark.parametrize("expression", ["0 0 29 2 */7", "* 2 * 3 SUNL", "0 0 1W,15W,31W */2 */7,MON#5", "* * 30 2 1#5"])
def test_sparse_schedules_are_parsed_and_asked_in_bounded_time(expression: str) -> None:
    def asked() -> None:
        try:
            parse(expression, "Antarctica/Troll").after(datetime(2088, 3, 1, tzinfo=UTC))
        except ScheduleError as error:
            assert "never fires" in str(error)

    assert took(asked) < 0.25  # takes about 0.01 s; the bound allows for a loaded machine


@examples(50, 150)
@given(st.one_of(crons, seconds, st.text("0123456789*/,-LW# ", max_size=30)), st.sampled_from(ZONES), moments)
def test_arbitrary_accepted_text_is_answered_in_a_tenth_of_a_second(
    expression: str, zone: str, start: datetime
) -> None:
    def ask(question: Callable[[Schedule], object]) -> None:
        with suppress(ScheduleError):
            question(parse(expression, zone))

    end = start + timedelta(days=199)
    assert took(lambda: ask(lambda schedule: schedule)) < 0.1
    assert took(lambda: ask(lambda schedule: schedule.after(start))) < 0.1
    assert took(lambda: ask(lambda schedule: schedule.last(start, end))) < 0.1
    assert took(lambda: ask(lambda schedule: schedule.count(start, end))) < 0.1
