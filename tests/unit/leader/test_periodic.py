"""Recurring work is done in a round that takes place shortly before it is due, if there is one."""

from __future__ import annotations

from pgsched.leader.timing.periodic import Periodic


def test_work_is_due_shortly_before_its_period_ends_and_at_its_end() -> None:
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


def test_work_with_an_exact_time_is_not_done_earlier() -> None:
    due = Periodic(0.0)
    due.set_due_within(100.0, 5.0, 2.0)
    due.set_due_at(130.0)
    assert not due.is_due(129.9)
    assert due.by == 130.0


def test_in_a_lull_work_waits_until_its_period_ends() -> None:
    due = Periodic(0.0)
    due.set_due_within(100.0, 5.0, 2.0)
    assert not due.is_due(104.9, lull=True)
    assert due.is_due(105.0, lull=True)
