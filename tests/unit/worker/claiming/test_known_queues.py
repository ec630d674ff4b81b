"""The queues that a claimer knows, and how much work a notification may cause it."""

from __future__ import annotations

import asyncio
import time

import pytest

from pgsched.worker.claiming import hearing, known_queues
from pgsched.worker.claiming.hearing import NotificationWake
from pgsched.worker.claiming.known_queues import KnownQueues, mark
from tests.support.executing import holds


def test_a_queue_is_known_when_the_database_showed_work_in_it() -> None:
    known = KnownQueues([])
    assert known.of(mark("default")) == "default"
    assert known.of(mark("mail")) is None
    assert known.of("mail") is None, "a notification names no queue"
    known.learn(["mail"])
    assert known.of(mark("mail")) == "mail"


def test_a_claimer_of_given_queues_knows_only_these() -> None:
    known = KnownQueues(["a", "b"])
    assert [known.of(mark(queue)) for queue in ("a", "b", "default")] == ["a", "b", None]


def test_known_queues_are_bounded_and_the_least_used_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_queues, "MOST_KNOWN", 3)
    known = KnownQueues(["given"])
    known.learn(["a", "b", "c"])
    known.learn(["a", "d"])
    assert [known.of(mark(queue)) for queue in ("a", "b", "c", "d", "given")] == ["a", None, "c", "d", "given"]
    known.learn(["given"])
    assert len(known) == 4


def test_cursors_are_bounded_and_the_least_used_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_queues, "MOST_CURSORS", 2)
    known = KnownQueues([])
    a, b = known.cursor("a"), known.cursor("b")
    a.scanned([], 1, 0.0, 1.0)  # slow, so the other cursors wait for its scans
    b.scanned([], 1, 0.0, 0.0)
    known.cursor("c")
    known.cursor("d")
    assert known.cursor("a") is not a
    assert known._rescans._took_s == {}, "what is gone is waited for no more"


def test_many_queues_are_claimed_from_in_groups() -> None:
    known = KnownQueues([])
    names = [f"q{n}" for n in range(250)]
    assert [len(group) for group in known.groups(names, singly=False)] == [100, 100, 50]
    assert [len(group) for group in known.groups(names[:3], singly=True)] == [1, 1, 1]
    assert list(known.groups(names[:2], singly=False)) == [["q0"], ["q1"]], "few are tried as one is"
    known.cursor("q1").scanned([], 1, time.monotonic() - 1, time.monotonic())
    known.cursor("q1").scanned([], 1, time.monotonic() - 1, time.monotonic())
    assert list(known.groups(names[:4], singly=False)) == [["q0"], ["q1"], ["q2", "q3"]], "one is slow"


def test_after_useless_looks_notifications_are_acted_on_less_often() -> None:
    woken = list[float]()

    async def scene() -> None:
        it = NotificationWake(lambda: woken.append(time.monotonic()))
        it.wake(it.next_at)
        assert len(woken) == 1, "at once"
        now = time.monotonic()
        pauses = []
        for _ in range(12):
            it.looked(found=False, took_s=0.001, now=now)
            pauses.append(round((it.next_at - now) * 1000))
        assert pauses == [*range(4, 44, 4), 40, 40]
        it.wake(it.next_at + 10)
        it.wake(it.next_at)
        it.wake(it.next_at + 10)
        await holds(lambda: len(woken) > 1, 5)
        assert len(woken) == 2, "once, at the soonest"
        it.looked(found=True, took_s=1.0, now=time.monotonic())
        it.wake(it.next_at)
        assert len(woken) == 3
        it.close()

    asyncio.run(scene())
    assert hearing.MOST_IN_VAIN == 10


def test_a_cancelled_wake_up_does_not_prevent_the_next_one() -> None:
    async def scene() -> None:
        woken = asyncio.Event()
        it = NotificationWake(woken.set)
        it.wake(time.monotonic() + 0.01)
        it.close()
        it.wake(time.monotonic() + 0.02)
        await asyncio.wait_for(woken.wait(), 10)
        it.close()

    asyncio.run(scene())
