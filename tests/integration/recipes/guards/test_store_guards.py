"""What the store promises by its locks and checks: each test takes one of them out, and shows what happens then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgsched import App
from tests.support.logins import Logins
from tests.support.recipes.bound_keys import SHORT, Db, change_function, number, open_session, put_bound
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection[Any]]
SKIP = "FOR NO KEY UPDATE SKIP LOCKED"
WAITS = "SELECT count(*) = %s FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def winners_of_a_race(db: Db, connect: Open) -> int:
    """Let two transactions overlap that create the same key; return how many of them did."""
    put = "SELECT pgsched.kv_put('app/a', '1', 0) IS NOT NULL"
    db.execute("SELECT pgsched.kv_put('app', '1')")
    first, second = connect(autocommit=False), connect()
    won = number(first, put)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(number, second, put)
        wait_until(lambda: number(db, WAITS, 1), 10, "the second one to wait")
        first.commit()
        return int(won) + int(waiting.result(10))


def test_the_lock_of_a_root_lets_one_of_two_win(db: Db, connect: Open) -> None:
    assert winners_of_a_race(db, connect) == 1


def test_without_the_lock_of_the_root_two_win(db: Db, connect: Open) -> None:
    change_function(db, "store_lock", "FOR NO KEY UPDATE")
    assert winners_of_a_race(db, connect) == 2


def race_for_a_root(logins: Logins, db: Db) -> str:
    """Let bob write under a root that alice is about to take; return what became of it."""
    alice, bob = logins.connect("alice"), logins.connect("bob")
    alice.execute("BEGIN")
    alice.execute("SELECT kv_put('new/a', '1')")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(number, bob, "SELECT kv_put('new/b', '1')")
        wait_until(lambda: number(db, WAITS, 1), 10, "bob to wait")
        alice.execute("COMMIT")
        try:
            return f"written as {waiting.result(10)}"
        except psycopg.errors.InsufficientPrivilege:
            return "refused"


def test_a_root_that_somebody_takes_meanwhile_is_refused(logins: Logins, db: Db) -> None:
    assert race_for_a_root(logins, db) == "refused"


def test_without_the_second_check_a_root_could_be_taken_from_its_owner(logins: Logins, db: Db) -> None:
    change_function(db, "kv_put", "PERFORM pgsched.check_key(key);  -- its owner is certain now")
    assert race_for_a_root(logins, db) == "written as 2"


def look_at_a_locked_root(db: Db, connect: Open) -> bool:
    """Read changes while a writer has locked the root, and a mark is to be made; return whether that was possible."""
    db.execute("SELECT pgsched.kv_put('app', '1')")
    db.execute("UPDATE pgsched.store_roots SET watched_until = clock_timestamp()")
    with connect(autocommit=False) as writer, connect() as reader:
        writer.execute("SELECT pgsched.kv_put('app', '2')")
        reader.execute("SET lock_timeout = '200ms'")
        try:
            reader.execute("SELECT * FROM pgsched.kv_changes('app', 0)")
        except psycopg.errors.LockNotAvailable:
            return False
        return True


def test_who_watches_waits_for_no_writer(db: Db, connect: Open) -> None:
    assert look_at_a_locked_root(db, connect)


def test_without_skip_locked_who_watches_would_wait_for_a_writer(db: Db, connect: Open) -> None:
    change_function(db, "kv_changes", SKIP, "FOR NO KEY UPDATE")
    assert not look_at_a_locked_root(db, connect)


def write_beside_a_renewal(app: App, db: Db, connect: Open) -> bool:
    """Write under a root while a session is renewed, but not committed yet; return whether that was possible."""
    session = open_session(db, SHORT)
    with connect(autocommit=False) as renewing, connect() as writer:
        put_bound(db, "app/a", session)
        assert number(renewing, "SELECT lease_until FROM pgsched.session_renew(%s)", session) is not None
        wait_until(lambda: app.kv.get("app/a") is None, 5, "the end of the lease that is committed")
        writer.execute("SET lock_timeout = '200ms'")
        try:
            writer.execute("SELECT pgsched.kv_put('app/b', '1')")
        except psycopg.errors.LockNotAvailable:
            return False
        db.execute("SELECT pgsched.kv_put('app/c', '1')")
        # as if the renewal had been committed sooner
        renewing.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() + interval '1 min'")
        renewing.commit()
        assert app.kv.get("app/a") is not None
        return True


def test_a_session_that_is_being_renewed_is_neither_ended_nor_waited_for(app: App, db: Db, connect: Open) -> None:
    assert write_beside_a_renewal(app, db, connect)


def test_without_skip_locked_a_writer_would_wait_for_a_renewal(app: App, db: Db, connect: Open) -> None:
    change_function(db, "store_forget", "FOR UPDATE SKIP LOCKED", "FOR UPDATE")
    assert not write_beside_a_renewal(app, db, connect)


def end_beside_a_put(db: Db, connect: Open) -> bool:
    """End a session to which somebody just binds a key; return whether that was possible."""
    session = open_session(db, "1 h")
    with connect(autocommit=False) as other, connect() as ending:
        put_bound(other, "app/a", session)
        ending.execute("SET lock_timeout = '200ms'")
        try:
            ending.execute("SELECT pgsched.session_end(%s)", [session])
        except psycopg.errors.LockNotAvailable:
            return False
        return True


def test_to_end_a_session_waits_for_nobody_who_binds_a_key_to_it(db: Db, connect: Open) -> None:
    assert end_beside_a_put(db, connect)


def test_without_skip_locked_the_end_of_a_session_would_wait(db: Db, connect: Open) -> None:
    change_function(db, "session_drop", " SKIP LOCKED")
    assert not end_beside_a_put(db, connect)


def state_after_a_dead_round(app: App, db: Db) -> tuple[bool, bool]:
    """Let the only member of a round die; return whether the next one may enter, and whether its state is gone."""
    enter = "SELECT open FROM pgsched.barrier_enter('d', gen_random_uuid(), 1, %s)"
    assert number(db, enter, open_session(db, SHORT))
    wait_until(lambda: app.kv.list("d/barrier/") == [], 5, "the end of its session")
    db.execute("SELECT pgsched.kv_changes('d', 0)")
    is_over = app.kv.get("d/barrier") is None
    return bool(number(db, enter, open_session(db))), is_over


@pytest.mark.long
def test_a_round_is_over_for_those_who_watch_it_when_all_its_members_are_dead(app: App, db: Db) -> None:
    assert state_after_a_dead_round(app, db) == (True, True)


def test_without_that_a_barrier_would_stay_open_for_ever(app: App, db: Db) -> None:
    change_function(db, "store_drop", "PERFORM pgsched.barriers_settle(store_drop.root, gone);")
    assert state_after_a_dead_round(app, db) == (False, False)


@pytest.mark.parametrize("bounded", [True, False])
def test_a_watch_of_a_restored_database_knows_that_it_skipped(app: App, db: Db, bounded: bool) -> None:
    """Without the upper bound it would wait for version 60, and take those up to it for known."""
    if not bounded:
        change_function(db, "kv_changes", "since NOT BETWEEN r.kept_after AND r.version", "since < r.kept_after")
    app.kv.put("app", 1)
    watch = app.watch("app", since=60, timeout=0)
    if bounded:
        assert next(watch).kind == "skipped"
    else:
        with pytest.raises(TimeoutError):
            next(watch)
