"""Outcomes of locked runs are retried, each time after a longer wait."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from pgsched.core.model import DONE, Settlement
from pgsched.worker.settling import settling_later
from pgsched.worker.settling.settling_later import RetriedOutcomes


def settlement(run: int) -> Settlement:
    return Settlement._make(
        [run, UUID(int=run), *(DONE if name == "outcome" else None for name in Settlement._fields[2:])]
    )


def test_an_outcome_is_retried_after_longer_and_longer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        really = loop.call_later
        monkeypatch.setattr(loop, "call_later", lambda s, *what: (waits.append(s), really(0, *what))[1])
        due = asyncio.Event()
        aside = RetriedOutcomes(due.set)
        one = settlement(1)
        for _ in range(7):
            aside.put([one], "locked")
            assert aside
            due.clear()
            await due.wait()
            assert aside.take(10) == [one]
            assert not aside
        aside.forget(one)
        assert aside.last_wait_s == {}
        aside.put([one, settlement(2)], "locked")
        assert waits[-1:] == [settling_later.FIRST_S]
        await due.wait()

    asyncio.run(scene())
    assert waits[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_no_more_outcomes_are_taken_than_are_requested() -> None:
    async def scene() -> list[Any]:
        due = asyncio.Event()
        aside = RetriedOutcomes(due.set)
        aside.put([settlement(n) for n in range(5)], "locked")
        await due.wait()
        return [len(aside.take(3)), len(aside.take(3))]

    assert asyncio.run(scene()) == [3, 2]


def test_the_reason_is_logged_once_for_each_run(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        aside = RetriedOutcomes(bool)
        for why in ("canceling statement due to statement timeout", "another session has locked the run"):
            aside.put([settlement(1)], why)
        aside.put([settlement(2)], "another session has locked the run")

    asyncio.run(scene())
    first, second = (record.getMessage() for record in caplog.records)
    assert "settling later" in first and "run=1" in first and "statement timeout" in first and "locked" not in first
    assert "run=2" in second and "another session has locked the run" in second
