"""What locks promise by row locks, marks and checks: each test takes one of them out, and shows what happens then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.logins import Logins
from tests.support.recipes.calls import acquire, function_without, granted, refused, release, session, value
from tests.support.recipes.lines import asserted, fences
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
WAITS = {"wait": "1 hour"}
CHANGING = (
    "UPDATE pgsched.locks k SET used_at = clock_timestamp(), kind = coalesce(lock_take_row.kind, k.kind)\n"
    "        WHERE k.name = lock_take_row.name RETURNING * INTO l;",
    "SELECT * INTO l FROM pgsched.locks k WHERE k.name = lock_take_row.name FOR UPDATE;",
)
COUNTING = (
    "UPDATE pgsched.locks k SET last_place = k.last_place + 1, capacity = lock_acquire.capacity\n"
    "        WHERE k.name = lock_acquire.name RETURNING * INTO l;",
    "l.last_place := (random() * 1e9)::bigint;",
)
ENDING = (
    "UPDATE pgsched.sessions s SET ended_at = moment WHERE s.id = (\n"
    "                SELECT e.id FROM pgsched.sessions e"
    " WHERE e.id = p.session AND e.ended_at IS NULL AND e.lease_until <= moment\n"
    "                FOR NO KEY UPDATE SKIP LOCKED) RETURNING s.ended_at INTO p.ended_at;"
)
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SKIP = "FOR NO KEY UPDATE SKIP LOCKED"
WITH_AND_WITHOUT = pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])


def lease_over(db: Db, token: UUID) -> None:
    """Let the time of a session be over, as others see it."""
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = %s", [token])


@WITH_AND_WITHOUT
def test_without_a_change_of_the_row_of_a_lock_an_older_snapshot_gives_it_again(
    db: Db, connect: Connect, guarded: bool
) -> None:
    """A semaphore has no index that keeps two from holding it."""
    if not guarded:
        function_without(db, "lock_take_row", *CHANGING)
        function_without(db, "lock_acquire", *COUNTING)
    token = uuid4()
    db.execute("INSERT INTO pgsched.locks (name, owner, capacity) VALUES ('a', session_user, 1)")
    with connect(autocommit=False) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM pgsched.lock_places")
        granted(db, "a", token, capacity=1)
        if guarded:
            with pytest.raises(psycopg.errors.SerializationFailure):
                acquire(old, "a", capacity=1)
        else:
            granted(old, "a", capacity=1)
            old.commit()
            assert len(fences(db)) == 2


@WITH_AND_WITHOUT
def test_without_the_end_of_a_session_in_its_row_a_renewal_makes_two_holders(
    db: Db, connect: Connect, guarded: bool
) -> None:
    """A renewal that was sent in time, and is committed late, has locked the row: until then nobody knows."""
    if not guarded:
        function_without(db, "lock_settle", ENDING, "p.ended_at := moment;")
    mine = session(db, "1 min")
    fence = granted(db, session=mine)
    with connect(autocommit=False) as late:
        lease_over(db, mine)
        # as a renewal does that was sent before
        late.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() + ttl WHERE token = %s", [mine])
        assert (acquire(db).fence is None) is guarded
        late.commit()
    assert asserted(db, fence) is guarded
    assert value(db, "SELECT ended_at IS NULL FROM pgsched.sessions WHERE token = %s", mine), "it lives"


@WITH_AND_WITHOUT
def test_without_skip_locked_a_granter_waits_for_a_renewal(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "lock_settle", SKIP, "FOR NO KEY UPDATE")
    mine = session(db, "1 min")
    granted(db, session=mine)
    lease_over(db, mine)
    with connect(autocommit=False) as renewing:
        renewing.execute("SELECT FROM pgsched.sessions WHERE token = %s FOR NO KEY UPDATE", [mine])
        db.execute("SET lock_timeout = '300 ms'")
        assert refused(db, "SELECT pgsched.lock_acquire('a', gen_random_uuid(), wait => '1 hour')") == (
            "not refused" if guarded else "55P03"
        )


@pytest.mark.parametrize("function", ["session_end", "sweep_sessions", "session_leases"])
@WITH_AND_WITHOUT
def test_without_skip_locked_the_end_of_a_session_and_a_look_wait_for_who_has_locked_a_line(
    db: Db, connect: Connect, function: str, guarded: bool
) -> None:
    if not guarded:
        function_without(
            db, "session_leases" if function == "session_leases" else "leave_lines", SKIP, "FOR NO KEY UPDATE"
        )
    mine, token = session(db, "1 min"), uuid4()
    granted(db, ttl="1 min")
    acquire(db, "a", token, session=mine, **WAITS)
    end = "UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE (token = %s) = %s"
    db.execute(end, [mine, function == "sweep_sessions"])
    call = {
        "session_end": f"SELECT pgsched.session_end('{mine}')",
        "sweep_sessions": "SELECT pgsched.sweep_sessions(10)",
        "session_leases": f"SELECT * FROM pgsched.session_leases('{mine}', ARRAY['{token}']::uuid[])",
    }[function]
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.locks FOR UPDATE")
        db.execute("SET lock_timeout = '300 ms'")
        assert refused(db, call) == ("not refused" if guarded else "55P03")


@WITH_AND_WITHOUT
def test_without_skip_locked_a_sweep_waits_for_a_renewal(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(
            db, "sweep_sessions", "LIMIT most FOR NO KEY UPDATE SKIP LOCKED", "LIMIT most FOR NO KEY UPDATE"
        )
    mine = session(db)
    lease_over(db, mine)
    with connect(autocommit=False) as renewing:
        renewing.execute("SELECT FROM pgsched.sessions FOR NO KEY UPDATE")
        db.execute("SET lock_timeout = '300 ms'")
        assert refused(db, "SELECT pgsched.sweep_sessions(10)") == ("not refused" if guarded else "55P03")


@WITH_AND_WITHOUT
def test_without_skip_locked_a_break_waits_for_whoever_asserts(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "lock_leave", " SKIP LOCKED")
    fence = granted(db)
    with connect(autocommit=False) as asserting:
        asserting.execute("SELECT pgsched.assert_lock('a', %s)", [fence])
        db.execute("SET lock_timeout = '300 ms'")
        assert refused(db, "SELECT pgsched.lock_break('a')") == ("not refused" if guarded else "55P03")


@WITH_AND_WITHOUT
def test_without_the_mark_a_grant_that_was_broken_while_it_was_asserted_counts_on(
    db: Db, connect: Connect, guarded: bool
) -> None:
    if not guarded:
        function_without(db, "lock_leave", "SET left_at = clock_timestamp()", "SET left_at = NULL")
    fence = granted(db)
    with connect(autocommit=False) as asserting:
        asserting.execute("SELECT pgsched.assert_lock('a', %s)", [fence])
        db.execute("SELECT pgsched.lock_break('a')")
        assert asserted(db, fence) is not guarded


@WITH_AND_WITHOUT
def test_without_the_loss_a_renewal_says_nothing_of_a_broken_lock(db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(
            db,
            "lock_break",
            "INSERT INTO pgsched.lock_losses VALUES (broken.session, broken.fence) ON CONFLICT DO NOTHING;",
        )
    mine = session(db)
    granted(db, session=mine)
    db.execute("SELECT pgsched.lock_break('a')")
    found = value(db, "SELECT (pgsched.session_renew(%s)).losses", mine)
    assert found == (1 if guarded else 0)


@WITH_AND_WITHOUT
def test_without_the_leap_a_restored_database_gives_fences_again(db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(
            db, "restored", "nextval('pgsched.fences'::regclass) + 4294967296", "nextval('pgsched.fences'::regclass)"
        )
    fence = granted(db)
    db.execute("SELECT pgsched.restored()")
    assert (granted(db) > fence + 2**32) is guarded


@WITH_AND_WITHOUT
def test_without_its_end_a_session_of_before_the_restore_lives_on(db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(
            db, "restored", "UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.ended_at IS NULL;"
        )
    fence = granted(db)
    db.execute("SELECT pgsched.restored()")
    assert asserted(db, fence) is not guarded


@WITH_AND_WITHOUT
def test_without_the_hint_who_is_next_is_not_told(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "lock_settle", "PERFORM pgsched.tell_session(p.session, p.token);")
    mine, holder = session(db), uuid4()
    granted(db, "a", holder)
    acquire(db, "a", uuid4(), session=mine, **WAITS)
    with connect() as ear:
        ear.execute(
            f"LISTEN pgsched_session_{value(db, 'SELECT id FROM pgsched.sessions WHERE token = %s', mine)}".encode()
        )
        release(db, holder)
        assert len(list(ear.notifies(timeout=5 if guarded else 0.2, stop_after=1))) == int(guarded)


@WITH_AND_WITHOUT
def test_without_a_time_limit_a_call_waits_for_whoever_has_locked_the_line(
    db: Db, connect: Connect, guarded: bool
) -> None:
    if not guarded:
        function_without(db, "wait_for_rows", "PERFORM set_config('lock_timeout',", "PERFORM concat('lock_timeout',")
    granted(db)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.locks FOR UPDATE")
        db.execute("SET statement_timeout = '2 s'")
        assert refused(db, "SELECT pgsched.lock_acquire('a', gen_random_uuid())") == ("55P03" if guarded else "57014")


# ---- whose a name is


@WITH_AND_WITHOUT
def test_without_the_check_of_the_name_anybody_takes_a_lock_of_another(logins: Logins, db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(db, "check_name", "ELSIF NOT pgsched.may_use(name, owner) THEN", "ELSIF false THEN")
    alice, bob = logins.connect("alice"), logins.connect("bob")
    token = uuid4()
    granted(alice, "a", token)
    release(alice, token)
    calls = [f"SELECT pgsched.{call}" for call in (
        "lock_acquire('a', gen_random_uuid())", "lock_break('a')", "lock_line('a')",
    )]  # fmt: skip
    assert {refused(bob, call) for call in calls} == {"42501" if guarded else "not refused"}


@WITH_AND_WITHOUT
def test_without_the_grants_a_granted_name_is_everybody_s_that_is_first(logins: Logins, db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(
            db,
            "may_use",
            "WHERE starts_with(may_use.name, g.prefix))\n            THEN",
            "WHERE false)\n            THEN",
        )
    ops, bob = logins.connect("ops"), logins.connect("bob")
    value(ops, "SELECT pgsched.grant_names('pay/', %s)", logins.name("alice"))
    calls = [f"SELECT pgsched.{call}" for call in (
        "lock_acquire('pay/a', gen_random_uuid())", "kv_put('pay/a', '1')", "item_put('pay/a', '1')",
        "node_create('pay', 'b', '1', makepath => true)",
    )]  # fmt: skip
    granted(logins.connect("alice"), "pay/a")
    assert {refused(bob, call) for call in calls[1:]} == {"42501" if guarded else "not refused"}
    assert refused(bob, calls[0]) == "42501"


@WITH_AND_WITHOUT
def test_without_the_second_check_a_new_name_could_be_taken_from_its_owner(
    logins: Logins, db: Db, guarded: bool
) -> None:
    """Bob asks while nobody has the name, and gets its row when it is alice's."""
    if not guarded:
        function_without(db, "lock_acquire", "IF l.owner IS DISTINCT FROM checked THEN", "IF false THEN")
    alice, bob = logins.connect("alice"), logins.connect("bob")
    alice.execute("BEGIN")
    granted(alice, "a")
    bob.execute("SET statement_timeout = '10 s'")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(refused, bob, "SELECT pgsched.lock_acquire('a', gen_random_uuid(), wait => '1 hour')")
        wait_until(lambda: value(db, BLOCKED), 10, "bob to wait")
        alice.execute("COMMIT")
        assert asked.result(20) == ("42501" if guarded else "not refused")


def test_readers_write_nothing_of_any_recipe(logins: Logins, db: Db) -> None:
    """EXECUTE is revoked: with it, the functions would run with the rights of the tables' owner."""
    eye = logins.connect("eye")
    calls = [f"SELECT pgsched.{call}" for call in (
        "kv_put('a', '1')", "kv_delete('a')", "kv_add('a', 1)",
        "barrier_enter('a', gen_random_uuid(), 1, gen_random_uuid())",
        "barrier_leave('a', gen_random_uuid(), 1)", "barrier_withdraw('a', gen_random_uuid())",
        "item_put('a', '1')", "item_put_many('a', '{1}')", "item_get('a', gen_random_uuid())",
        "item_consume(1, gen_random_uuid())", "item_consume_many('{1}', ARRAY[gen_random_uuid()])",
        "item_give_back(1, gen_random_uuid())", "item_extend(1, gen_random_uuid())",
        "item_leave('a', gen_random_uuid(), gen_random_uuid())", "node_create(NULL, 'a', '1')", "node_set('a', '1')",
        "node_delete('a')", "node_prune('a')", "lock_renew('a', gen_random_uuid())", "prune_locks('', 1)",
        "prune_roots('', 1)", "sweep_sessions(1)", "revoke_names('a', 'pgsched_viewer')",
    )]  # fmt: skip
    assert {call: refused(eye, call) for call in calls} == dict.fromkeys(calls, "42501")
    callable_ones = db.execute(
        "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'pgsched'::regnamespace AND p.prosecdef"
        " AND p.proname ~ '^(kv|barrier|item|node|lock|session|prune|sweep)_'"
        " AND has_function_privilege('pgsched_viewer', p.oid, 'EXECUTE') ORDER BY 1"
    ).fetchall()
    reading = {"kv_get", "kv_list", "kv_changes", "item_counts", "node_read", "node_roots", "lock_line", "lock_list"}
    assert {name for (name,) in callable_ones} == reading
