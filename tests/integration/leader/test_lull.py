"""Housekeeping duties (counting, alerts, pruning) make no slot late.

After a tick there is a lull, in which the workers have the machine to themselves. Housekeeping waits until the lull has
ended, or until it can wait no longer. The time that a slow duty took is taken off the pause that follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.leader import leadership, ticks
from pgsched.leader import admission
from pgsched.leader.duties import slots as slots_duties
from pgsched.leader.duties.housekeeping import AlertsDuty, FiguresDuty, PruningDuty
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.pruner import Pruner
from pgsched.leader.rollups import RunCounter
from tests.support.db.leading import add_coming_jobs, duty_of, lead
from tests.support.db.setting import Open, add_jobs, slots

KEPT = ["counting", "watching", "pruning"]


@pytest.fixture
def leader(db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch) -> LeaderLoop:
    """Return a leader whose lull does not end by itself."""
    monkeypatch.setattr(slots_duties, "LULL_S", 3600.0)
    return lead(connect())


@pytest.fixture
def done(leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the housekeeping duties that the leader has done, in order."""
    done: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        return lambda *_, **__: done.append(name) or 0.0

    monkeypatch.setattr(RunCounter, "is_due", lambda *_: True)
    monkeypatch.setattr(RunCounter, "count_batch", noting("counting"))
    monkeypatch.setattr(duty_of(leader, AlertsDuty).watch, "look", noting("watching"))
    monkeypatch.setattr(Pruner, "prune_batch", noting("pruning"))
    return done


def may_be_done(leader: LeaderLoop, by_s: float) -> None:
    """Allow all housekeeping duties since a second ago, and require them `by_s` seconds from now."""
    for kind in (FiguresDuty, AlertsDuty, PruningDuty):
        period = duty_of(leader, kind).period
        period.at, period.by = time.monotonic() - 1, time.monotonic() + by_s


def test_housekeeping_waits_until_the_lull_after_a_tick_has_ended(
    db: psycopg.Connection, leader: LeaderLoop, done: list[str]
) -> None:
    add_jobs(db, 1, 3)
    may_be_done(leader, 60.0)
    leader.run_once()
    assert (slots(db), done) == ((3, 3), [])
    leader.run_once()
    assert done == []
    leader.term.lull_until = time.monotonic() + 0.05
    assert leader.run_once() <= 0.05, "there is a round for it at the end"
    leader.term.lull_until = time.monotonic()
    leader.run_once()
    assert done == KEPT


def test_without_a_tick_there_is_no_lull(leader: LeaderLoop, done: list[str]) -> None:
    may_be_done(leader, 60.0)
    leader.run_once()
    assert done == KEPT


def test_housekeeping_that_can_wait_no_longer_is_done_in_the_lull(
    db: psycopg.Connection, leader: LeaderLoop, done: list[str]
) -> None:
    add_jobs(db, 1, 3)
    may_be_done(leader, 0.0)
    leader.run_once()
    assert (slots(db), done) == ((3, 3), KEPT)


def test_a_round_with_only_a_tick_makes_no_admission_query(
    db: psycopg.Connection, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one of the new slots waits for something, the next round finds it."""
    admitted, really = list[int](), ticks.admit
    monkeypatch.setattr(ticks, "admit", lambda conn, n: admitted.append(n) or really(conn, n))
    add_jobs(db, 1, 3)
    assert (leader.run_once(), admitted) == (0.0, [])


def test_a_slow_duty_does_not_make_the_next_slot_late(
    db: psycopg.Connection, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> float:
        time.sleep(1.0)
        return 60.0

    monkeypatch.setattr(duty_of(leader, AlertsDuty).watch, "look", slow)
    add_coming_jobs(db, 1, 2.4)
    may_be_done(leader, 60.0)
    assert leader.run_once() < 1.4, "and not until then from now"


def test_a_tick_causes_no_extra_round_for_housekeeping_that_is_not_due(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_duties, "LULL_S", 0.3)
    leader = lead(connect())
    leader.run_once()  # do the duties that are due when a term begins
    add_jobs(db, 1, 3)
    assert leader.run_once() == 0.0
    assert leader.run_once() > 0.3


def test_slow_admission_still_gets_its_full_pause(
    db: psycopg.Connection, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admission sets its pause when it has ended, so the time that it took is not taken off."""

    def slow(_: object, admission_state: admission.AdmissionState, *_given: object) -> int:
        time.sleep(0.2)
        admission_state.wait_s = 0.05
        return 0

    really = leadership.find_due_work
    monkeypatch.setattr(
        leadership, "find_due_work", lambda *given, **more: replace(really(*given, **more), limited=True)
    )
    monkeypatch.setattr(admission, "admit_limited_runs", slow)
    leader.run_once()
    assert 0.03 < leader.run_once() <= 0.05
