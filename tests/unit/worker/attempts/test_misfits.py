"""Misfits, which are runs whose arguments do not fit: how a worker asks the database about their release."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgsched.app.release import TaskRelease
from pgsched.db.queries.runs.workers import Registration
from pgsched.errors import DatabaseUnreachable
from pgsched.worker.attempts import misfits
from pgsched.worker.attempts.misfits import Misfits

RELEASES = [TaskRelease(task, "1", {}, {}) for task in ("a", "b")]
MINE = Registration("w", "0", "shop", 8, None, ["task"], ["a", "b"], 30.0, releases=RELEASES)


class Server:
    """A server that counts the connections open at once, and the questions asked on them."""

    def __init__(self) -> None:
        self.open = self.most = self.asked = 0
        self.answer: str | None = "newest"
        self.is_asked = asyncio.Event()

    async def connect(self, _: str, purpose: str) -> Server:
        return self

    async def __aenter__(self) -> Server:
        self.open += 1
        self.most = max(self.most, self.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open -= 1

    async def standing(self, conn: Any, app: str, task: str, release: str) -> str | None:
        self.asked += 1
        self.is_asked.set()
        answer = self.answer
        await asyncio.sleep(0.01)
        return answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(misfits, "aconnect", made.connect)
    monkeypatch.setattr(misfits.tasks, "release_standing", made.standing)
    return made


def test_many_misfits_share_one_connection_and_one_answer_for_each_task(server: Server) -> None:
    async def scene() -> set[str]:
        mine = Misfits("", MINE)
        outcomes = await asyncio.gather(*(mine.outcome("ab"[n % 2], "no") for n in range(100)))
        return {f"{outcome.result} {outcome.retry}" for outcome in outcomes}

    assert asyncio.run(scene()) == {"failed False"}
    assert (server.most, server.asked) == (1, 2)


def test_a_misfit_that_comes_during_a_question_gets_a_newer_answer(server: Server) -> None:
    async def scene() -> list[str]:
        mine = Misfits("", MINE)
        first = asyncio.create_task(mine.outcome("a", "no"))
        await server.is_asked.wait()
        server.answer = "alone"  # a newer release was registered
        return [str((await outcome).result) for outcome in (first, asyncio.create_task(mine.outcome("a", "no")))]

    assert asyncio.run(scene()) == ["failed", "snoozed"]
    assert server.asked == 2


def test_a_misfit_is_snoozed_if_the_database_is_unreachable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(*_: object, **__: object) -> Any:
        raise DatabaseUnreachable("gone")

    monkeypatch.setattr(misfits, "aconnect", unreachable)
    assert asyncio.run(Misfits("", MINE).outcome("a", "no")).result == "snoozed"
