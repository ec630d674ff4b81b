"""How a claimer waits: who is busy is not to be notified, and who sleeps has said so before."""

from __future__ import annotations

import pytest

from pgsched.worker.rest import FIRST_LOOK_S, MANY, NAP_S, WINDOW_S, Rest


def test_after_work_it_naps_and_does_not_ask_to_be_woken() -> None:
    rest = Rest(1.0)
    rest.found(1, 10.0)
    assert not rest.must_ask(10.0)
    assert rest.wait_s(10.0) == NAP_S


def test_a_nap_that_brought_nothing_makes_it_ask_before_it_waits() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    assert rest.must_ask(10.0)
    assert rest.wait_s(10.0) == 0.0


def test_it_looks_again_soon_after_asking_and_ever_later_because_a_transaction_may_not_have_seen_it() -> None:
    rest = Rest(60.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 120.0)
    waits = [rest.wait_s(10.0) for _ in range(7)]
    assert waits == pytest.approx([FIRST_LOOK_S, 0.1, 0.5, 2.5, 12.5, 60.0, 60.0])


def test_it_never_waits_longer_than_somebody_would_wake_it() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.0)
    for _ in range(9):
        rest.wait_s(10.0)
    assert rest.wait_s(11.6) == pytest.approx(0.4)
    rest.found(1, 11.9)
    assert rest.wait_s(11.999) == NAP_S, "it had work: it looks by itself first"


def test_an_idle_worker_asks_again_before_the_time_is_over_and_looks_again_only_after_a_break() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.5)
    for _ in range(9):
        rest.wait_s(10.0)
    assert not rest.must_ask(11.0)
    assert rest.must_ask(12.0)
    rest.asked(12.0, 2.5)
    assert rest.wait_s(12.0) == 1.0
    rest.asked(20.0, 2.5)
    assert rest.wait_s(20.0) == FIRST_LOOK_S


def test_after_a_lost_connection_it_asks_again() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.5)
    rest.forget()
    assert rest.must_ask(10.1)
    assert rest.wait_s(10.1) == 0.0


def test_while_many_runs_come_in_an_empty_look_does_not_make_it_ask_to_be_woken() -> None:
    rest = Rest(1.0)
    for _ in range(3):
        rest.found(MANY // 2, 10.0)
    rest.found(0, 10.05)
    assert not rest.must_ask(10.05)
    assert rest.wait_s(10.05) == NAP_S
    rest.found(0, 10.0 + WINDOW_S)
    assert rest.must_ask(10.2), "it has been quiet for a while"


def test_few_runs_over_a_long_time_are_not_many() -> None:
    rest = Rest(1.0)
    for second in range(2 * MANY):
        rest.found(1, float(second))
    rest.found(0, 2.0 * MANY)
    assert rest.must_ask(2.0 * MANY)


def test_after_work_it_looks_again_soon_because_what_overlapped_was_not_announced() -> None:
    rest = Rest(60.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 120.0)
    for _ in range(9):
        rest.wait_s(10.0)
    rest.found(1, 11.0)
    assert [rest.wait_s(11.0), rest.wait_s(11.1)] == pytest.approx([NAP_S, 5 * NAP_S])
