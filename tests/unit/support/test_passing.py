"""Tests that move the clock by hours do not run near a full hour."""

from __future__ import annotations

import pytest

from tests.support.db.passing import AFTER_S, BEFORE_S, off_the_hour

HOUR = 490_000 * 3600.0


@pytest.mark.parametrize(
    ("past_s", "wait_s"),
    [(0, AFTER_S), (60, AFTER_S - 60), (AFTER_S, 0), (1800, 0), (3600 - BEFORE_S, 0), (3599, 1 + AFTER_S)],
)
def test_a_test_waits_until_the_full_hour_is_past(past_s: float, wait_s: float) -> None:
    assert off_the_hour(HOUR + past_s) == wait_s
    assert off_the_hour(HOUR + past_s + wait_s) == 0
