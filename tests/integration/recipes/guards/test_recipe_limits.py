"""What one call, one role and one name may take up: each limit is refused by name, and by nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
import pytest

from tests.support.logins import Logins
from tests.support.recipes.calls import acquire, function_without, granted, refused, session, value
from tests.support.recipes.lines import fill_line
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]
SESSION = "(SELECT token FROM pgsched.sessions LIMIT 1)"


class Limit(NamedTuple):
    """A limit of an argument: the check in its function, a call that is accepted, and one with a little too much."""

    function: str
    check: str
    most: str
    over: str
    message: str


LIMITS = {
    "a name": Limit(
        "check_name",
        "length(name) NOT BETWEEN 1 AND 200",
        "lock_break(repeat('x', 200))",
        "lock_break(repeat('x', 201))",
        "name: expected 1 to 200 characters, got 201",
    ),
    "a prefix": Limit(
        "grant_names",
        "length(prefix) NOT BETWEEN 1 AND 200",
        "grant_names(repeat('x', 200), 'pg_read_all_data')",
        "grant_names(repeat('x', 201), 'pg_read_all_data')",
        "prefix: expected 1 to 200 characters",
    ),
    "a ttl": Limit(
        "session_open",
        "ttl NOT BETWEEN '1 s' AND '1 day'",
        "session_open(gen_random_uuid(), '1 day')",
        "session_open(gen_random_uuid(), '1 day 1 s')",
        "ttl: 1 day 00:00:01 is not between",
    ),
    "a session's name": Limit(
        "session_open",
        "length(name) NOT BETWEEN 1 AND 200",
        "session_open(gen_random_uuid(), name => repeat('x', 200))",
        "session_open(gen_random_uuid(), name => repeat('x', 201))",
        "session: expected a name",
    ),
    "a capacity": Limit(
        "lock_acquire",
        "capacity NOT BETWEEN 1 AND 10000",
        "lock_acquire('a', gen_random_uuid(), capacity => 10000)",
        "lock_acquire('b', gen_random_uuid(), capacity => 10001)",
        "capacity: 10001 is out of range",
    ),
    "a note": Limit(
        "lock_acquire",
        "octet_length(note) > 65536",
        "lock_acquire('a', gen_random_uuid(), note => repeat('x', 65536))",
        "lock_acquire('b', gen_random_uuid(), note => repeat('x', 65537))",
        "note: longer than 64 KiB",
    ),
    "a wait": Limit(
        "lock_acquire",
        "wait > '365 days'",
        "lock_acquire('a', gen_random_uuid(), wait => '365 days')",
        "lock_acquire('b', gen_random_uuid(), wait => '366 days')",
        "wait: 366 days is not between",
    ),
    "tokens": Limit(
        "session_leases",
        "cardinality(tokens) > 1000",
        f"session_leases({SESSION}, array_fill(gen_random_uuid(), ARRAY[1000]))",
        f"session_leases({SESSION}, array_fill(gen_random_uuid(), ARRAY[1001]))",
        "tokens: more than 1000",
    ),
    "a key": Limit(
        "check_key",
        "length(key) NOT BETWEEN 1 AND 256",
        "kv_put(repeat('x', 256), '1')",
        "kv_put(repeat('x', 257), '1')",
        "key: expected 1 to 256 characters",
    ),
    "a value": Limit(
        "check_value",
        "octet_length(value::text) > 65536",
        "kv_put('a', to_jsonb(repeat('x', 65534)))",
        "kv_put('a', to_jsonb(repeat('x', 65535)))",
        "value: expected JSON of at most 64 KiB",
    ),
    "an amount": Limit(
        "kv_add",
        "length(amount::text) > 1000",
        "kv_add('a', ('1' || repeat('0', 999))::numeric)",
        "kv_add('a', ('1' || repeat('0', 1000))::numeric)",
        "amount: expected a number",
    ),
    "a barrier's size": Limit(
        "barrier_enter",
        "size NOT BETWEEN 1 AND 10000",
        f"barrier_enter('a', gen_random_uuid(), 10000, {SESSION})",
        f"barrier_enter('b', gen_random_uuid(), 10001, {SESSION})",
        "size: 10001 is out of range",
    ),
    "items in a call": Limit(
        "item_put_many",
        "cardinality(items) <= 10000",
        "item_put_many('a', array_fill('1'::jsonb, ARRAY[10000]))",
        "item_put_many('a', array_fill('1'::jsonb, ARRAY[10001]))",
        "items: 10001 items, at most",
    ),
    "an item": Limit(
        "item_value_error",
        "pg_column_size(value) > 1048576",
        "item_put('a', to_jsonb(repeat('x', 1000000)))",
        "item_put('a', to_jsonb(repeat('x', 1100000)))",
        "item: 1100",
    ),
    "an item's levels": Limit(
        "item_value_error",
        "jsonb_path_exists(value, 'strict $.**{201}')",
        "item_put('a', (repeat('[', 201) || repeat(']', 201))::jsonb)",
        "item_put('a', (repeat('[', 202) || repeat(']', 202))::jsonb)",
        "item: nested more than 200",
    ),
    "items got": Limit(
        "item_get",
        "most BETWEEN 1 AND 1000",
        f"item_get('a', gen_random_uuid(), {SESSION}, most => 1000)",
        f"item_get('a', gen_random_uuid(), {SESSION}, most => 1001)",
        "most: 1001 is out of range",
    ),
    "items consumed": Limit(
        "item_consume_many",
        "cardinality(ids) > 10000",
        "item_consume_many(array_fill(1::bigint, ARRAY[10000]), '{}')",
        "item_consume_many(array_fill(1::bigint, ARRAY[10001]), '{}')",
        "ids: 10001 items, at most",
    ),
}


def refusal(db: Db, call: str) -> str:
    """Return the message with which a call is refused; "" where it is not."""
    try:
        with db.transaction(force_rollback=True):
            db.execute(f"SELECT * FROM pgsched.{call}".encode())
    except psycopg.errors.CheckViolation as error:
        return error.diag.message_primary or ""
    return ""


@pytest.mark.parametrize("what", LIMITS)
def test_a_call_with_too_much_is_refused_and_without_the_check_by_nothing_else(db: Db, what: str) -> None:
    session(db)
    limit = LIMITS[what]
    assert refusal(db, limit.most) == ""
    assert refusal(db, limit.over).startswith(limit.message)
    asks_for_room = "<=" in limit.check or limit.check.startswith("most BETWEEN")
    instead = "true" if asks_for_room else "false"
    function_without(db, limit.function, limit.check, instead)
    assert not refusal(db, limit.over).startswith(limit.message)


BOUNDED = {
    "kv_list": ("SELECT count(*) FROM pgsched.kv_list('', most => 100000)", 1000, ", 1000)", ", 1050)"),
    "kv_changes": ("SELECT count(version) FROM pgsched.kv_changes('r', 0, 100000)", 1000, "least(most, 1000)", "most"),
    "lock_line": ("SELECT count(*) FROM pgsched.lock_line('a', 100000)", 10_000, "least(most, 10000)", "most"),
    "lock_list": (
        "SELECT count(*) FROM pgsched.lock_list(most => 100000, only_used => false)",
        10_000,
        "least(most, 10000)",
        "most",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("function", BOUNDED)
def test_a_list_is_bounded(db: Db, function: str) -> None:
    granted(db, "a")
    statement, most, check, instead = BOUNDED[function]
    if function.startswith("kv"):
        value(db, "SELECT count(pgsched.kv_put('r/' || n, '1')) FROM generate_series(1, 1050) n")
    elif function == "lock_line":
        fill_line(db, "a", 10_050, session(db, "1 hour"))
    else:
        db.execute("INSERT INTO pgsched.locks (name, owner) SELECT n, session_user FROM generate_series(1, 10050) n")
    assert value(db, statement) == most
    function_without(db, function, check, instead)
    assert value(db, statement) > most


def test_a_session_ends_in_steps_of_a_hundred_roots(db: Db) -> None:
    mine = session(db)
    value(db, "SELECT count(pgsched.kv_put('r' || n, '1', session => %s)) FROM generate_series(1, 105) n", mine)
    assert value(db, "SELECT pgsched.session_end(%s)", mine) == 5
    assert value(db, "SELECT pgsched.session_end(%s)", mine) == 0


# ---- what a role may have


ROOMS = {
    "sessions": (10_000, "SELECT pgsched.session_open(gen_random_uuid(), '1 hour')",
                 "INSERT INTO pgsched.sessions (token, name, owner, ttl, lease_until)"
                 " SELECT gen_random_uuid(), 'x', %s, '1 hour', now() + interval '1 hour' FROM generate_series(1, %s)"),
    "locks": (100_000, "SELECT pgsched.lock_acquire(gen_random_uuid()::text, gen_random_uuid())",
              "INSERT INTO pgsched.locks (owner, name) SELECT %s, 'l' || n FROM generate_series(1, %s) n"),
    "store_roots": (10_000, "SELECT pgsched.kv_put(gen_random_uuid()::text, '1')",
                    "INSERT INTO pgsched.store_roots (owner, root) SELECT %s, 'r' || n FROM generate_series(1, %s) n"),
    "item_queues": (100_000, "SELECT pgsched.item_put(gen_random_uuid()::text, '1')",
                    "INSERT INTO pgsched.item_queues (owner, name) SELECT %s, 'q' || n FROM generate_series(1, %s) n"),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ROOMS)
def test_a_role_may_have_so_many_and_is_counted_seldom(db: Db, logins: Logins, what: str) -> None:
    most, add, fill = ROOMS[what]
    db.execute(f"ALTER DATABASE {db.info.dbname} SET track_functions = 'pl'".encode())
    alice, bob = logins.connect("alice"), logins.connect("bob")
    for _ in range(100):
        value(alice, add)
    alice.close()
    counts = "SELECT sum(calls)::int FROM pg_stat_user_functions WHERE funcname = 'rows_of_role'"
    wait_until(lambda: value(db, counts), 10, "the statistics")
    assert value(db, counts) == (3 if what == "locks" else 1), "a lock has a session and a place, too"
    alice = logins.connect("alice")
    db.execute(fill.encode(), [logins.name("alice"), most - 101])
    assert refused(alice, add) == "not refused"
    db.execute(fill.replace("'l'", "'m'").replace("'r'", "'s'").replace("'q'", "'p'").encode(),
               [logins.name("alice"), most // 100 + 1])  # fmt: skip
    assert refused(alice, add) == "23514"
    assert refused(alice, add) == "23514"
    assert refused(bob, add) == "not refused"
    function_without(db, "has_room", "IF counted > most THEN", "IF false THEN")
    assert refused(alice, add) == "not refused"


def test_a_role_that_keeps_an_older_snapshot_notes_no_count(db: Db, logins: Logins) -> None:
    """It has missed what was added since."""
    alice, add = logins.connect("alice"), "SELECT pgsched.kv_put(gen_random_uuid()::text, '1')"
    for guarded in (True, False):
        if not guarded:
            function_without(db, "has_room", "current_setting('transaction_isolation') = 'read committed'", "true")
        alice.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        value(alice, add)
        alice.execute("COMMIT")
        assert value(db, "SELECT count(*) FROM pgsched.role_room") == (0 if guarded else 1)


def test_a_transaction_that_counts_makes_nobody_wait(db: Db, logins: Logins) -> None:
    """Each notes what it has counted in a row of its own."""
    one, two = logins.connect("alice"), logins.connect("alice")
    add = "SELECT pgsched.session_open(gen_random_uuid())"
    two.execute("SET lock_timeout = '300 ms'")
    for guard, result in (("", "not refused"), ("", "not refused"), (" SKIP LOCKED", "55P03")):
        if guard:
            function_without(db, "has_room", guard)
        one.execute("BEGIN")
        value(one, add)
        assert refused(two, add) == result
        one.execute("COMMIT")
        assert value(db, "SELECT count(*) FROM pgsched.role_room") > 0
        db.execute("UPDATE pgsched.role_room SET room_until = 0")


@pytest.mark.long
def test_all_places_of_a_role_are_counted_not_only_the_first_of_each_line(db: Db) -> None:
    """A hundred thousand names with a hundred places each are ten million rows."""
    mine = session(db, "1 hour")
    for n in range(5):
        granted(db, f"l{n}", session=mine)
        fill_line(db, f"l{n}", 19_999 if n else 20_000, mine)
    db.execute("UPDATE pgsched.role_room SET room_until = 0")
    with pytest.raises(psycopg.errors.CheckViolation, match="holds or waits for 100000 locks"):
        acquire(db, "l1", session=mine, wait="1 hour")


def test_a_list_of_used_locks_does_not_read_the_places_of_each_unused_one(db: Db) -> None:
    db.execute("INSERT INTO pgsched.locks (name, owner) SELECT 'l' || n, session_user FROM generate_series(1, 20000) n")
    db.execute("ANALYZE pgsched.locks, pgsched.lock_places")
    granted(db, "l7")
    read = "SELECT idx_scan FROM pg_stat_xact_user_tables WHERE relname = 'lock_places'"
    with db.transaction():
        assert value(db, "SELECT array_agg(name) FROM pgsched.lock_list()") == ["l7"]
        assert value(db, read) < 100
