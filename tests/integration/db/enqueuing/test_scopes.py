"""The unique scopes `while_queued` and `sliding`: how long a key stands for a run.

The guards are proved by twins of the tests that take them out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, sliding
from pgsched.core.model import Result
from pgsched.db.queries.leader import retention
from tests.support.db.setting import Aside, at_once, done, let_expire, reap, row_of, take, wait_until_blocked
from tests.support.db.settling import settle
from tests.support.fleet import one
from tests.support.logins import Logins

pytestmark = pytest.mark.pg14
Connect = Callable[..., psycopg.Connection[Any]]
QUEUED = "SELECT id, how FROM pgsched.enqueue_result('t', %s, unique_key => 'k', unique_scope => 'while_queued')"
AGO = "UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() - interval '1 second'"


def put(conn: psycopg.Connection, args: str = "{}", **options: str) -> tuple[int, str]:
    more = "".join(f", {name} => '{value}'" for name, value in options.items())
    found = conn.execute(QUEUED.replace("=> 'while_queued'", f"=> 'while_queued'{more}").encode(), [args]).fetchone()
    assert found is not None
    return found


def without(db: psycopg.Connection, function: str, guard: str, instead: str = "") -> None:
    found = db.execute("SELECT pg_get_functiondef(%s::regproc)", [f"pgsched.{function}"]).fetchone()
    assert found is not None and found[0].count(guard) == 1, f"{function} has {guard!r} {found}"
    db.execute(found[0].replace(guard, instead).encode())


# ---- while_queued


def test_a_queued_run_has_the_key_until_its_first_claim(db: psycopg.Connection) -> None:
    first, again = put(db), put(db)
    (claim,) = take(db)
    second = put(db)
    assert (first[1], again, second[1]) == ("created", (first[0], "existing"), "created")
    assert (claim.id, second[0] > first[0], put(db)) == (first[0], True, (second[0], "existing"))


@pytest.mark.parametrize("result", [Result.FAILED, Result.RELEASED, Result.SNOOZED, Result.INTERRUPTED])
@pytest.mark.parametrize("meanwhile", [True, False], ids=["taken", "free"])
def test_a_run_that_is_queued_again_never_takes_the_key_back(
    dsn: str, db: psycopg.Connection, result: Result, meanwhile: bool
) -> None:
    first, _ = put(db)
    (claim,) = take(db)
    taken = put(db) if meanwhile else None
    settle(dsn, done(claim, result))
    assert row_of(db, first)["state"] in ("queued", "scheduled")
    again = put(db)
    assert again[0] != first and again[1] == ("existing" if meanwhile else "created")
    assert taken is None or taken[0] == again[0]


def test_a_run_whose_worker_died_does_not_take_the_key_back(db: psycopg.Connection) -> None:
    first, _ = put(db)
    take(db)
    let_expire(db)
    assert [row["state"] for row in reap(db)] == ["queued"]
    assert put(db)[0] != first


@pytest.mark.parametrize("way", ["claimed", "not claimed"])
def test_a_run_that_is_retried_does_not_take_the_key_back(dsn: str, db: psycopg.Connection, way: str) -> None:
    first, _ = put(db)
    if way == "claimed":
        settle(dsn, done(*take(db), Result.RELEASED))
    db.execute("SELECT pgsched.cancel(%s), pgsched.retry(%s)", [first, first])
    assert (row_of(db, first)["state"], put(db)[0] != first) == ("queued", True)


def test_without_the_mark_of_a_claim_a_released_run_has_the_key_again(dsn: str, db: psycopg.Connection) -> None:
    without(db, "is_unclaimed", "AND token IS NULL ")
    first, _ = put(db)
    settle(dsn, done(*take(db), Result.RELEASED))
    assert put(db)[0] == first


def test_a_run_that_is_found_is_not_claimed_before_the_commit(db: psycopg.Connection, connect: Connect) -> None:
    """Its handler sees what the transaction that found it has written."""
    first, _ = put(db)
    mine = connect(autocommit=False)
    assert put(mine) == (first, "existing")
    assert take(db) == []
    mine.commit()
    assert [claim.id for claim in take(db)] == [first]


def test_without_the_lock_a_run_begins_before_the_commit_of_what_found_it(
    db: psycopg.Connection, connect: Connect
) -> None:
    without(db, "take_queued_key", " FOR KEY SHARE")
    first, _ = put(db)
    mine = connect(autocommit=False)
    assert put(mine) == (first, "existing")
    assert [claim.id for claim in take(db)] == [first]


def test_an_enqueue_waits_for_a_claim_that_is_being_made(db: psycopg.Connection, connect: Connect) -> None:
    put(db)
    worker, client = connect(autocommit=False), connect()
    assert take(worker)
    aside = Aside(lambda: put(client))
    wait_until_blocked(db, client)
    worker.commit()
    assert aside.result()[1] == "created"


def test_many_sessions_at_once_make_one_queued_run(db: psycopg.Connection, connect: Connect) -> None:
    put(db)
    take(db)  # the key is to be taken over
    connections = [connect() for _ in range(6)]
    found = at_once([lambda conn=conn: put(conn) for conn in connections])
    assert (len({run for run, _ in found}), [how for _, how in found].count("created")) == (1, 1)


def take_over_together(db: psycopg.Connection, connect: Connect) -> list[str]:
    """Let two sessions find out at the same time that the run of a key is claimed; return how each enqueued."""
    put(db)
    worker, clients = connect(autocommit=False), [connect(autocommit=False) for _ in range(2)]
    assert take(worker)

    def enqueue(conn: psycopg.Connection[Any]) -> str:
        _, how = put(conn)
        conn.commit()
        return how

    calls = [Aside(lambda conn=conn: enqueue(conn)) for conn in clients]
    for conn in clients:
        wait_until_blocked(db, conn)
    worker.commit()
    return sorted(call.result() for call in calls)


def test_two_sessions_take_one_key_over_once(db: psycopg.Connection, connect: Connect) -> None:
    assert take_over_together(db, connect) == ["created", "existing"]


def test_without_the_comparison_two_sessions_take_one_key_over(db: psycopg.Connection, connect: Connect) -> None:
    without(db, "take_queued_key", " AND k.run_id IS NOT DISTINCT FROM held.run_id")
    assert take_over_together(db, connect) == ["created", "created"]


def test_under_repeatable_read_a_claim_that_is_not_visible_is_an_error(
    db: psycopg.Connection, connect: Connect
) -> None:
    put(db)
    mine = connect(autocommit=False)
    mine.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    mine.execute("SELECT 1 FROM pgsched.runs")
    take(db)
    with pytest.raises(psycopg.errors.SerializationFailure):
        put(mine)


def test_replacing_a_queued_run(db: psycopg.Connection) -> None:
    first, _ = put(db, '{"n": 1}', on_conflict="replace")
    assert put(db, '{"n": 2}', on_conflict="replace") == (first, "replaced")
    assert row_of(db, first)["args"] == {"n": 2}
    take(db)
    assert put(db, '{"n": 3}', on_conflict="replace")[1] == "created"
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.execute(
            "SELECT pgsched.enqueue('t', unique_key => 'k', unique_scope => 'while_queued', on_conflict => 'reject')"
        )


def test_a_key_lasts_as_long_as_its_run_is_queued(db: psycopg.Connection) -> None:
    first, _ = put(db)
    db.execute(AGO)
    retention.delete_other_rows(db, 3600, 100)
    assert put(db) == (first, "existing")
    assert one(db, "SELECT expires_at > clock_timestamp() + interval '23 hours' FROM pgsched.kept_keys")
    take(db)
    db.execute(AGO)
    retention.delete_other_rows(db, 3600, 100)
    assert one(db, "SELECT count(*) FROM pgsched.kept_keys") == 0


def test_the_scopes_do_not_know_each_other(db: psycopg.Connection) -> None:
    other = one(db, "SELECT pgsched.enqueue('t', unique_key => 'k')")
    assert put(db)[0] != other


def test_the_key_of_another_owner_is_refused_before_any_lock(
    db: psycopg.Connection, logins: Logins, connect: Connect
) -> None:
    alice, bob, holder = logins.connect("alice"), logins.connect("bob"), connect(autocommit=False)
    first, _ = put(alice)
    holder.execute("SELECT FROM pgsched.runs FOR UPDATE")
    bob.execute("SET lock_timeout = '300ms'")
    for options in ({}, {"on_conflict": "merge"}, {"on_conflict": "replace"}):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            put(bob, '{"n": 1}', **options)
    holder.rollback()
    assert row_of(db, first)["args"] == {}
    take(db)
    assert put(bob)[1] == "created"  # alice's run gave it up


# ---- sliding


def slide(db: psycopg.Connection, period: str = "1 hour", **options: str) -> tuple[int, str]:
    more = "".join(f", {name} => '{value}'" for name, value in options.items())
    found = db.execute(
        f"SELECT id, how FROM pgsched.enqueue_result('t', unique_key => 'k', unique_scope => 'sliding({period})'{more})"
        .encode()
    ).fetchone()  # fmt: skip
    assert found is not None
    return found


def test_no_second_run_is_made_within_the_period(dsn: str, db: psycopg.Connection) -> None:
    first, _ = slide(db)
    kept = one(db, "SELECT k.expires_at = r.created_at + interval '1 hour' FROM pgsched.kept_keys k, pgsched.runs r")
    assert (kept, slide(db)) == (True, (first, "existing"))
    settle(dsn, done(*take(db)))
    assert slide(db) == (first, "existing")
    db.execute("DELETE FROM pgsched.runs")
    assert slide(db) == (first, "existing")
    db.execute(AGO)
    assert slide(db)[1] == "created"
    assert slide(db, "2 hours")[1] == "created"  # another length is another key


def test_a_run_for_later_is_within_the_period_from_when_it_was_made(db: psycopg.Connection) -> None:
    first, _ = slide(db, delay="3 days")
    assert slide(db) == (first, "existing")
    db.execute(AGO)
    assert slide(db)[1] == "created"


def test_python_names_the_scopes(app: App, db: psycopg.Connection) -> None:
    task = app.task(name="t", unique_key="n {n}", unique_scope=sliding(timedelta(hours=1)))(lambda n: None)
    first = task.enqueue(1)
    assert task.enqueue(1) == first != task.enqueue(2)
    queued = task.options(unique_scope="while_queued")
    assert queued.enqueue(1) == queued.enqueue(1) != first
    with pytest.raises(InputError, match=r"unique_scope: 0\.5 s is out of range"):
        sliding(0.5)
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 3
