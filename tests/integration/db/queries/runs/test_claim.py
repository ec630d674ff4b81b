"""Claims: each run is claimed once, and claimers never wait for each other.

A run is not lost when the answer to its claim is lost.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched.core.model import Claim
from pgsched.db.connection.connect import aconnect
from pgsched.db.connection.transaction_pooling import AsyncKeptConnection, AsyncSharedConnection
from pgsched.db.queries.runs import claim_rows, claims
from pgsched.db.queries.runs.claims import FROM_THE_START, WorkerOffer, claim, claim_unconfirmed
from pgsched.db.statements import sql
from pgsched.worker.claiming.cursor import Cursor
from tests.support.db.setting import (
    CLAIMS,
    KINDS,
    Aside,
    Open,
    add_runs,
    reap,
    row_of,
    take,
    text_without,
    wait_until_blocked,
)

pytestmark = [pytest.mark.pg14, pytest.mark.packages, pytest.mark.scram]


def test_eight_claimers_claim_every_run_once(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 2000)

    async def drain(worker_id: int) -> list[Claim]:
        mine: list[Claim] = []
        wanted = WorkerOffer(worker_id, 30.0, KINDS["kinds"], KINDS["tasks"])
        async with await aconnect(dsn, settings={"enable_seqscan": "off"}) as conn:
            while found := await claim(conn, wanted, "default", 7, uuid4()):
                mine += found
        return mine

    async def all_together() -> list[list[Claim]]:
        return await asyncio.gather(*(drain(n) for n in range(1, 9)))

    shares = asyncio.run(all_together())
    claimed = [c.id for share in shares for c in share]
    assert len(claimed) == 2000
    assert len(set(claimed)) == 2000
    assert sum(bool(share) for share in shares) > 1
    owners = db.execute("SELECT id, worker_id, attempt, token FROM pgsched.runs WHERE state = 'running'").fetchall()
    told = {(c.id, n, 1, c.token) for n, share in enumerate(shares, 1) for c in share}
    assert set(owners) == told


def test_claims_are_in_the_order_of_their_instants_to_the_microsecond(dsn: str, db: psycopg.Connection) -> None:
    """Instants are compared as text, in UTC and ISO format without trailing zeros, whatever the database's settings."""
    for setting in "timezone = 'Europe/Berlin'", "datestyle = 'SQL, DMY'":  # Berlin has one hour twice on that day
        db.execute(f"ALTER DATABASE {db.info.dbname} SET {setting}")
    began = datetime(2025, 10, 26, 0, 59, 59, tzinfo=UTC)
    parts = [0, 1, 10, 100_000, 120_000, 999_999, 1_000_000, 10_000_000, 3_600_000_000, 86_400_000_000]
    instants = [began + timedelta(microseconds=part) for part in parts]
    for instant in reversed(instants):
        db.execute("INSERT INTO pgsched.runs (task, available_at) VALUES ('t', %s)", [instant])

    async def of_all() -> list[Claim]:
        async with await aconnect(dsn) as conn:
            return await claim(conn, WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"]), "default", 100, uuid4())

    told = [claim.available_at for claim in asyncio.run(of_all())]
    assert [datetime.fromisoformat(at or "") for at in told] == instants


AFTER = "AND (available_at, id) > (c.after_at, c.after_id)"


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_begins_behind_the_cursor_of_each_priority(guarded: bool, db: psycopg.Connection) -> None:
    text = sql("claim") if guarded else text_without("claim", AFTER, "")
    keys = [(5, 0), (5, 1), (5, 2), (3, 1), (3, 2), (7, 0)]
    for priority, second in keys:
        db.execute(
            "INSERT INTO pgsched.runs (task, priority, available_at)"
            " VALUES ('t', %s, '2026-05-01 12:00Z'::timestamptz + make_interval(secs => %s))",
            [priority, second],
        )
    first = {(c.priority, datetime.fromisoformat(c.available_at or "").second): c for c in take(db, 9)}
    db.execute("UPDATE pgsched.runs SET state = 'queued', attempt = 0, token = NULL, lease_until = NULL")
    cursor = Cursor()
    cursor.scanned([first[3, 1], first[5, 1]], 2, sent_at=0.0, now=0.1)
    found = take(db, 9, text=text, span=cursor.after(0.1))
    assert {c.id for c in found} == {first[key].id for key in (keys[2:3] + keys[4:] if guarded else keys)}


@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_s_columns_are_found_by_their_names(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, turned = b"r.timeout, r.kill_after", b"r.kill_after, r.timeout"

    def swapped(name: str) -> bytes:
        assert usual in sql(name)
        return sql(name).replace(usual, turned)

    monkeypatch.setattr(claims, "sql", swapped)
    if not guarded:
        monkeypatch.setattr(claim_rows, "column_reorderer", lambda _: None)
    db.execute(
        "INSERT INTO pgsched.runs (task, timeout, kill_after) SELECT 't', '1 min', '2 s' FROM generate_series(1, 3)"
    )
    token = uuid4()

    async def scene() -> list[Claim]:
        wanted = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])
        async with await aconnect(dsn) as conn:
            first = await claim(conn, wanted, "default", 1, token)
            second = await claim(conn, wanted, "default", 1, token, {**FROM_THE_START})
            return [*first, *second, *await claim_unconfirmed(conn, ["default"], token)]

    found = asyncio.run(scene())
    assert len(found) == 4
    in_order = {(one.timeout, one.kill_after) == (timedelta(minutes=1), timedelta(seconds=2)) for one in found}
    assert in_order == {guarded}


@pytest.mark.parametrize("guarded", [True, False])
def test_frequent_statements_of_a_worker_are_prepared_at_once(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        for module in (claim_rows, claims):
            monkeypatch.setattr(module, "prepare", lambda _: None)

    async def scene() -> list[tuple[int]]:
        async with await aconnect(dsn) as conn:
            await claims.plan_claims(conn, WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"]))
            await claims.plan_settlements(conn)
            return await (await conn.execute("SELECT count(*) FROM pg_prepared_statements")).fetchall()

    assert asyncio.run(scene()) == [(3 if guarded else 0,)]


def test_nothing_is_prepared_at_once_behind_a_pooler_that_lends_its_sessions() -> None:
    assert claim_rows.prepare(Mock(spec=AsyncSharedConnection)) is None
    assert claim_rows.prepare(Mock(spec=AsyncKeptConnection)) is True


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claimer_does_not_wait_for_another(name: str, db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 10)
    first, second = connect(autocommit=False), connect(options="-c lock_timeout=2s")
    mine = take(first, 5, text=sql(name))
    others = take(second, 10, text=sql(name))
    assert len(mine) == len(others) == 5
    assert not {c.id for c in mine} & {c.id for c in others}


@pytest.mark.parametrize("name", CLAIMS)
def test_without_skip_locked_a_claimer_waits(name: str, db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 10)
    first, second = connect(autocommit=False), connect(options="-c lock_timeout=100ms")
    take(first, 5)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        take(second, 10, text=text_without(name, " SKIP LOCKED"))


@pytest.mark.parametrize("name", CLAIMS)
def test_without_the_row_lock_a_run_is_claimed_twice(name: str, db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 5)
    first, second = connect(autocommit=False), connect()
    mine = take(first, 5)
    other = Aside(lambda: take(second, 5, text=text_without(name, " FOR UPDATE SKIP LOCKED")))
    wait_until_blocked(db, second)
    first.commit()
    stolen = other.result()
    assert {c.id for c in stolen} == {c.id for c in mine}
    assert {c.attempt for c in stolen} == {2}


def test_a_lost_answer_is_asked_for_again(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 6)
    token = uuid4()
    lost = take(db, 3, token)
    take(db, 2)  # claims with another token

    async def ask() -> list[Claim]:
        async with await aconnect(dsn) as conn:
            return await claim_unconfirmed(conn, ["default"], token)

    assert asyncio.run(ask()) == lost
    assert [c.id for c in lost] == [1, 2, 3]
    values = {"queue": "default", "queues": "{default}", "token": token, "named": False}
    unguarded = db.execute(
        text_without("claim_unconfirmed", " AND token = %(token)s", " AND %(token)s IS NOT NULL"), values
    )
    assert len(unguarded.fetchall()) == 5, "without the token in it, the answer would hold somebody else's claims"


def test_claiming_again_gives_nothing_once_the_lease_was_taken_away(db: psycopg.Connection) -> None:
    add_runs(db, 1)
    token = uuid4()
    take(db, 1, token, lease_s=-1)
    reap(db)
    values = {"queue": "default", "queues": "{default}", "token": token, "named": False}
    assert db.execute(sql("claim_unconfirmed"), values).fetchall() == []
    assert row_of(db, 1)["state"] == "queued"


def enqueue(conn: psycopg.Connection) -> int:
    row = conn.execute("SELECT pgsched.enqueue('t', unique_key => 'k')").fetchone()
    assert row is not None
    return int(row[0])


def test_two_processes_that_enqueue_one_unique_key_make_one_run(db: psycopg.Connection, connect: Open) -> None:
    first, second = connect(autocommit=False), connect()
    mine = enqueue(first)
    other = Aside(lambda: enqueue(second))
    wait_until_blocked(db, second)
    first.commit()
    assert other.result() == mine
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (1,)


def test_a_unique_key_is_free_again_when_the_other_process_rolls_back(db: psycopg.Connection, connect: Open) -> None:
    first, second = connect(autocommit=False), connect()
    gone = enqueue(first)
    other = Aside(lambda: enqueue(second))
    wait_until_blocked(db, second)
    first.rollback()
    assert other.result() != gone
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (1,)


def test_without_the_index_a_unique_key_makes_two_runs(db: psycopg.Connection, connect: Open) -> None:
    guard = "ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 /* open */ DO NOTHING"
    found = db.execute("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'make_run'").fetchone()
    assert found is not None
    assert found[0].count(guard) == 1
    db.execute(found[0].replace(guard, ""))
    db.execute("DROP INDEX pgsched.runs_unique_key")
    first, second = connect(autocommit=False), connect()
    ids = [enqueue(first), enqueue(second)]
    first.commit()
    assert len(set(ids)) == 2
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE unique_key = 'k'").fetchone() == (2,)


@pytest.mark.long
def test_a_kept_cursor_keeps_no_connection_and_no_large_arguments(dsn: str, db: psycopg.Connection) -> None:
    """A process may reconnect often in its life, and an idle process must not keep the arguments of its last claim."""
    args = Jsonb({"text": "x" * claim_rows.MOST_KEPT})
    add_runs(db, 2)
    db.execute("UPDATE pgsched.runs SET args = %s WHERE id = 1", [args])
    wanted = WorkerOffer(1, 30.0, KINDS["kinds"], KINDS["tasks"])

    async def claim_two() -> tuple[weakref.ref[Any], list[int]]:
        async with await aconnect(dsn, settings={"enable_seqscan": "off"}) as conn:
            kept = []
            for _ in range(2):
                assert len(await claim(conn, wanted, "default", 1, uuid4())) == 1
                kept.append(len(claim_rows.CURSORS[conn]))
            return weakref.ref(conn), kept

    before, kept = asyncio.run(claim_two())
    assert kept == [0, 1], "the large one is let go"
    add_runs(db, 2)
    asyncio.run(claim_two())
    gc.collect()
    assert before() is None
