"""Sessions: one renewal for all that hangs on one, which nobody can delay; and what they may fill."""

from __future__ import annotations

import select
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable, LeaseLost
from pgsched.chaos.site.proxy import Proxy
from pgsched.db.queries.recipes import locks
from pgsched.recipes.sessions import keeper_thread, lease_care
from tests.support.logins import Logins
from tests.support.recipes.calls import acquire, granted, refused, session, value
from tests.support.recipes.lines import another, asserted, fences, in_threads, line, running, said, wait_in_line
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
KEEPERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name LIKE 'pgsched leases%' AND datname = current_database()"
)


def renewals(db: Db, count: int) -> None:
    """Wait until the only session was renewed so many times."""
    lease = "SELECT max(lease_until) FROM pgsched.sessions"
    for _ in range(count):
        before = value(db, lease)
        wait_until(lambda before=before: value(db, lease) > before, 30, "a renewal")  # type: ignore[misc]


@pytest.mark.long
def test_ten_thousand_locks_are_renewed_by_one_write(app: App, db: Db) -> None:
    first = app.lock("first", ttl=2).acquire()
    db.execute("""
        INSERT INTO pgsched.locks (name, owner) SELECT 'l' || n, session_user FROM generate_series(1, 10000) n;
        INSERT INTO pgsched.lock_places (lock, place, session, token, mode, fence, granted_at)
        SELECT 'l' || n, 1, s.id, gen_random_uuid(), 'exclusive', nextval('pgsched.fences'), now()
        FROM generate_series(1, 10000) n, pgsched.sessions s""")
    renewals(db, 1)
    written = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::int FROM pg_stat_user_tables WHERE schemaname = 'pgsched'"

    def writes() -> int:
        value(db, "SELECT pg_stat_clear_snapshot()")
        return int(value(db, written))

    wait_until(lambda: writes() >= 20_000, 10, "the statistics")
    before = writes()
    renewals(db, 3)
    wait_until(lambda: writes() - before >= 3, 10, "the statistics")
    assert writes() - before <= 6
    assert first.is_held
    app.close()
    assert value(db, "SELECT count(*) FROM pgsched.lock_places") == 0


def test_all_locks_with_one_ttl_hang_on_one_session(app: App, db: Db) -> None:
    with app.lock("a"), app.lock("b"), app.semaphore("c", 3), app.election("d"), app.lock("e", ttl=60):
        assert value(db, "SELECT array_agg(ttl::text ORDER BY ttl) FROM pgsched.sessions") == ["00:00:30", "00:01:00"]
        assert value(db, KEEPERS) == 1, "one connection for all"


def test_threads_that_open_a_session_at_the_same_time_open_one(dsn: str, db: Db) -> None:
    with another(dsn, 3) as apps, ThreadPoolExecutor(12) as pool:
        held = list(pool.map(lambda n: apps[n % 3].lock(f"l{n}").acquire(), range(12)))
        assert value(db, "SELECT count(*) FROM pgsched.sessions") == 3
        for one in held:
            one.release()


@pytest.mark.long
def test_an_unused_session_ends_and_the_next_use_opens_another(
    app: App, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_care, "IDLE_S", 0.2)
    others = {*threading.enumerate()}  # those of other tests
    with app.lock("a", ttl=60):
        assert value(db, "SELECT count(*) FROM pgsched.sessions") == 1
    wait_until(lambda: value(db, "SELECT count(*) FROM pgsched.sessions") == 0, 10)
    wait_until(
        lambda: not [one for one in threading.enumerate() if one.name == "pgsched-leases" and one not in others], 10
    )
    wait_until(lambda: value(db, KEEPERS) == 0, 10)
    for _ in range(30):  # while the thread ends, and after
        with app.lock("a", ttl=60) as mine:
            assert mine.is_held
        time.sleep(0.02)


@pytest.mark.long
def test_a_process_that_stood_still_past_its_ttl_has_lost_what_it_had(dsn: str, app: App, db: Db) -> None:
    text = """
lock = app.lock('a', ttl=1)
try:
    with lock:
        say(lock.fence)
        sys.stdin.readline()
        say(lock.is_held, lock.lost)
        say(lock.wait_lost(10))
except LeaseLost:
    say('lost')
"""
    with running(dsn, text) as process:
        fence = int(said(process))
        process.send_signal(signal.SIGSTOP)
        with app.lock("a", timeout=20) as mine:
            assert mine.fence > fence
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert [said(process) for _ in range(3)] == ["False True", "True", "lost"]
            assert mine.is_held and fences(db) == [mine.fence]


@pytest.mark.long
def test_it_counts_as_lost_before_the_database_can_give_it_on(app: App, dsn: str, db: Db) -> None:
    """The connections are silent: nobody tells the holder. Its own clock does."""
    with Proxy(dsn) as proxy, another(proxy.dsn) as (far,):
        mine = far.lock("a", ttl=2).acquire()
        proxy.silence("up", "down")
        with in_threads(app.lock("a"), timeout=30) as (waits,):
            assert mine.wait_lost(10)
            assert not waits.done() and asserted(db, fences(db)[0]), "the lease goes on for a moment"
            waits.result(10).release()
        with pytest.raises(LeaseLost, match="was not renewed within 2 s"):
            mine.release()
        proxy.heal()


@pytest.mark.long
def test_a_cut_connection_costs_no_lock(dsn: str, db: Db) -> None:
    with Proxy(dsn) as proxy, another(proxy.dsn) as (far,), far.lock("a", ttl=9) as mine:
        for _ in range(5):
            wait_until(lambda: value(db, KEEPERS) == 1, 10)
            proxy.cut()
        proxy.refuse()
        time.sleep(1)  # an outage
        proxy.heal()
        renewals(db, 2)
        assert mine.is_held


def test_who_waits_is_found_although_the_notification_was_lost(dsn: str, app: App, db: Db) -> None:
    """The connection that listens is cut while the lock is given on."""
    with Proxy(dsn) as proxy, another(proxy.dsn) as (far,):
        mine = app.lock("a").acquire()
        with in_threads(far.lock("a", ttl=3600), timeout=60) as (waits,):
            wait_in_line(db, 2)
            hears = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            wait_until(lambda: value(db, hears) == 2, 10)
            proxy.refuse()
            proxy.cut()
            mine.release()
            assert line(db) == [True]
            proxy.heal()
            waits.result(10).release()


def test_nobody_delays_a_renewal(db: Db, connect: Connect, logins: Logins) -> None:
    """Neither who breaks a lock in a transaction that goes on, nor who has the line, the place or the names locked."""
    alice = logins.connect("alice")
    mine, holder = session(alice, "1 min"), uuid4()
    fence = granted(alice, "a", holder, session=mine)
    granted(alice, "b", session=mine)
    renew = "SELECT (pgsched.session_renew(%s)).losses"
    alice.execute("SET lock_timeout = '100 ms'")
    ops, second = logins.connect("ops"), connect(autocommit=False)
    with ops.transaction(force_rollback=True):
        assert value(ops, "SELECT pgsched.lock_break('a')") == 1
        assert value(alice, renew, mine) == 0
    second.execute("SELECT pgsched.assert_lock('a', %s)", [fence])
    second.execute("SELECT FROM pgsched.locks, pgsched.lock_places FOR UPDATE")
    acquire(second, "c", session=mine)
    assert value(alice, renew, mine) == 0
    second.rollback()
    assert value(ops, "SELECT pgsched.lock_break('a')") == 1
    assert value(alice, renew, mine) == fence


@pytest.mark.long
def test_a_session_that_cannot_be_renewed_for_a_while_delays_no_other_one(app: App, db: Db, connect: Connect) -> None:
    slow, quick = app.lock("a", ttl=3).acquire(), app.lock("b", ttl=2)
    with quick:
        assert slow.is_held
        other = connect(autocommit=False)
        other.execute("SELECT FROM pgsched.sessions WHERE ttl = '3 s' FOR UPDATE")
        lease = "SELECT lease_until FROM pgsched.sessions WHERE ttl = '2 s'"
        for _ in range(4):  # the other one is due with the second of them
            before = value(db, lease)
            wait_until(lambda before=before: value(db, lease) > before, 5)  # type: ignore[misc]
        assert quick.is_held
        other.rollback()


def test_a_role_has_ten_thousand_sessions_at_most(db: Db, logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    session(alice)
    db.execute(
        "INSERT INTO pgsched.sessions (token, name, owner, ttl, lease_until)"
        " SELECT gen_random_uuid(), 'x', %s, '1 min', clock_timestamp() + interval '1 min'"
        " FROM generate_series(2, 10000)",
        [logins.name("alice")],
    )
    assert refused(alice, "SELECT pgsched.session_open(gen_random_uuid())") == "23514"
    assert refused(alice, "SELECT pgsched.lock_acquire('a', gen_random_uuid())") == "23514"
    session(bob)
    db.execute(
        "UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE id IN (SELECT min(id) FROM pgsched.sessions)"
    )
    session(alice)  # those whose time is over make room


def test_a_role_has_a_hundred_thousand_names_and_forgets_unused_ones(db: Db, logins: Logins) -> None:
    alice = logins.connect("alice")
    fill = """INSERT INTO pgsched.locks (name, owner, used_at)
        SELECT 'l' || n, %s, clock_timestamp() - %s::interval FROM generate_series(1, 100000) n"""
    db.execute(fill, [logins.name("alice"), "10 min"])
    assert refused(alice, "SELECT pgsched.lock_acquire('new', gen_random_uuid())") == "23514"
    assert granted(alice, "l7"), "a name that there is"
    assert granted(logins.connect("bob"), "his")
    db.execute(
        "UPDATE pgsched.locks SET used_at = clock_timestamp() - interval '2 hours' WHERE name IN ('l7', 'l8', 'l9')"
    )
    assert granted(alice, "new")
    left = "SELECT array_agg(name ORDER BY name) FROM pgsched.locks WHERE name IN ('l7', 'l8', 'l9', 'l10')"
    assert value(db, left) == ["l10", "l7"], "l7 is held"
    granted(alice, "new2")
    db.execute("UPDATE pgsched.role_room SET room_until = 0")  # as if a thousand more had been added
    assert refused(alice, "SELECT pgsched.lock_acquire('new3', gen_random_uuid())") == "23514"


@pytest.mark.long
def test_a_flood_of_notifications_does_not_keep_the_thread_from_renewing(app: App, db: Db, logins: Logins) -> None:
    """Any role may notify on any channel. What names no place of the session costs no statement."""
    bob, over = logins.connect("bob"), threading.Event()
    with app.lock("a", ttl=2) as mine:
        mine_id = value(db, "SELECT id FROM pgsched.sessions")
        db.execute(f"ALTER DATABASE {db.info.dbname} SET track_functions = 'pl'".encode())

        def flood() -> None:
            while not over.is_set():
                bob.execute(
                    "SELECT count(pg_notify('pgsched_session_' || %s, n || repeat('x', 100)))"
                    " FROM generate_series(1, 1000) n",
                    [mine_id],
                )

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            renewals(db, 6)
        finally:
            over.set()
            flooding.join()
        assert mine.is_held
        assert select.select([], [], [], 0) == ([], [], [])


@pytest.mark.long
def test_a_flood_for_one_place_costs_few_looks(app: App, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of a place is no secret: whoever may listen to the channel hears it."""
    looks = []
    read = locks.read_leases
    monkeypatch.setattr(locks, "read_leases", lambda *given: looks.append(1) or read(*given))
    mine = app.lock("a").acquire()
    with in_threads(app.lock("a")) as (waits,):
        wait_in_line(db, 2)
        channel, mark = db.execute(
            "SELECT 'pgsched_session_' || session, left(token::text, 18) FROM pgsched.lock_places WHERE fence IS NULL"
        ).fetchone() or ("", "")
        began = time.monotonic()
        while time.monotonic() < began + 1:
            db.execute("SELECT pg_notify(%s, %s)", [channel, mark])
        assert len(looks) < 80
        mine.release()
        waits.result(30).release()


def test_the_end_of_many_sessions_is_swept_in_steps_and_never_waits(db: Db, connect: Connect) -> None:
    tokens = [uuid4() for _ in range(6)]
    waiters = [uuid4() for _ in range(6)]
    for n, token in enumerate(tokens):
        granted(db, f"l{n}", token)
        acquire(db, f"l{n}", waiters[n], wait="1 hour")
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = ANY (%s)", [tokens])
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.locks WHERE name = 'l3' FOR UPDATE")
        other.execute("SELECT FROM pgsched.sessions WHERE token = %s FOR UPDATE", [tokens[4]])
        db.execute("SET lock_timeout = '1 s'")
        assert value(db, "SELECT pgsched.sweep_sessions(2)") == 2
        assert value(db, "SELECT pgsched.sweep_sessions(100)") == 3
        held = "SELECT count(*)::int FROM pgsched.lock_places WHERE fence IS NOT NULL AND token = ANY (%s)"
        assert (value(db, held, waiters), value(db, held, tokens)) == (4, 2)
    value(db, "SELECT pgsched.sweep_sessions(100)")
    assert (value(db, held, waiters), value(db, held, tokens)) == (6, 0)
    assert value(db, "SELECT count(*) FROM pgsched.sessions") == 6


@pytest.mark.long
def test_leases_are_renewed_where_no_second_connection_is_to_be_had(
    app: App, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notifications come by a connection of their own, which a limit of connections may refuse."""
    refused = []

    def connect(dsn: str, *, purpose: str, **more: Any) -> Any:
        if purpose == "hints" and len(refused) < 2:
            refused.append(purpose)
            raise DatabaseUnreachable("too many connections for role")
        return open_connection(dsn, purpose=purpose, **more)

    open_connection = keeper_thread.connect
    monkeypatch.setattr(keeper_thread, "connect", connect)
    monkeypatch.setattr(keeper_thread, "LISTEN_AGAIN_S", 0.5)
    with app.lock("a", ttl=1.5) as lock:
        wait_until(lambda: len(refused) == 2, what="a second try")
        lease = "SELECT lease_until FROM pgsched.sessions"
        before = value(db, lease)
        wait_until(lambda: value(db, lease) > before, what="a renewal")
        assert not lock.lost
        hears = KEEPERS.replace("leases", "hints") + " AND query LIKE 'LISTEN%'"
        wait_until(lambda: value(db, hears) == 1, what="notifications to come")


def test_what_is_taken_away_before_the_process_listens_is_noticed(
    app: App, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_listen, listen_to = threading.Event(), keeper_thread.listen_to

    def listen_late(*args: Any) -> None:
        assert may_listen.wait(30)
        listen_to(*args)

    monkeypatch.setattr(keeper_thread, "listen_to", listen_late)
    lock = app.lock("a", ttl=3600).acquire()
    value(db, "SELECT pgsched.lock_break('a')")
    may_listen.set()
    assert lock.wait_lost(30)
