"""A kept key belongs to one role: another role is refused when it uses or writes the key, and cannot read it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.db.pruning import prune
from tests.support.db.setting import Aside, wait_until_blocked
from tests.support.logins import Logins, not_refused, one

BUCKET = "unique_key => 'k', unique_scope => 'bucket(1 day)'"
KEYS = {"idempotency": "idempotency_key => 'k'", "bucket": BUCKET}
WAYS = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
Db = psycopg.Connection[Any]


def end(db: Db, run_id: int) -> None:
    """End the run with a result, and prune it."""
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now(), result = '\"secret\"',"
               " error = 'a secret' WHERE id = %s", [run_id])  # fmt: skip
    assert prune(db, 0) == 1


# ---- the owner of a key


@pytest.mark.few(4)
@WAYS
@pytest.mark.parametrize("policy", ["return", "reject", "replace", "keep_time"])
def test_a_key_that_another_owner_has_is_refused(key: str, policy: str, logins: Logins, db: Db) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    one(alice, f"SELECT enqueue('t', {key})")
    enqueue = f"SELECT enqueue('t', {key}, on_conflict => '{policy}')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        bob.execute(enqueue.encode())
    kind = "idempotency_key" if key == KEYS["idempotency"] else "unique_key"
    told = f'permission denied: the {kind} "k" does not belong to role "{logins.name("bob")}"'
    assert refused.value.diag.message_primary == told, "neither whose it is nor of which run"
    assert not_refused(bob, enqueue.replace("enqueue(", "enqueue_result(")) == {}
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 1


@WAYS
def test_a_key_keeps_its_owner_after_its_run_was_pruned(key: str, logins: Logins, db: Db) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    first = one(alice, f"SELECT enqueue('t', {key})")
    end(db, first)
    enqueue = f"SELECT enqueue('t', {key})"
    assert not_refused(bob, enqueue) == {}
    assert one(alice, enqueue) == first


@WAYS
def test_an_expired_key_is_free_for_any_role(key: str, logins: Logins, db: Db) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    first = one(alice, f"SELECT enqueue('t', {key})")
    db.execute("UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() - interval '1 second'")
    second = one(bob, f"SELECT enqueue('t', {key})")
    assert second != first
    assert one(db, "SELECT owner FROM pgsched.kept_keys") == logins.name("bob")
    assert not_refused(alice, f"SELECT enqueue('t', {key})") == {}


@WAYS
@pytest.mark.parametrize("undone", [False, True])
def test_an_enqueue_that_waits_for_a_key_gets_it_only_after_a_rollback(
    undone: bool, key: str, logins: Logins, db: Db
) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    enqueue = f"SELECT how FROM enqueue_result('t', {key})"
    with alice.transaction(force_rollback=undone):
        alice.execute(enqueue.encode())
        other = Aside(lambda: not_refused(bob, enqueue))
        wait_until_blocked(db, bob)
    assert other.result() == ({enqueue: "allowed"} if undone else {})


@WAYS
def test_the_members_of_a_role_share_its_keys(key: str, logins: Logins, db: Db) -> None:
    group = logins.name("group")
    db.execute(f'CREATE ROLE "{group}"; GRANT pgsched_producer TO "{group}"'.encode())
    try:
        db.execute(f'GRANT "{group}" TO "{logins.name("alice")}", "{logins.name("bob")}"'.encode())
        alice, bob = logins.connect("alice"), logins.connect("bob")
        alice.execute(f'SET ROLE "{group}"'.encode())
        first = one(alice, f"SELECT enqueue('t', {key})")
        assert one(db, "SELECT owner FROM pgsched.kept_keys") == group
        assert one(bob, f"SELECT enqueue('t', {key})") == first
        assert one(bob, "SELECT count(*) FROM kept_keys") == 1
    finally:
        db.execute(f'DROP OWNED BY "{group}"; DROP ROLE "{group}"'.encode())


@WAYS
def test_a_key_taken_in_a_security_definer_function_is_the_caller_s(key: str, logins: Logins, db: Db) -> None:
    db.execute("CREATE FUNCTION public.ask() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS"
               f" $$ SELECT pgsched.enqueue('t', {key}) $$".encode())  # fmt: skip
    db.execute(f'ALTER FUNCTION public.ask() OWNER TO "{logins.name("bob")}"'.encode())
    try:
        nobody = logins.connect("nobody")
        assert one(nobody, "SELECT public.ask()") == one(nobody, "SELECT public.ask()")
        assert one(db, "SELECT owner FROM pgsched.kept_keys") == logins.name("nobody")
        assert not_refused(logins.connect("alice"), "SELECT public.ask()") == {}
    finally:
        db.execute("DROP FUNCTION public.ask()")


@WAYS
def test_an_operator_can_use_the_key_of_any_role(key: str, logins: Logins) -> None:
    first = one(logins.connect("alice"), f"SELECT enqueue('t', {key})")
    assert one(logins.connect("ops"), f"SELECT enqueue('t', {key})") == first


@WAYS
def test_a_rejected_or_rolled_back_enqueue_keeps_no_key(key: str, logins: Logins, db: Db) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    with alice.transaction(force_rollback=True):
        alice.execute(f"SELECT enqueue('t', {key})".encode())
    one(alice, "SELECT enqueue('t', unique_key => 'u')")
    alice.execute("SELECT enqueue_result('t', unique_key => 'u', on_conflict => 'reject', idempotency_key => 'k')")
    assert one(db, "SELECT count(*) FROM pgsched.kept_keys") == 0
    assert one(bob, f"SELECT enqueue('t', {key})")


# ---- no role forges a key


def test_kept_keys_are_written_only_by_enqueueing(logins: Logins, db: Db) -> None:
    alice = logins.connect("alice")
    one(alice, "SELECT enqueue('t', idempotency_key => 'i')")
    write = [
        "INSERT INTO kept_keys (scope, key, task, expires_at) VALUES ('idempotency', 'x', 't', now() + '1 day')",
        "UPDATE kept_keys SET expires_at = now()",
        "UPDATE kept_keys SET run_id = NULL",
        "UPDATE kept_keys SET owner = current_user",
    ]
    for who in ("alice", "bob", "worker", "eye", "ops"):
        assert not_refused(logins.connect(who), *write) == {}, who
    for who in ("alice", "bob", "worker", "eye"):
        assert not_refused(logins.connect(who), "DELETE FROM kept_keys") == {}, who
    take = "SELECT take_key('idempotency', 'x', 't', now() + '1 day')"
    assert not_refused(logins.connect("eye"), take, "SELECT bind_key('idempotency', 'i', 7)") == {}


def test_an_operator_can_free_a_key(logins: Logins) -> None:
    alice, bob, ops = logins.connect("alice"), logins.connect("bob"), logins.connect("ops")
    one(alice, "SELECT enqueue('t', idempotency_key => 'i')")
    assert not_refused(bob, "SELECT enqueue('t', idempotency_key => 'i')") == {}
    assert one(ops, "DELETE FROM kept_keys WHERE key = 'i' RETURNING owner") == logins.name("alice")
    assert one(bob, "SELECT how FROM enqueue_result('t', idempotency_key => 'i')") == "created"


@pytest.mark.parametrize("bound", [False, True])
def test_the_functions_that_keep_keys_give_no_more_than_an_enqueue(bound: bool, logins: Logins, db: Db) -> None:
    """A key that was only taken stands for no run and blocks no other role. A bound key cannot be bound again."""
    alice, bob = logins.connect("alice"), logins.connect("bob")
    if bound:
        bobs = one(bob, "SELECT enqueue('t', idempotency_key => 'i')")
        alice.execute("SELECT bind_key('idempotency', 'i', NULL), bind_key('idempotency', 'i', 7)")
        assert one(bob, "SELECT how FROM enqueue_result('t', idempotency_key => 'i')") == "repeated"
        assert one(db, "SELECT run_id FROM pgsched.kept_keys") == bobs
    else:
        alice.execute("SELECT take_key('idempotency', 'i', 'other', '8000-01-01Z')")
        assert one(bob, "SELECT how FROM enqueue_result('t', idempotency_key => 'i')") == "created"
    assert one(db, "SELECT owner FROM pgsched.kept_keys") == logins.name("bob")


def test_a_key_belongs_to_the_role_that_bound_it_not_to_one_that_took_it(logins: Logins, db: Db) -> None:
    """Otherwise the role that only took the key would take the run of another role for its own."""
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bob.execute("SELECT take_key('idempotency', 'i', 't', '8000-01-01Z')")
    alice.execute("SELECT bind_key('idempotency', 'i', %s)", [one(alice, "SELECT enqueue('t')")])
    assert one(db, "SELECT owner FROM pgsched.kept_keys") == logins.name("alice")
    assert not_refused(bob, "SELECT enqueue('t', idempotency_key => 'i')") == {}


@pytest.mark.parametrize("key", ["i", "hers"], ids=["the run's key", "a key of her own"])
def test_a_key_bound_to_the_run_of_another_role_shows_nothing_of_the_run(key: str, logins: Logins, db: Db) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bobs = one(bob, "SELECT enqueue('t', idempotency_key => 'i')")
    db.execute("UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() - interval '1 second'")
    alice.execute("SELECT take_key('idempotency', %s, 't', '8000-01-01Z')", [key])
    alice.execute("SELECT bind_key('idempotency', %s, %s)", [key, bobs])
    for pruned in (False, True):
        if pruned:
            end(db, bobs)
        found = alice.execute("SELECT run_id, state, result, error FROM first_result(%s)", [key]).fetchall()
        assert found == [(bobs, None, None, None)]


# ---- no role reads the key of another role


def test_only_roles_that_saw_a_pruned_run_can_read_its_result(logins: Logins, db: Db) -> None:
    bob = logins.connect("bob")
    first = one(bob, "SELECT enqueue('t', idempotency_key => 'i')")
    end(db, first)
    read, find = "SELECT run_id, result, error FROM kept_keys", "SELECT run_id, result, error FROM first_result('i')"
    for who in ("bob", "worker", "leader", "ops", "eye"):
        conn = logins.connect(who)
        assert conn.execute(read.encode()).fetchall() == [(first, "secret", "a secret")], who
        assert conn.execute(find.encode()).fetchall() == [(first, "secret", "a secret")], who
    alice = logins.connect("alice")
    assert alice.execute(read.encode()).fetchall() == alice.execute(find.encode()).fetchall() == []
