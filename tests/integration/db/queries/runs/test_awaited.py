"""Runs that somebody waits for: whoever ends one of them notifies, once a transaction; other runs notify nobody."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Result
from pgsched.db.queries.leader import ticks
from pgsched.db.queries.runs.outcomes import await_runs, ended, read_outcome
from tests.support.db.setting import done, let_expire, reap, take
from tests.support.db.settling import settle

CHANNEL = "pgsched_ended"
Open = Callable[..., psycopg.Connection[Any]]


def enqueue(db: psycopg.Connection[Any], **options: Any) -> int:
    named = "".join(f", {name} => %s" for name in options)
    row = db.execute(f"SELECT pgsched.enqueue('t'{named})".encode(), [*options.values()]).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def heard(connect: Open) -> Callable[[], list[str]]:
    """Return a function that returns the payloads of the notifications that have come since the last call."""
    listener, sender = connect(), connect()
    listener.execute(f"LISTEN {CHANNEL}".encode())

    def read() -> list[str]:
        sender.execute("SELECT pg_notify(%s, 'the last one')", [CHANNEL])
        return [
            *takewhile(lambda payload: payload != "the last one", (n.payload for n in listener.notifies(timeout=10)))
        ]

    return read


def succeed(db: psycopg.Connection[Any]) -> None:
    settle(db.info.dsn, *(done(claim, Result.SUCCEEDED) for claim in take(db, 10)))


def cancel(db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.cancel(id) FROM pgsched.runs")


def die(db: psycopg.Connection[Any]) -> None:
    db.execute("UPDATE pgsched.runs SET max_attempts = 1")
    take(db)
    let_expire(db)
    reap(db)


def miss(db: psycopg.Connection[Any]) -> None:
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() - interval '1 s'")
    ticks.admit(db, 100)


ENDINGS = {"succeeded": succeed, "cancelled": cancel, "dead": die, "missed": miss}


@pytest.mark.parametrize("end", ENDINGS)
def test_each_end_of_an_awaited_run_notifies(
    db: psycopg.Connection[Any], heard: Callable[[], list[str]], end: str
) -> None:
    run = enqueue(db)
    assert await_runs(db, [run]) == 0
    assert ended(db, [run]) == {}
    ENDINGS[end](db)
    assert ended(db, [run]) == {run: end}
    assert heard() == [""]


@pytest.mark.parametrize("end", ENDINGS)
def test_no_end_of_another_run_notifies(db: psycopg.Connection[Any], heard: Callable[[], list[str]], end: str) -> None:
    enqueue(db)
    ENDINGS[end](db)
    assert heard() == []


def test_a_settlement_of_many_awaited_runs_notifies_once(
    db: psycopg.Connection[Any], heard: Callable[[], list[str]]
) -> None:
    made = [enqueue(db) for _ in range(5)]
    assert await_runs(db, made) == 0
    succeed(db)
    assert heard() == [""] and ended(db, made) == dict.fromkeys(made, "succeeded")


def test_marking_waits_for_no_lock(db: psycopg.Connection[Any], connect: Open) -> None:
    locked, free = enqueue(db), enqueue(db)
    db.execute("SET lock_timeout = '100ms'")
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [locked])
        assert await_runs(db, [locked, free]) == 1
    assert await_runs(db, [locked, free]) == 0
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE awaited").fetchone() == (2,)


def test_a_run_that_has_ended_or_is_marked_is_not_written_again(db: psycopg.Connection[Any]) -> None:
    gone, marked = enqueue(db), enqueue(db)
    db.execute("SELECT pgsched.cancel(%s)", [gone])
    assert await_runs(db, [marked]) == 0
    before = db.execute("SELECT xmin::text FROM pgsched.runs ORDER BY id").fetchall()
    assert await_runs(db, [gone, marked, 4711]) == 0
    assert db.execute("SELECT xmin::text FROM pgsched.runs ORDER BY id").fetchall() == before
    assert ended(db, [gone, marked, 4711]) == {gone: "cancelled", 4711: None}


def test_at_most_ten_thousand_runs_are_marked_at_once(db: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="10001 runs, at most 10000"):
        db.execute("SELECT pgsched.await_runs(array_agg(g)) FROM generate_series(1, 10001) g")


def test_an_outcome_has_the_result_or_the_error_and_its_traceback(db: psycopg.Connection[Any]) -> None:
    run = enqueue(db, max_attempts=1)
    assert read_outcome(db, 4711) is None
    (claim,) = take(db)
    settle(db.info.dsn, done(claim, Result.FAILED, traceback="line 7"))
    assert read_outcome(db, run) == {
        "state": "dead", "result": None, "error": "it failed", "reason": "its only attempt used",
        "traceback": "line 7", "task": "t",
    }  # fmt: skip
