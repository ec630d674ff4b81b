"""The leader announces until when it sleeps, and looks again shortly before it sleeps."""

from __future__ import annotations

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


def test_the_leader_looks_again_after_two_short_naps_and_then_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    assert [clock.pause(it, 2.5) for _ in range(4)] == pytest.approx([0.02, 0.2, 2.0, 2.5])
    it.note_notification()
    assert [clock.pause(it, 2.5) for _ in range(2)] == pytest.approx([0.02, 0.2]), "others may overlap"
    assert clock.pause(it, 0.0) == 0.0
    assert clock.pause(it, 2.5) == pytest.approx(0.02), "it was at work"


def test_the_leader_announces_each_sleep_and_nothing_while_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    for count in range(40):
        clock.pause(it, 2.5)
        assert clock.said[-1] >= clock.now, "a transaction that makes something due before then notifies the leader"
        assert len(clock.said) <= 1 + count // 2, "one announcement serves for two sleeps"
    before = len(clock.said)
    for _ in range(20):
        clock.pause(it, 0.001)
    assert len(clock.said) == before, "while it is at work it says nothing"


def test_after_long_work_the_first_nap_is_short_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    for _ in range(4):
        clock.pause(it, 2.5)
    clock.now += 2 * AHEAD_S
    assert clock.pause(it, 2.5) == pytest.approx(0.02)


def test_behind_a_pooler_the_leader_announces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, it = Clock(monkeypatch), Sleep()
    monkeypatch.setattr(periodic, "is_shared", lambda _: True)
    assert [clock.pause(it, 1.0), clock.said] == [1.0, []]


def test_useless_notifications_are_ignored_for_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    it, pauses = Sleep(), []
    for _ in range(20):
        it.note_notification()
        pauses.append(it.deaf_s(useful=False))
    assert pauses[:5] == pytest.approx([0, 0, 0, 0.005, 0.01])
    assert pauses[-1] == pytest.approx(0.05)
    it.note_notification()
    assert it.deaf_s(useful=True) == 0
