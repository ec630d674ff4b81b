"""Where there is work: every queue with open runs is found, and what was claimed just now is gone round."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import BY_KEY, aconnect
from pgsched.db.queries.runs.claims import Wanted, claimable_queues
from pgsched.db.statements import sql
from pgsched.worker.claiming import claimer as claiming
from pgsched.worker.claiming import polling
from pgsched.worker.claiming.claimer import Claimer
from pgsched.worker.claiming.cursor import Budget
from tests.support.db.setting import KINDS, Open

# in the order of code points, in no language's
NAMES = ["B", "Z", "_", "a", "a b", 'a"b', "a,b", "b", "default", "NULL", "z", "{}", "Ä", "ä", "\U0001f600"]


def found(dsn: str, known: Iterable[str] = (), *, look: bool = True) -> list[str]:
    async def scene() -> list[str]:
        async with await aconnect(dsn, purpose="claim", settings=BY_KEY) as conn:
            return (await claimable_queues(conn, look=look, known=known))[0]

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
    values = {"asleep_s": None, "look": True, "known": "{m}" if known else "{}"}
    [(plan,)] = db.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql("claimable_queues"), values).fetchall()
    read = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    assert read < 50 if known else read > 200, read


@pytest.mark.parametrize("busy", [False, True])
def test_a_claimer_that_has_just_found_work_in_a_queue_goes_round_it(
    busy: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if busy:  # by a few runs in the last minute
        monkeypatch.setattr(polling, "MANY", 1)
        monkeypatch.setattr(polling, "WINDOW_S", 60.0)
    db.execute(
        "INSERT INTO pgsched.runs (queue, task) SELECT q, 't' FROM unnest(ARRAY['a', 'b']) q, generate_series(1, 9)"
    )
    asked: list[set[str]] = []
    taken: list[str] = []
    really = claimable_queues

    async def noted(*args: Any, known: set[str], **options: Any) -> Any:
        asked.append(known)
        return await really(*args, known=known, **options)

    monkeypatch.setattr(claiming, "claimable_queues", noted)

    async def scene() -> None:
        claimer = Claimer(
            dsn, Wanted(1, 30.0, KINDS["kinds"], KINDS["tasks"]), (), 1.0, lambda: 5,
            lambda claims, _: taken.extend(claim.queue for claim in claims),
        )  # fmt: skip
        await claimer._round()
        assert (asked, sorted(taken)) == ([set()], ["a"] * 5 + ["b"] * 5)
        claimer._discovered_at, claimer._looking = -math.inf, Budget()
        await claimer._round()
        assert asked[1] == {"a", "b"}
        assert sorted(taken) == ["a"] * 9 + ["b"] * 9
        claimer._discovered_at, claimer._looking = -math.inf, Budget()
        await claimer._round()
        if busy:
            lately = set(claimer._rotation._lately)
            assert asked[2] == lately == {"a", "b"}, "nothing was found in them; they are tried again"
        else:
            assert asked[2] == set(), "nothing was found in them: what has come since is to be seen"
        await claimer.close()

    asyncio.run(scene())
