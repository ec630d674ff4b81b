"""Idle workers that look for the same work look in turns: who is counted, and what follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from statistics import median, pstdev
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import aconnect
from pgsched.db.queries.runs import claims, workers
from pgsched.db.queries.runs.claims import Wanted
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import polling as resting
from pgsched.worker.claiming.claimer import Claimer
from tests.support.db.setting import KINDS
from tests.support.workers import becomes

ME = workers.Registration("me", "1", None, 2, ["a", "b"], ["python", "shell"], ["t", "u"], 30.0)


def register(db: psycopg.Connection, count: int = 1, **others: Any) -> int:
    """Register workers as `ME`, but for what is given; returns the last one's number."""
    values = {name: getattr(ME, name) for name in workers.Registration.__slots__} | others
    return [workers.start(db, workers.Registration(**values)) for _ in range(count)][-1]


def counted(dsn: str, worker_id: int, most: int = 100) -> int:
    async def scene() -> int:
        async with await aconnect(dsn, purpose="claim") as conn:
            return await claims.fellows(conn, worker_id, most)

    return asyncio.run(scene())


def test_those_with_the_same_work_are_counted(dsn: str, db: psycopg.Connection) -> None:
    me = register(db)
    assert counted(dsn, me) == 1
    register(db, name="two", concurrency=9, lease_s=60.0, app="x:y")
    assert counted(dsn, me) == 2
    register(db, 7)
    assert (counted(dsn, me), counted(dsn, me, most=5)) == (9, 5)
    assert counted(dsn, 10**9) == 0, "a failover has lost its row"


@pytest.mark.parametrize(
    "other", [{"queues": None}, {"queues": ["a"]}, {"kinds": ["python"]}, {"tasks": ["t"]}], ids=str
)
def test_who_does_other_work_is_not(dsn: str, db: psycopg.Connection, other: dict[str, Any]) -> None:
    me, another = register(db), register(db, **other)
    assert (counted(dsn, me), counted(dsn, another)) == (1, 1)
    register(db, **other)
    assert (counted(dsn, me), counted(dsn, another)) == (1, 2)


@pytest.mark.parametrize(
    "change",
    [
        "stopped_at = now()",
        "stopping_at = now()",
        "blocked_at = now()",
        "seen_at = now() - interval '16 s'",
        "running = 2",
        "pooler = 'transaction'",
    ],
)
def test_who_does_not_look_is_not(dsn: str, db: psycopg.Connection, change: str) -> None:
    me, another = register(db), register(db)
    assert counted(dsn, me) == 2
    db.execute(f"UPDATE pgsched.workers SET {change} WHERE id = %s".encode(), [another])
    assert counted(dsn, me) == 1


def test_behind_a_pooler_in_session_mode_one_looks_as_without(dsn: str, db: psycopg.Connection) -> None:
    me = register(db, 2)
    db.execute("UPDATE pgsched.workers SET pooler = 'session'")
    assert counted(dsn, me) == 2


class Looking:
    """A claimer of `me` that finds nothing, beside so many fellows; its looks, and when they were."""

    def __init__(self, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, fellows: int) -> None:
        me = register(db, fellows, queues=None, kinds=KINDS["kinds"], tasks=KINDS["tasks"])
        wanted = Wanted(me, 30.0, KINDS["kinds"], KINDS["tasks"])
        self.taken: list[Any] = []
        self.looks: list[float] = []
        self.claimer = Claimer(dsn, wanted, (), 0.1, lambda: 5, lambda claims, _: self.taken.extend(claims))
        really = claiming.claimable_queues

        async def noted(*args: Any, **options: Any) -> Any:
            if options["look"]:
                self.looks.append(time.monotonic())
            return await really(*args, **options)

        monkeypatch.setattr(claiming, "claimable_queues", noted)
        monkeypatch.setattr(resting, "ALONE", 3)
        self.claimer._rest.alone()

    def during(self, scene: Callable[[], Awaitable[None]]) -> None:
        """Let it claim meanwhile."""

        async def both() -> None:
            work = asyncio.create_task(self.claimer.run())
            await scene()
            self.claimer.stop()
            await work
            await self.claimer.close()

        asyncio.run(both())

    async def shares(self) -> None:
        await becomes(lambda: self.claimer._rest.period_s > 0.1, "it to share")
        self.looks.clear()

    def between(self) -> list[float]:
        """Seconds from each look to the next."""
        return [later - sooner for sooner, later in pairwise(self.looks)]


@pytest.mark.parametrize("fellows", [1, 100])
def test_one_of_many_looks_seldom(
    fellows: int, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Looking(dsn, db, monkeypatch, fellows)

    async def scene() -> None:
        if fellows > 1:
            await it.shares()
        await becomes(lambda: len(it.looks) > 12, "some looks")

    it.during(scene)
    pause_s = median(it.between())
    assert pause_s < 0.2 if fellows == 1 else pause_s > 0.24, "each tenth of a second, or each quarter to half"


def test_being_woken_in_vain_puts_off_nobodys_turn(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Looking(dsn, db, monkeypatch, 100)
    monkeypatch.setattr(claiming.random, "random", lambda: 0.0)

    async def scene() -> None:
        await it.shares()
        while len(it.looks) < 6:
            await asyncio.sleep(0.45)
            it.claimer.hint("nothing")

    it.during(scene)
    assert median(it.between()) < 0.7, "each half second, and not at every other time that it was woken"


def test_one_that_had_work_looks_as_often_as_told(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Looking(dsn, db, monkeypatch, 100)

    async def scene() -> None:
        await it.shares()
        monkeypatch.setattr(resting, "ALONE", 1000)
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")  # nobody is told
        await becomes(lambda: bool(it.taken), "the run to be found")
        assert it.claimer._rest.period_s == 0.1

    it.during(scene)


def test_those_that_begin_together_soon_look_at_different_times(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Looking(dsn, db, monkeypatch, 100)

    async def scene() -> None:
        await it.shares()
        await becomes(lambda: len(it.looks) > 12, "some looks")

    it.during(scene)
    assert pstdev(it.between()) > 0.03, f"of half a second at most; a tenth of jitter makes 0.015: {it.between()}"
