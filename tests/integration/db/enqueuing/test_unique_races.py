"""Races for a unique key or an idempotency key, under every conflict policy.

Each guard is proved by a twin of the test that takes the guard out.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import psycopg
import pytest

from pgsched.app.options import OPTIONS
from pgsched.db.queries.runs.enqueue import enqueue
from pgsched.errors import AlreadyEnqueued
from tests.support.db.setting import Aside, Open, at_once, row_of, take, wait_until_blocked

BUCKET = {"unique_key": "k", "unique_scope": "bucket(1 day)"}
ACTIVE = {"unique_key": "k"}
IDEMPOTENT = {"idempotency_key": "k"}
WAYS = pytest.mark.parametrize("key", [ACTIVE, BUCKET, IDEMPOTENT], ids=["active", "bucket", "idempotency"])
POLICIES = pytest.mark.parametrize("policy", ["replace", "keep_time"])


def put(conn: psycopg.Connection, args: str = "{}", **options: Any) -> Any:
    """Enqueue on this connection, in its current transaction."""
    return enqueue(conn, task="t", args=args, **{**dict.fromkeys(OPTIONS), **options})


def without(db: psycopg.Connection, function: str, guard: str, instead: str = "") -> None:
    """Replace a function by itself without its guard. Fail unless the guard is there exactly once."""
    found = db.execute("SELECT pg_get_functiondef(%s::regproc)", [f"pgsched.{function}"]).fetchone()
    assert found is not None and found[0].count(guard) == 1, f"{function} has {guard!r} {found}"
    db.execute(found[0].replace(guard, instead).encode())


def without_first_come(db: psycopg.Connection) -> None:
    """Take away what decides which enqueue is first: the unique indexes, and the clauses that use them."""
    without(
        db,
        "make_run",
        "ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 /* open */ DO NOTHING",
    )
    without(db, "take_key", "ON CONFLICT (scope, key) DO NOTHING")
    db.execute("DROP INDEX pgsched.runs_unique_key")
    db.execute("ALTER TABLE pgsched.kept_keys DROP CONSTRAINT kept_keys_pkey")


def count(db: psycopg.Connection) -> int:
    row = db.execute("SELECT count(*) FROM pgsched.runs").fetchone()
    return int(row[0]) if row else 0


# ---- which enqueue is first


@WAYS
def test_many_clients_with_one_key_make_one_run(key: dict[str, str], db: psycopg.Connection, connect: Open) -> None:
    found: list[Any] = []
    connections = [connect() for _ in range(8)]
    at_once([lambda c=conn: found.extend(put(c, **key) for _ in range(25)) for conn in connections])  # type: ignore[misc]
    assert (len(found), len(set(found)), count(db)) == (200, 1, 1)
    assert [run_id.how for run_id in found].count("created") == 1


@WAYS
@pytest.mark.parametrize("guarded", [True, False])
def test_the_second_enqueue_waits_and_finds_the_run_of_the_first(
    guarded: bool, key: dict[str, str], db: psycopg.Connection, connect: Open
) -> None:
    if not guarded:
        without_first_come(db)
    first, second = connect(autocommit=False), connect()
    mine = put(first, **key)
    other = Aside(lambda: put(second, **key))
    if guarded:
        wait_until_blocked(db, second)
        first.commit()
        assert (other.result(), other.result().created, count(db)) == (mine, False, 1)
    else:
        other.result()
        first.commit()
        assert count(db) == 2, "without the unique index, two runs"


@WAYS
def test_the_key_is_free_if_the_first_one_rolls_back(
    key: dict[str, str], db: psycopg.Connection, connect: Open
) -> None:
    first, second = connect(autocommit=False), connect()
    put(first, **key)
    other = Aside(lambda: put(second, **key))
    wait_until_blocked(db, second)
    first.rollback()
    assert other.result().created and count(db) == 1


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("key", [ACTIVE, BUCKET], ids=["active", "bucket"])
def test_of_many_enqueues_at_once_reject_accepts_one(
    key: dict[str, str], guarded: bool, db: psycopg.Connection, connect: Open
) -> None:
    if not guarded:
        without_first_come(db)
    together = threading.Barrier(8)

    def client(conn: psycopg.Connection) -> str:
        try:
            with conn.transaction():
                conn.execute("SELECT 1")
                if not guarded:  # with the guard, only one client gets past `put`
                    put(conn, **key, on_conflict="reject")
                    together.wait(10)
                    return "created"
                return str(put(conn, **key, on_conflict="reject").how)
        except AlreadyEnqueued as error:
            return f"run {error.run_id} has it"

    verdicts = at_once([partial(client, connect()) for _ in range(8)])
    if guarded:
        (run_id,) = (row[0] for row in db.execute("SELECT id FROM pgsched.runs"))
        assert sorted(verdicts) == ["created", *[f"run {run_id} has it"] * 7]
    else:
        assert (verdicts, count(db)) == (["created"] * 8, 8)


# ---- the payload of a run that another session is claiming or ending

RUNNING = "ELSIF r.state = 'running' THEN\n        RETURN 'existing';\n    END IF;"


@POLICIES
@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_is_being_claimed_keeps_its_payload(
    guarded: bool, policy: str, db: psycopg.Connection, connect: Open
) -> None:
    if not guarded:
        without(db, "meet_run", RUNNING, "END IF;")
    worker, client = connect(autocommit=False), connect()
    run_id = put(db, '{"n": 1}', **ACTIVE)
    take(worker)
    other = Aside(lambda: put(client, '{"n": 2}', **ACTIVE, on_conflict=policy))
    wait_until_blocked(db, client)
    worker.commit()
    found, run = other.result(), row_of(db, run_id)
    if guarded:
        assert (found, found.how, run["args"], run["state"]) == (run_id, "existing", {"n": 1}, "running")
    else:
        assert run["args"] == {"n": 2}, "the attempt runs with one payload, the row tells of another"


@POLICIES
def test_a_claim_skips_a_run_that_is_being_replaced(policy: str, db: psycopg.Connection, connect: Open) -> None:
    client, worker = connect(autocommit=False), connect()
    put(db, '{"n": 1}', **ACTIVE)
    put(client, '{"n": 2}', **ACTIVE, on_conflict=policy)
    assert take(worker) == []
    client.commit()
    (claim,) = take(worker)
    assert claim.args == {"n": 2}


@POLICIES
@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_is_ending_takes_no_new_payload(
    guarded: bool, policy: str, db: psycopg.Connection, connect: Open
) -> None:
    if not guarded:
        without(db, "meet_run", " OR r.phase >= 3 /* ended */")
    ending, client = connect(autocommit=False), connect()
    run_id = put(db, '{"n": 1}', **ACTIVE)
    # The client finds the run unfinished, and waits for its lock.
    ending.execute("SELECT FROM pgsched.runs FOR UPDATE")
    other = Aside(lambda: put(client, '{"n": 2}', **ACTIVE, on_conflict=policy))
    wait_until_blocked(db, client)
    ending.execute("SELECT pgsched.cancel(%s)", [run_id])
    ending.commit()
    found = other.result()
    if guarded:
        assert found.created and found != run_id and row_of(db, found)["args"] == {"n": 2}
    else:
        assert (found, row_of(db, run_id)["state"]) == (run_id, "cancelled"), "the payload is lost"


def test_many_replacements_at_once_leave_one_run_with_one_payload(db: psycopg.Connection, connect: Open) -> None:
    def client(conn: psycopg.Connection, number: int) -> set[int]:
        return {put(conn, f'{{"n": {number}}}', **ACTIVE, on_conflict="replace") for _ in range(20)}

    found = at_once([partial(client, connect(), number) for number in range(8)])
    (run_id,) = set().union(*found)
    assert count(db) == 1 and row_of(db, run_id)["args"]["n"] in range(8)


# ---- keys that have expired


@pytest.mark.parametrize("guarded", [True, False])
def test_an_expired_key_is_taken_over_only_once(guarded: bool, db: psycopg.Connection, connect: Open) -> None:
    if not guarded:
        without(db, "take_key", "(k.expires_at <= clock_timestamp() OR k.run_id IS NULL)", "true")
    put(db, **IDEMPOTENT)
    db.execute("UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() - interval '1 second'")
    first, second = connect(autocommit=False), connect()
    # The second finds the key expired, and waits for its lock.
    first.execute("SELECT FROM pgsched.kept_keys FOR UPDATE")
    other = Aside(lambda: put(second, **IDEMPOTENT))
    wait_until_blocked(db, second)
    mine = put(first, **IDEMPOTENT)
    first.commit()
    assert mine.created and other.result().created is not guarded
    assert count(db) == (2 if guarded else 3)


def test_a_key_that_stands_for_no_run_is_taken_over_only_once(db: psycopg.Connection, connect: Open) -> None:
    """Only a direct call of take_key leaves such a key."""
    db.execute("SELECT pgsched.take_key('idempotency', 'k', 'other', '8000-01-01Z')")
    first, second = connect(autocommit=False), connect()
    mine = put(first, **IDEMPOTENT)
    other = Aside(lambda: put(second, **IDEMPOTENT))
    wait_until_blocked(db, second)
    first.commit()
    assert mine.created and (other.result(), other.result().how, count(db)) == (mine, "repeated", 1)


def test_a_key_that_is_being_pruned_can_be_taken_again(db: psycopg.Connection, connect: Open) -> None:
    put(db, **IDEMPOTENT)
    db.execute("UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() - interval '1 second'")
    pruner, client = connect(autocommit=False), connect()
    pruner.execute("DELETE FROM pgsched.kept_keys")
    other = Aside(lambda: put(client, **IDEMPOTENT))
    wait_until_blocked(db, client)
    pruner.commit()
    assert other.result().created and count(db) == 2


def test_under_repeatable_read_the_second_enqueue_fails_and_does_not_loop(
    db: psycopg.Connection, connect: Open
) -> None:
    mine = connect(autocommit=False)
    mine.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    mine.execute("SELECT count(*) FROM pgsched.runs")
    put(db, **ACTIVE)
    with pytest.raises(psycopg.errors.SerializationFailure):
        put(mine, **ACTIVE)


@pytest.mark.long
def test_ten_thousand_enqueues_with_one_unique_key_make_one_run(db: psycopg.Connection, connect: Open) -> None:
    connections = [connect() for _ in range(8)]
    found = at_once([lambda c=conn: {put(c, **ACTIVE) for _ in range(1250)} for conn in connections], 90)  # type: ignore[misc]
    assert len(set().union(*found)) == count(db) == 1
