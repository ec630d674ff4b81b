"""Back-off grows as the job says and stays within its maximum, and jitter never lengthens it.

The jitter of slots is tested here as well: an offset that is the same in every process.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.backoff import retry_delay
from pgsched.core.planning.jitter import offset
from pgsched.core.policies import BACKOFF

TEN = timedelta(seconds=10)
HOUR = timedelta(hours=1)
SLOT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def waits(backoff: str, attempts: int = 5) -> list[float]:
    return [retry_delay(n, backoff, TEN, HOUR, 0, lambda: 0.5).total_seconds() for n in range(1, attempts + 1)]


def test_exponential_doubles_from_the_base() -> None:
    assert waits("exponential") == [10, 20, 40, 80, 160]


def test_linear_adds_the_base_each_time() -> None:
    assert waits("linear") == [10, 20, 30, 40, 50]


def test_fixed_stays_at_the_base() -> None:
    assert waits("fixed") == [10, 10, 10, 10, 10]


@pytest.mark.parametrize("backoff", ["exponential", "linear"])
def test_the_millionth_attempt_waits_the_maximum(backoff: str) -> None:
    assert retry_delay(10**6, backoff, TEN, HOUR, 0, lambda: 0.0) == HOUR


def test_the_longest_intervals_do_not_overflow() -> None:
    assert retry_delay(10**6, "exponential", timedelta.max, HOUR, 0, lambda: 0.0) == HOUR


def test_a_base_above_the_maximum_is_capped() -> None:
    assert retry_delay(1, "fixed", 2 * HOUR, HOUR, 0, lambda: 0.0) == HOUR


def test_jitter_shortens_a_wait_by_at_most_its_share() -> None:
    assert retry_delay(1, "fixed", TEN, HOUR, 0.25, lambda: 0.0) == TEN
    assert retry_delay(1, "fixed", TEN, HOUR, 0.25, lambda: 1.0) == timedelta(seconds=7.5)


def test_an_unknown_backoff_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match='backoff "quadratic" is not one of exponential, linear, fixed'):
        retry_delay(1, "quadratic", TEN, HOUR, 0, lambda: 0.0)


@settings(deadline=None)
@given(
    st.integers(-5, 10**7),
    st.sampled_from(BACKOFF),
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9000)),
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9000)),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_negative_and_never_above_the_maximum(
    attempt: int, backoff: str, base: timedelta, maximum: timedelta, jitter: float, drawn: float
) -> None:
    full = retry_delay(attempt, backoff, base, maximum, 0, lambda: drawn)
    jittered = retry_delay(attempt, backoff, base, maximum, jitter, lambda: drawn)
    slack = timedelta(microseconds=1)
    assert timedelta(0) <= full <= maximum
    assert full * (1 - jitter) - slack <= jittered <= full + slack


def test_a_slot_gets_the_same_offset_in_every_process() -> None:
    # A literal value: another hash would move the runs of a fleet while it is being upgraded.
    assert offset(7, SLOT, HOUR) == timedelta(microseconds=2863208303)


def test_the_same_instant_in_another_zone_has_the_same_offset() -> None:
    assert offset(7, SLOT.astimezone(timezone(timedelta(hours=9))), HOUR) == offset(7, SLOT, HOUR)


def test_a_limit_of_zero_means_no_offset() -> None:
    assert offset(7, SLOT, timedelta(0)) == timedelta(0)


@settings(deadline=None)
@given(st.integers(1, 2**62), st.datetimes(timezones=st.just(UTC)), st.timedeltas(min_value=timedelta(microseconds=1)))
def test_an_offset_lies_below_its_limit(job: int, slot: datetime, limit: timedelta) -> None:
    assert timedelta(0) <= offset(job, slot, limit) < limit


def test_offsets_spread_evenly_over_the_limit() -> None:
    quarters = [0, 0, 0, 0]
    for job in range(4000):
        quarters[offset(job, SLOT, HOUR) * 4 // HOUR] += 1
    assert min(quarters) > 850


def test_jittered_waits_spread_over_their_share() -> None:
    source = random.Random(1)
    drawn = [retry_delay(1, "fixed", TEN, HOUR, 0.5, source.random) for _ in range(1000)]
    assert min(drawn) < timedelta(seconds=5.1) and max(drawn) > timedelta(seconds=9.9)
