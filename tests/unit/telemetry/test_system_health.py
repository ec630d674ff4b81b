"""A process reports the problems of the whole system, and reports when it cannot judge the system."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from pgsched.telemetry import database_metrics, system_health
from pgsched.telemetry.database_metrics import Figures
from pgsched.telemetry.liveness import Health
from pgsched.telemetry.system_health import STALE_S, SystemHealth

NO_CONNECTION: Any = None


def unable(_: Any) -> list[Any]:
    raise ZeroDivisionError("no luck")


@pytest.mark.parametrize("leads", [True, False])
def test_a_leader_that_has_never_judged_reports_unknown(leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(100.0, 5.0)
    found = SystemHealth(lambda: leads, lambda: next(now))
    assert found.lines() == [], "it has just begun"
    monkeypatch.setattr(system_health, "judge_system", unable)
    found.look(NO_CONNECTION)
    assert found.lines() == (["unknown: not judged for 5 s"] if leads else [])
    assert [*found.samples()] == [], "and counts nothing"


def test_a_leader_that_can_no_longer_judge_reports_unknown_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    found = SystemHealth(lambda: True, lambda: now)
    monkeypatch.setattr(system_health, "judge_system", lambda _: [])
    found.look(NO_CONNECTION)
    monkeypatch.setattr(system_health, "judge_system", unable)
    now = STALE_S
    found.look(NO_CONNECTION)
    assert found.lines() == []
    now = STALE_S + 1
    assert found.lines() == [f"unknown: not judged for {now:.0f} s"]


def test_a_leader_that_judges_on_schedule_never_reports_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judgement that takes 4 s is made every 80 s. It counts until the next one, but not for ever."""
    now, looks, reports = [100.0], [0], []

    def judge(_: Any) -> list[Any]:
        now[0] += 4.0
        looks[0] += 1
        if looks[0] > 1:
            figures.stop()
        return []

    def leads() -> bool:
        if looks[0]:
            now[0] += 10.0
            reports.append((found.lines(), len([*found.samples()])))
        return True

    found = SystemHealth(lambda: True, lambda: now[0])
    monkeypatch.setattr(system_health, "judge_system", judge)
    monkeypatch.setattr(database_metrics, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(database_metrics, "connect", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(database_metrics, "LOOK_S", 0.0)
    figures = Figures("dbname=none", leads, found, counted=False)
    figures.run()
    assert len(reports) >= 8 and {lines == [] and count > 0 for lines, count in reports} == {True}
    now[0] += 161.0
    assert found.lines() == ["unknown: not judged for 161 s"] and [*found.samples()] == []


def test_a_slow_judgement_that_fails_does_not_prolong_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    found = SystemHealth(lambda: True, lambda: now)
    monkeypatch.setattr(system_health, "judge_system", lambda _: [])
    found.look(NO_CONNECTION)
    found.pause(15.0)
    monkeypatch.setattr(system_health, "judge_system", unable)
    found.look(NO_CONNECTION)
    found.pause(200.0)
    now = STALE_S + 1
    assert found.lines() == [f"unknown: not judged for {now:.0f} s"]


def test_a_probe_shows_no_control_character_of_a_name() -> None:
    status, body = Health([], ["job a\u202eb\x1b[2J waits"], ["queue c\u200bd"]).answer("/readyz")
    assert (status, body.decode()) == (503, "job a\\u202eb\\x1b[2J waits\nsystem: queue c\\u200bd\n")
