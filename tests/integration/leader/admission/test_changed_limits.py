"""Limits that are added, changed or deleted while there are runs also apply to runs that were queued before."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.leader import limits
from pgsched.db.statements import sql
from pgsched.leader import admission
from tests.support.db.limiting import add, admit, applied, end, limit, limit_queue, states
from tests.support.db.setting import CLAIMS, Open, take, text_without
from tests.support.fleet import one
from tests.support.waiting import wait_until


def test_a_limit_holds_for_runs_that_were_queued_before_it(db: psycopg.Connection) -> None:
    add(db, 10)
    limit_queue(db, concurrency_limit=2)
    assert admit(db) == 8
    assert states(db) == {"queued": 2, "waiting": 8}
    wait_until(lambda: applied(db), what="transactions of other databases to end")


def test_a_limit_of_keys_holds_for_runs_that_were_admitted_before_it(db: psycopg.Connection) -> None:
    add(db, 10, "customer:1")
    admit(db)
    limit(db, "customer", 3)
    admit(db)
    assert states(db) == {"queued": 3, "waiting": 7}


def test_a_limit_is_not_marked_applied_while_an_older_transaction_is_open(
    db: psycopg.Connection, connect: Open
) -> None:
    slow = connect(autocommit=False)
    add(slow, 5)
    limit_queue(db, concurrency_limit=2)
    admit(db)
    assert one(db, "SELECT applied_at IS NULL FROM pgsched.queues"), "it may have missed the queue's bit"
    slow.commit()
    admit(db)
    assert states(db) == {"queued": 2, "waiting": 3}
    wait_until(lambda: applied(db), what="transactions of other databases to end")


def test_a_lowered_limit_takes_back_runs_that_have_not_started(db: psycopg.Connection) -> None:
    limit(db, "k", 5)
    add(db, 10, "k")
    admit(db)
    take(db, 2)
    db.execute("UPDATE pgsched.limits SET concurrency = 3")
    admit(db)
    assert states(db) == {"queued": 1, "running": 2, "waiting": 7}
    db.execute("UPDATE pgsched.limits SET concurrency = 0")
    admit(db)
    assert states(db) == {"running": 2, "waiting": 8}


def test_waiting_runs_are_admitted_when_their_limit_is_deleted(db: psycopg.Connection) -> None:
    limit(db, "k", 1)
    limit_queue(db, "q", concurrency_limit=1)
    add(db, 3, "k")
    add(db, 3, queue="q")
    admit(db)
    db.execute("DELETE FROM pgsched.limits")
    db.execute("DELETE FROM pgsched.queues")
    admit(db)
    assert states(db) == {"queued": 6}
    with db.transaction():
        limits.delete_obsolete(db)
    assert one(db, "SELECT last_value FROM pgsched.gated_queues") == 0
    add(db, 1, queue="q")
    assert states(db) == {"queued": 7}


def test_the_bit_of_a_newly_limited_queue_survives_a_concurrent_cleanup(db: psycopg.Connection, connect: Open) -> None:
    other = connect(autocommit=False)
    other.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('a', 0)")
    with db.transaction():
        limits.delete_obsolete(db)  # while another transaction changes the table, no bit is cleared
    other.commit()
    add(db, 1, queue="a")
    assert states(db) == {"waiting": 1}


@pytest.mark.parametrize("first", ["the run", "the limit"])
def test_runs_of_an_older_transaction_do_not_pass_a_queues_first_limit(
    first: str, db: psycopg.Connection, connect: Open
) -> None:
    slow, person, admission_state = connect(autocommit=False), connect(autocommit=False), admission.AdmissionState()
    if first == "the limit":  # not committed: the enqueue does not see it, although its transaction is older
        limit_queue(person, concurrency_limit=2)
        add(slow, 5)
    else:
        add(slow, 5)
        limit_queue(person, concurrency_limit=2)
    person.commit()
    admit(db, admission_state)
    slow.commit()
    assert take(db, 5) == []
    admit(db, admission_state)
    assert states(db) == {"queued": 2, "waiting": 3}
    assert len(take(db, 5)) == 2


@pytest.mark.parametrize("how", ["insert", "retry"])
def test_runs_of_an_old_snapshot_do_not_pass_a_queues_first_limit(
    how: str, db: psycopg.Connection, connect: Open
) -> None:
    (dead,) = add(db, 1)
    end(db, dead, "dead")
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    one(old, "SELECT count(*) FROM pgsched.queues")
    limit_queue(db, concurrency_limit=0)
    wait_until(lambda: applied(db), what="the limit to be applied")
    add(old, 1) if how == "insert" else one(old, "SELECT pgsched.retry(%s)", dead)
    old.commit()
    assert take(db, 5) == []


def test_a_limit_that_is_changed_while_it_is_applied_is_applied_again(db: psycopg.Connection, connect: Open) -> None:
    add(db, 5)
    limit_queue(db, concurrency_limit=5)
    with db.transaction():
        changes = limits.list_unapplied(db)
        connect().execute("UPDATE pgsched.queues SET concurrency_limit = 2")
        assert limits.mark_applied(db, changes) == 0
    admit(db)
    assert states(db) == {"queued": 2, "waiting": 3}


def test_a_limit_of_21000_runs_is_kept_and_opens_its_queue(db: psycopg.Connection) -> None:
    add(db, 21_500)
    limit_queue(db, concurrency_limit=21_000)
    admit(db)
    assert states(db) == {"queued": 21_000, "waiting": 500}
    assert admit(db) == 0
    assert len(take(db, 5)) == 5


def test_a_queue_that_is_renamed_while_its_first_limit_is_applied_is_not_shut(
    db: psycopg.Connection,
) -> None:
    limit_queue(db, "a", concurrency_limit=1)
    db.execute("UPDATE pgsched.queues SET name = 'b'")
    admit(db)
    with db.transaction():
        limits.delete_obsolete(db)
    assert one(db, "SELECT count(*) FROM pgsched.pauses") == 0


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("guarded", [True, False])
def test_nothing_starts_in_a_queue_while_its_first_limit_is_applied(
    guarded: bool, name: str, db: psycopg.Connection
) -> None:
    add(db, 5)
    limit_queue(db, concurrency_limit=2)
    text = sql(name) if guarded else text_without(name, ", ('limit', %(queue)s)")
    assert len(take(db, 5, text=text)) == (0 if guarded else 5)
    if guarded:
        admit(db)
        assert len(take(db, 5)) == 2
        db.execute("UPDATE pgsched.queues SET concurrency_limit = 3")
        assert one(db, "SELECT count(*) FROM pgsched.pauses") == 0, "only the first one"


@pytest.mark.long
def test_a_long_backlog_is_taken_back_whole_before_anything_starts(db: psycopg.Connection) -> None:
    add(db, 25_000)
    limit_queue(db, concurrency_limit=2)
    admit(db)
    assert take(db, 5) == []
    admit(db)
    assert states(db) == {"queued": 2, "waiting": 24_998}
    assert len(take(db, 5)) == 2
