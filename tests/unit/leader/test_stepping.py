"""The leader notices steps of the database's clock, and distinguishes them from time that passed."""

from __future__ import annotations

import pytest

from pgsched.db.queries.leader.leadership import DueWork
from pgsched.leader.duty import Round
from pgsched.leader.timing.clock_step import DatabaseClock

START = 1_700_000_000.0


@pytest.fixture
def clock() -> DatabaseClock:
    found = DatabaseClock()
    assert found.stepped_s(100.0, 100.1, START) == 0, "there is nothing to compare the first look with"
    return found


def is_trusted(clock: DatabaseClock, now: float) -> bool:
    """Check whether a round that begins at `now` trusts the clock."""
    return Round(
        now, DueWork(None, *[False] * 10, now_s=now), asked_for_figures=False, trusted_at=clock.trusted_at
    ).trusted


def test_time_that_passes_is_no_step(clock: DatabaseClock) -> None:
    assert clock.stepped_s(3700.0, 3700.01, START + 3600) == 0


def test_an_answer_that_took_long_is_no_step(clock: DatabaseClock) -> None:
    assert clock.stepped_s(101.0, 131.0, START + 1) == 0, "the statement waited after it had read the clock"
    assert clock.stepped_s(132.0, 162.0, START + 61.5) == 0, "and before"


@pytest.mark.parametrize("by", [7200.0, 2.0, -2.0, -3600.0])
def test_a_step_is_noticed_once(clock: DatabaseClock, by: float) -> None:
    assert clock.stepped_s(101.0, 101.1, START + 1 + by) == pytest.approx(by, abs=0.2)
    assert clock.stepped_s(102.0, 102.1, START + 2 + by) == 0


def test_a_correction_of_less_than_a_second_is_no_step(clock: DatabaseClock) -> None:
    assert clock.stepped_s(101.0, 101.0, START + 1.9) == 0


@pytest.mark.parametrize(("by", "trusted"), [(50.0, True), (-7200.0, True), (70.0, False), (7200.0, False)])
def test_a_clock_that_jumps_far_ahead_is_trusted_after_a_minute(clock: DatabaseClock, by: float, trusted: bool) -> None:
    clock.stepped_s(101.0, 101.1, START + 1 + by)
    assert is_trusted(clock, 101.2) is trusted
    assert is_trusted(clock, 162.0)


def test_a_clock_that_comes_back_is_trusted_at_once(clock: DatabaseClock) -> None:
    clock.stepped_s(101.0, 101.1, START + 7201)
    clock.stepped_s(102.0, 102.1, START + 2)
    assert is_trusted(clock, 102.2)
