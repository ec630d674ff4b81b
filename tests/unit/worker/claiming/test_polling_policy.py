"""How a claimer waits: a busy one polls and is not notified, an idle one announces its sleep first."""

from __future__ import annotations

import pytest

from pgsched.worker.claiming.polling import (
    BUSY_COUNT,
    BUSY_POLL_S,
    FIRST_LOOK_S,
    IDLE_BACKOFF,
    JITTER,
    SPREAD,
    WINDOW_S,
    PollingPolicy,
    UnnotifiedPolling,
)


def waited(rest: PollingPolicy, now: float = 10.0) -> float:
    """Return the next wait, and note that nothing came during it."""
    wait_s = rest.wait_s(now)
    rest.waited()
    return wait_s


def test_after_work_a_claimer_polls_and_does_not_ask_to_be_woken() -> None:
    rest = PollingPolicy(1.0)
    rest.found(1, 10.0)
    assert not rest.must_ask(10.0)
    assert rest.wait_s(10.0) == BUSY_POLL_S


def test_after_a_poll_without_a_run_a_claimer_asks_to_be_woken() -> None:
    rest = PollingPolicy(1.0)
    rest.found(0, 10.0)
    assert rest.must_ask(10.0)
    assert rest.wait_s(10.0) == 0.0


def test_after_asking_a_claimer_looks_again_soon_and_then_ever_later() -> None:
    """A transaction that had started before may not have seen the request."""
    rest = PollingPolicy(30.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 120.0)
    waits = [waited(rest) for _ in range(7)]
    assert waits == pytest.approx([FIRST_LOOK_S, 0.1, 0.5, 2.5, 12.5, 60.0, 60.0])


def test_no_wait_is_longer_than_the_time_with_notifications() -> None:
    rest = PollingPolicy(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.0)
    for _ in range(9):
        rest.waited()
    assert rest.wait_s(11.6) == pytest.approx(0.4)
    rest.found(1, 11.9)
    assert rest.wait_s(11.999) == BUSY_POLL_S, "it had work: it looks by itself first"


def test_an_idle_worker_asks_again_in_time_and_looks_soon_only_after_a_gap() -> None:
    rest = PollingPolicy(0.5)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.5)
    for _ in range(9):
        rest.waited()
    assert not rest.must_ask(11.0)
    assert rest.must_ask(12.0)
    rest.asked(12.0, 2.5)
    assert rest.wait_s(12.0) == 1.0
    rest.asked(20.0, 2.5)
    assert rest.wait_s(20.0) == FIRST_LOOK_S


def test_after_a_lost_connection_a_claimer_asks_again() -> None:
    rest = PollingPolicy(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.5)
    rest.forget()
    assert rest.must_ask(10.1)
    assert rest.wait_s(10.1) == 0.0


def test_one_empty_look_while_many_runs_come_in_causes_no_request() -> None:
    rest = PollingPolicy(1.0)
    for _ in range(3):
        rest.found(BUSY_COUNT // 2, 10.0)
    rest.found(0, 10.05)
    assert not rest.must_ask(10.05)
    assert rest.wait_s(10.05) == BUSY_POLL_S
    rest.found(0, 10.0 + WINDOW_S)
    assert rest.must_ask(10.2), "it has been quiet for a while"


def test_few_runs_over_a_long_time_are_not_many() -> None:
    rest = PollingPolicy(1.0)
    for second in range(2 * BUSY_COUNT):
        rest.found(1, float(second))
    rest.found(0, 2.0 * BUSY_COUNT)
    assert rest.must_ask(2.0 * BUSY_COUNT)


def test_after_work_a_claimer_looks_again_soon() -> None:
    """Runs of transactions that overlapped with the work may not have been notified."""
    rest = PollingPolicy(30.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 120.0)
    for _ in range(9):
        rest.waited()
    rest.found(1, 11.0)
    assert [waited(rest, 11.0), waited(rest, 11.1)] == pytest.approx([BUSY_POLL_S, 5 * BUSY_POLL_S])


@pytest.mark.parametrize(
    ("kind", "at_most_s"),
    [
        pytest.param(PollingPolicy, 1.4, id="says again that it sleeps"),
        pytest.param(UnnotifiedPolling, 60.0, id="polls"),
    ],
)
def test_a_claimer_does_not_wake_before_it_can_afford_a_look(kind: type[PollingPolicy], at_most_s: float) -> None:
    rest = kind(60.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 3.0)
    assert rest.wait_s(10.0, 11.5) == pytest.approx(1.5)
    rest.waited()
    assert rest.wait_s(11.5, 11.0) == pytest.approx(0.1)
    assert rest.wait_s(11.6, 80.0) == pytest.approx(at_most_s)
    rest.found(1, 12.0)
    assert rest.wait_s(12.0, 15.0) == BUSY_POLL_S, "after work it tries again at once"


def test_an_idle_worker_that_is_notified_looks_once_in_one_to_two_poll_periods() -> None:
    assert (IDLE_BACKOFF, SPREAD) == (2.0, 0.5), "what docs/concepts/performance.md says"
    rest = PollingPolicy(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 60.0)
    for _ in range(9):
        rest.waited()
    assert rest.wait_s(10.0) == rest.period_s == 2.0
    assert rest.wait_s(10.0) * (1 - rest.jitter(2.0)) == 1.0
    assert 0.6 * rest.asleep_s >= rest.period_s, "somebody wakes it for so long (pgsched.workers_asleep: three fifths)"
    assert rest.must_ask(68.1) and not rest.must_ask(67.9)


def test_a_worker_that_no_notification_reaches_looks_once_a_poll_period() -> None:
    rest = UnnotifiedPolling(1.0)
    rest.found(0, 10.0)
    for _ in range(9):
        rest.waited()
    assert rest.wait_s(10.0) == rest.period_s == 1.0
    assert rest.jitter(1.0) == JITTER


def test_looks_soon_after_work_are_not_spread() -> None:
    """Each look is for a transaction that was under way, and that notified no worker."""
    rest = PollingPolicy(1.0)
    rest.found(1, 10.0)
    rest.found(0, 11.0)
    rest.asked(11.0, 60.0)
    assert [rest.jitter(waited(rest, 11.0)) for _ in range(3)] == [JITTER] * 3
