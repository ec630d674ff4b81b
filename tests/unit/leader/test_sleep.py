"""The leader says until when it sleeps, and looks again before it does."""

from __future__ import annotations

from typing import Any

import pytest

from pgsched.leader.timing import periodic
from pgsched.leader.timing.periodic import AHEAD_S, Sleep


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.said = 100.0, list[float]()
        monkeypatch.setattr(periodic.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(
            periodic.leadership, "announce_sleep", lambda _, seconds: self.said.append(self.now + seconds)
        )
        monkeypatch.setattr(periodic, "is_shared", lambda _: False)

    def pause(self, it: Sleep, seconds: float) -> float:
        paused = it.pause_s(None, seconds)  # type: ignore[arg-type]
        self.now += paused
        return paused


def test_it_looks_again_soon_and_then_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    assert [clock.pause(it, 2.5) for _ in range(4)] == pytest.approx([0.02, 0.2, 2.0, 2.5])
    it.note_notification()
    assert [clock.pause(it, 2.5) for _ in range(2)] == pytest.approx([0.02, 0.2]), "others may overlap"
    assert clock.pause(it, 0.0) == 0.0
    assert clock.pause(it, 2.5) == pytest.approx(0.02), "it was at work"


def test_it_says_so_in_time_and_no_more_often_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    slept: Any = []
    for _ in range(40):
        at = clock.now
        slept.append((at, at + clock.pause(it, 2.5)))
    for _, until in slept:
        assert [said for said in clock.said if said >= until], "who makes something due before then tells it"
    assert len(clock.said) <= 40
    before = len(clock.said)
    for _ in range(20):
        clock.pause(it, 0.001)
    assert len(clock.said) == before, "while it is at work it says nothing"


def test_after_long_work_it_is_as_one_that_nobody_knew_of(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    for _ in range(4):
        clock.pause(it, 2.5)
    clock.now += 2 * AHEAD_S
    assert clock.pause(it, 2.5) == pytest.approx(0.02)


def test_behind_a_pooler_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    monkeypatch.setattr(periodic, "is_shared", lambda _: True)
    assert [clock.pause(it, 1.0), clock.said] == [1.0, []]


def test_notifications_in_vain_are_heeded_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    it, pauses = Sleep(), []
    for _ in range(20):
        it.note_notification()
        pauses.append(it.deaf_s(useful=False))
    assert pauses[:5] == pytest.approx([0, 0, 0, 0.005, 0.01])
    assert pauses[-1] == pytest.approx(0.05)
    it.note_notification()
    assert it.deaf_s(useful=True) == 0
