"""What is done again and again waits for no round of its own, if there is one shortly before."""

from __future__ import annotations

from pgsched.leader.timing.periodic import Periodic


def test_it_is_done_in_a_round_shortly_before_and_at_the_latest_after_its_period() -> None:
    due = Periodic(0.0)
    assert due.is_due(0.0)
    due.set_due_within(100.0, 5.0, 2.0)
    assert not due.is_due(102.9)
    assert due.is_due(103.0)
    assert due.by == 105.0


def test_a_short_period_is_never_cut_by_more_than_half() -> None:
    due = Periodic(0.0)
    due.set_due_within(100.0, 0.5, 2.0)
    assert (due.at, due.by) == (100.25, 100.5)


def test_what_is_due_exactly_is_not_done_before() -> None:
    due = Periodic(0.0)
    due.set_due_within(100.0, 5.0, 2.0)
    due.set_due_at(130.0)
    assert not due.is_due(129.9)
    assert due.by == 130.0


def test_in_a_lull_it_waits_as_long_as_it_can() -> None:
    due = Periodic(0.0)
    due.set_due_within(100.0, 5.0, 2.0)
    assert not due.is_due(104.9, lull=True)
    assert due.is_due(105.0, lull=True)
