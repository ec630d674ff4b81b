"""What a process says of the whole system: also that it cannot judge it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pgsched.telemetry import system_health
from pgsched.telemetry.health import Health
from pgsched.telemetry.system_health import STALE_S, SystemHealth

NO_CONNECTION: Any = None


def unable(_: Any) -> list[Any]:
    raise ZeroDivisionError("no luck")


@pytest.mark.parametrize("leads", [True, False])
def test_a_leader_that_has_never_judged_says_so(leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(100.0, 5.0)
    found = SystemHealth(lambda: leads, lambda: next(now))
    assert found.lines() == [], "it has just begun"
    monkeypatch.setattr(system_health, "judge_system", unable)
    found.look(NO_CONNECTION)
    assert found.lines() == (["unknown: not judged for 5 s"] if leads else [])
    assert [*found.samples()] == [], "and counts nothing"


def test_a_leader_that_cannot_judge_any_more_says_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_probe_shows_no_control_character_of_a_name() -> None:
    status, body = Health([], ["job a\u202eb\x1b[2J waits"], ["queue c\u200bd"]).answer("/readyz")
    assert (status, body.decode()) == (503, "job a\\u202eb\\x1b[2J waits\nsystem: queue c\\u200bd\n")
