"""Ownership: only the current token settles a run or renews its lease.

A claim is not taken away while a transaction that has asserted the claim is open.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import psycopg
import pytest

from pgsched.core.model import Outcome, Result, Settlement
from pgsched.db.connection.connect import aconnect
from pgsched.db.queries.runs import claims
from tests.support.db.setting import (
    Aside,
    Open,
    add_runs,
    cut,
    done,
    let_expire,
    reap,
    row_of,
    take,
    wait_until_blocked,
)
from tests.support.db.settling import TOKEN, settle, zombie

pytestmark = pytest.mark.pg14

FENCE = "CASE WHEN r.token = g.token AND r.state = 'running' THEN true END"
WITHOUT_TOKEN = "CASE WHEN r.state = 'running' THEN true END"
WITHOUT_STATE = "CASE WHEN r.token = g.token THEN true END"


@pytest.mark.parametrize("result", list(Result))
def test_a_zombie_cannot_settle(result: Result, dsn: str, db: psycopg.Connection) -> None:
    old, new = zombie(db)
    before = row_of(db, old.id)
    evidence = db.execute("SELECT * FROM pgsched.attempts ORDER BY token").fetchall()
    assert settle(dsn, done(old, result)) == ["lost"]
    assert row_of(db, old.id) == before
    assert db.execute("SELECT * FROM pgsched.attempts ORDER BY token").fetchall() == evidence
    assert settle(dsn, done(old), done(new)) == ["lost", "succeeded"]


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_two_claims_of_one_run_in_a_batch_only_the_owners_settles(
    newest_first: bool, dsn: str, db: psycopg.Connection
) -> None:
    old, new = zombie(db)
    add_runs(db, 1)
    (other,) = take(db)
    batch, verdicts = [done(old), done(other), done(new)], ["lost", "succeeded", "succeeded"]
    way = -1 if newest_first else 1
    assert settle(dsn, *batch[::way]) == verdicts[::way]
    assert row_of(db, old.id)["token"] == str(new.token)


def test_a_token_settles_its_own_run_and_no_other_of_the_batch(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 3)
    one, two, three = [take(db, 1)[0] for _ in range(3)]
    assert settle(dsn, done(one._replace(token=two.token)), done(two._replace(token=one.token)), done(three)) == [
        "lost", "lost", "succeeded",
    ]  # fmt: skip
    assert [row_of(db, claim.id)["state"] for claim in (one, two, three)] == ["running", "running", "succeeded"]


def test_two_tokens_that_alternate_in_a_batch_settle_only_their_own_runs(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 5)
    first, second = uuid4(), uuid4()
    tokens = [first, second, first, second, first]
    claims = [claim._replace(token=token) for claim, token in zip(take(db, 5), tokens, strict=True)]
    for claim in claims:
        db.execute("UPDATE pgsched.runs SET token = %s WHERE id = %s", [claim.token, claim.id])
    stolen = [claims[0], claims[1]._replace(token=first), *claims[2:4], claims[4]._replace(token=second)]
    assert settle(dsn, *map(done, stolen)) == ["succeeded", "lost", "succeeded", "succeeded", "lost"]


def test_each_result_is_kept_with_its_own_run(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 5)
    values = [{"n": 1}, None, "null", [None, 2.5], 'ä\\"']
    taken = take(db, 5)
    batch = [Settlement.of(claim, Outcome(Result.SUCCEEDED, value)) for claim, value in zip(taken, values, strict=True)]
    assert settle(dsn, *batch[::-1]) == ["succeeded"] * 5
    assert [row_of(db, claim.id)["result"] for claim in taken] == values


def test_without_the_token_a_zombie_settles(dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = zombie(db)
    cut(monkeypatch, "settle_succeeded", TOKEN)
    settle(dsn, done(old))
    assert row_of(db, old.id)["state"] == "succeeded"
    assert settle(dsn, done(new)) == ["repeated"], "and the owner is told that its outcome was there before"


def test_without_the_token_a_zombie_fails_the_attempt_of_the_next_owner(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = zombie(db)
    cut(monkeypatch, "settle", FENCE, WITHOUT_TOKEN)
    settle(dsn, done(old, Result.FAILED))
    assert row_of(db, old.id)["state"] == "scheduled"


@pytest.mark.parametrize(("result", "state"), [(Result.SUCCEEDED, "succeeded"), (Result.FAILED, "scheduled")])
def test_a_settlement_sent_twice_counts_once(result: Result, state: str, dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    assert settle(dsn, done(claim, result)) == [state]
    before = row_of(db, claim.id)
    assert settle(dsn, done(claim, result)) == ["repeated"]
    assert row_of(db, claim.id) == before
    assert before["attempt"] == 1


def test_without_the_state_in_the_fence_a_settlement_sent_twice_counts_twice(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    settle(dsn, done(claim, Result.INTERRUPTED))
    assert row_of(db, claim.id)["attempt"] == 0
    cut(monkeypatch, "settle", FENCE, WITHOUT_STATE)
    settle(dsn, done(claim, Result.INTERRUPTED))
    assert row_of(db, claim.id)["attempt"] == -1


@pytest.mark.parametrize("guarded", [True, False])
def test_a_reaped_claim_is_lost_to_its_former_owner(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    if not guarded:
        cut(monkeypatch, "reap", "token = NULL, ")
    reap(db)
    assert settle(dsn, done(claim)) == ["lost" if guarded else "repeated"]
    assert row_of(db, claim.id)["state"] == "queued"
    evidence = db.execute("SELECT attempt, outcome, token FROM pgsched.attempts").fetchall()
    assert evidence == [(1, "interrupted", claim.token)]


def test_one_lost_row_does_not_hold_up_its_batch(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 3)
    first, second, third = take(db, 3)
    db.execute("UPDATE pgsched.runs SET token = %s WHERE id = %s", [uuid4(), second.id])
    assert settle(dsn, done(first), done(second), done(third)) == ["succeeded", "lost", "succeeded"]


def settle_unlocked(dsn: str, *batch: Settlement) -> list[str]:
    async def once() -> list[str]:
        async with await aconnect(dsn, settings={"lock_timeout": "200"}) as conn:
            return await claims.settle_unlocked(conn, batch, "w")

    return asyncio.run(once())


def test_only_outcomes_of_locked_runs_are_left_for_later(dsn: str, db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 5)
    batch = [done(claim) for claim in take(db, 4)]
    failed = done(take(db, 1)[0], Result.FAILED)
    db.execute("UPDATE pgsched.runs SET token = %s WHERE id = %s", [uuid4(), batch[3].id])
    person = connect(autocommit=False)
    person.execute("SELECT pgsched.cancel(%s)", [batch[1].id])
    told = settle_unlocked(dsn, failed, *batch)
    assert told == ["scheduled", "succeeded", "locked", "succeeded", "lost"]
    person.rollback()
    assert settle_unlocked(dsn, *batch[:2]) == ["succeeded", "succeeded"], "what is sent again is sent as a whole"


def test_without_skip_locked_outcomes_wait_for_a_locked_run(
    dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "settle_lock", " SKIP LOCKED")
    add_runs(db, 2)
    batch = [done(claim) for claim in take(db, 2)]
    person = connect(autocommit=False)
    person.execute("SELECT pgsched.cancel(%s)", [batch[1].id])
    with pytest.raises(psycopg.errors.LockNotAvailable):
        settle_unlocked(dsn, *batch)


def test_a_heartbeat_renews_held_claims_and_no_reaped_one(db: psycopg.Connection) -> None:
    add_runs(db, 2)
    gone, kept = take(db, 2)
    db.execute("UPDATE pgsched.runs SET lease_until = clock_timestamp() WHERE id = %s", [gone.id])
    reap(db)
    beat = claims.heartbeat(db, 1, 30.0, [gone.key, kept.key])
    assert beat.renewed == {kept.key}
    assert row_of(db, gone.id)["lease_until"] is None


@pytest.mark.parametrize("guarded", [True, False])
def test_a_zombie_cannot_renew_the_lease_of_the_next_owner(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = zombie(db)
    let_expire(db)
    if not guarded:
        cut(monkeypatch, "heartbeat", "r.token = g.token AND ")
    before = row_of(db, old.id)["lease_until"]
    beat = claims.heartbeat(db, 1, 30.0, [old.key])
    assert (row_of(db, old.id)["lease_until"] == before) is guarded
    assert old.key not in beat.renewed


def test_a_lease_that_is_being_renewed_is_not_reaped(db: psycopg.Connection, connect: Open) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    worker = connect(autocommit=False)
    assert claims.heartbeat(worker, 1, 30.0, [claim.key]).renewed
    assert reap(db) == []
    worker.commit()
    assert reap(db) == []
    assert row_of(db, claim.id)["state"] == "running"


def test_without_the_row_lock_a_lease_is_reaped_although_it_was_renewed(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    worker, leader = connect(autocommit=False), connect()
    claims.heartbeat(worker, 1, 30.0, [claim.key])
    cut(monkeypatch, "reap", " FOR UPDATE SKIP LOCKED")
    other = Aside(lambda: reap(leader))
    wait_until_blocked(db, leader)
    worker.commit()
    assert [run["id"] for run in other.result()] == [claim.id]


@pytest.mark.parametrize("guarded", [True, False])
def test_the_reaper_skips_a_claim_that_an_open_transaction_asserted(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    handler = connect(autocommit=False)
    handler.execute("SELECT pgsched.assert_claim(%s, %s)", [claim.id, claim.token])
    if not guarded:
        cut(monkeypatch, "reap", "FOR UPDATE SKIP LOCKED", "FOR NO KEY UPDATE SKIP LOCKED")
    assert bool(reap(db)) is not guarded
    handler.commit()
    assert bool(reap(db)) is guarded


@pytest.mark.parametrize("guarded", [True, False])
def test_a_zombie_s_own_writes_roll_back_with_assert_claim(
    guarded: bool, db: psycopg.Connection, connect: Open
) -> None:
    db.execute("CREATE TABLE written (by uuid)")
    old, new = zombie(db)
    handler = connect(autocommit=False)
    handler.execute("INSERT INTO written VALUES (%s)", [old.token])
    if guarded:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"claim of run .* is lost"):
            handler.execute("SELECT pgsched.assert_claim(%s, %s)", [old.id, old.token])
    handler.commit()
    assert db.execute("SELECT count(*) FROM written").fetchone() == (0 if guarded else 1,)
    db.execute("SELECT pgsched.assert_claim(%s, %s)", [new.id, new.token])
