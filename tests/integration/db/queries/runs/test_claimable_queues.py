"""The look for queues with work finds every queue with open runs.

It skips the queues in which the claimer has just found work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import BY_KEY, aconnect
from pgsched.db.queries.runs.claims import WorkerOffer
from pgsched.db.queries.runs.queue_search import claimable_queues
from pgsched.db.statements import sql
from pgsched.worker.claiming import cursor, discovery, polling, queue_claims
from pgsched.worker.claiming.claimer import Claimer
from pgsched.worker.claiming.known_queues import mark
from tests.support.db.claiming import finds_no_queue
from tests.support.db.setting import KINDS, Open

# in the order of code points, not of a language
NAMES = ["B", "Z", "_", "a", "a b", 'a"b', "a,b", "b", "default", "NULL", "z", "{}", "Ä", "ä", "\U0001f600"]


MINE = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])


def found(dsn: str, known: Iterable[str] = (), *, look: bool = True) -> list[str]:
    async def scene() -> list[str]:
        async with await aconnect(dsn, purpose="claim", settings=BY_KEY) as conn:
            return (await claimable_queues(conn, MINE, look=look, known=known)).queues

    return asyncio.run(scene())


def test_every_queue_that_is_not_known_is_found_once(dsn: str, db: psycopg.Connection) -> None:
    for name in NAMES:
        db.execute("INSERT INTO pgsched.runs (queue, task) SELECT %s, 't' FROM generate_series(1, 3)", [name])
    assert sorted(found(dsn)) == sorted(NAMES)
    assert found(dsn, look=False) == []
    for known in [*combinations(NAMES, 1), *list(combinations(NAMES, 3))[::40], NAMES[1:], NAMES]:
        assert sorted(found(dsn, known)) == sorted(set(NAMES) - set(known)), known
    assert sorted(found(dsn, ["", "nobody's", "zz", *NAMES[2:]])) == NAMES[:2], "those of the past too"


@pytest.mark.parametrize("known", [False, True])
def test_the_dead_entries_of_a_known_queue_are_not_read(
    known: bool, dsn: str, db: psycopg.Connection, connect: Open
) -> None:
    pins = connect(autocommit=False)
    pins.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    pins.execute("SELECT FROM pgsched.runs")
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'm', 't' FROM generate_series(1, 5000)")
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now()")
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT unnest(ARRAY['a', 'm', 'z']), 't'")
    for name, value in BY_KEY.items():
        db.execute("SELECT set_config(%s, %s, false)", [name, value])
    values = {"asleep_s": None, "look": True, "known": "{m}" if known else "{}", "among": None, "after": "",
              "steps": 1000, "kinds": MINE.values["kinds"], "tasks": MINE.values["tasks"]}  # fmt: skip
    [(plan,)] = db.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql("claimable_queues"), values).fetchall()
    read = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    assert read < 50 if known else read > 200, read


@pytest.mark.parametrize("busy", [False, True])
def test_a_look_for_queues_skips_those_where_work_was_just_found(
    busy: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if busy:  # a few runs in the last minute are enough to be busy
        monkeypatch.setattr(polling, "BUSY_COUNT", 1)
        monkeypatch.setattr(polling, "WINDOW_S", 60.0)
    db.execute(
        "INSERT INTO pgsched.runs (queue, task) SELECT q, 't' FROM unnest(ARRAY['a', 'b']) q, generate_series(1, 9)"
    )
    monkeypatch.setattr(cursor, "SHARE", 0)  # a look for queues is always affordable
    asked: list[set[str]] = []
    taken: list[str] = []
    really = claimable_queues

    async def noted(*args: Any, known: set[str], **options: Any) -> Any:
        asked.append(known)
        return await really(*args, known=known, **options)

    monkeypatch.setattr(discovery, "claimable_queues", noted)

    async def scene() -> None:
        claimer = Claimer(
            dsn, WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"]), (), 1.0, lambda: 5,
            lambda claims, _: taken.extend(claim.queue for claim in claims),
        )  # fmt: skip
        await claimer.run_once()
        assert (asked, sorted(taken)) == ([set()], ["a"] * 5 + ["b"] * 5)
        claimer.hint(None)  # it is time to look for queues
        await claimer.run_once()
        assert asked[1] == {"a", "b"}
        assert sorted(taken) == ["a"] * 9 + ["b"] * 9
        claimer.hint(None)  # it is time to look for queues
        await claimer.run_once()
        if busy:
            assert asked[2] == {"a", "b"}, "nothing was found in them; they are tried again"
            db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('a', 't'), ('b', 't')")
            monkeypatch.setattr(discovery, "claimable_queues", finds_no_queue)
            await claimer.run_once()
            assert sorted(taken) == ["a"] * 10 + ["b"] * 10
        else:
            assert asked[2] == set(), "nothing was found in them: what has come since is to be seen"
        await claimer.close()

    asyncio.run(scene())


def test_queues_without_a_run_for_this_worker_are_not_found(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'others' || n, 'unknown' FROM generate_series(1, 50) n")
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'deep', 'unknown' FROM generate_series(1, 20)")
    db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('both', 'unknown'), ('both', 't'), ('mine', 't')")
    assert sorted(found(dsn)) == ["both", "deep", "mine"], "of one that is deep nobody reads all to know"


def test_a_look_for_queues_continues_where_the_last_one_ended(dsn: str, db: psycopg.Connection) -> None:
    names = [f"q{n:02}" for n in range(50)]
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT unnest(%s::text[]), 't'", [names])

    async def scene(known: list[str]) -> list[str]:
        seen, after = list[str](), ""
        async with await aconnect(dsn, purpose="claim", settings=BY_KEY) as conn:
            while True:
                one = await claimable_queues(conn, MINE, known=known, after=after, steps=7)
                assert len(one.queues) <= 7
                seen += one.queues
                if one.after is None:
                    return seen
                after = one.after

    assert sorted(asyncio.run(scene([]))) == names
    assert sorted(asyncio.run(scene(names[3:40:4]))) == sorted(set(names) - set(names[3:40:4]))


def test_a_worker_for_some_queues_finds_only_these(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT unnest(ARRAY['a', 'b', 'c']), 't'")

    async def scene() -> list[str]:
        async with await aconnect(dsn, purpose="claim", settings=BY_KEY) as conn:
            return (await claimable_queues(conn, MINE, among=("b", "c", "none"), known=["c"])).queues

    assert asyncio.run(scene()) == ["b"]


def test_many_queues_need_few_claim_statements_and_none_starves(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'tenant ' || n, 't' FROM generate_series(1, 250) n")
    db.execute(
        "INSERT INTO pgsched.runs (queue, task) SELECT 'others ' || n, 'unknown' FROM generate_series(1, 2000) n"
    )
    monkeypatch.setattr(cursor, "SHARE", 0)  # a look for queues is always affordable
    sent: list[int] = []
    taken: list[str] = []
    really = queue_claims.claim_many

    async def noted(conn: Any, wanted: WorkerOffer, queues: list[str], *more: Any) -> Any:
        sent.append(len(queues))
        return await really(conn, wanted, queues, *more)

    monkeypatch.setattr(queue_claims, "claim_many", noted)

    async def scene() -> None:
        claimer = Claimer(
            dsn, MINE, (), 1.0, lambda: 40, lambda claims, _: taken.extend(claim.queue for claim in claims)
        )  # fmt: skip
        for _ in range(30):
            await claimer.run_once()
            if len(taken) == 250:
                break
        assert len(set(taken)) == len(taken) == 250
        assert len(sent) < 30 and max(sent) <= 100
        await asyncio.sleep(2 * polling.WINDOW_S)
        for _ in range(3):
            await claimer.run_once()
        sent.clear()
        claimer.hint(None)  # it is time to look for queues
        for _ in range(5):
            await claimer.run_once()
        assert sent == [], "what others have is not tried again and again"
        await claimer.close()

    asyncio.run(scene())


def test_sql_and_python_give_the_same_marks_of_queues(db: psycopg.Connection) -> None:
    for name in NAMES:
        assert db.execute("SELECT pgsched.queue_mark(%s)", [name]).fetchone() == (mark(name),)
