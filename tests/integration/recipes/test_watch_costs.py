"""Watches cost little: one query for a root that has changed, none while nothing happens, and no lock for a reader."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.db.enqueuer import Enqueuer
from pgsched.db.queries.recipes import store
from pgsched.recipes import feeds, watches
from pgsched.recipes.watch import Watch
from tests.support.logins import Logins
from tests.support.recipes.bound_keys import SHORT, Db, number, open_session, put_bound
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection[Any]]
CHANNEL = "SELECT pgsched.store_channel('app')"


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only notifications tell of changes."""
    monkeypatch.setattr(feeds, "LOOK_AT_LEAST_S", 3600.0)


@pytest.fixture
def watched(dsn: str) -> Iterator[watches.Watches]:
    database = Enqueuer(lambda: dsn)
    found = watches.Watches(database)
    yield found
    found.close()
    database.close()


def test_changes_are_notified_while_somebody_watches(app: App, db: Db, connect: Open) -> None:
    listener = connect()
    listener.execute(f"LISTEN {number(db, CHANNEL)}".encode())
    app.kv.put("app", 1)
    assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1, "whoever watched it before it was there"
    db.execute("UPDATE pgsched.store_roots SET watched_until = clock_timestamp()")
    app.kv.put("app", 2)
    assert list(listener.notifies(timeout=0.2)) == []
    db.execute("SELECT * FROM pgsched.kv_changes('app', 0)")
    app.kv.put("app", 3)
    assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1


def test_nothing_is_watched_any_more_after_a_break(watched: watches.Watches, app: App) -> None:
    for _ in range(2):
        app.kv.put("app", 1)
    for change in Watch(watched, "app", since=0):
        assert change.version == 1
        break
    gc.collect()
    assert watched.feeds() == {}
    assert next(Watch(watched, "app", since=1)).version == 2


@pytest.mark.long
def test_a_thousand_watches_of_a_root_make_one_query_per_change(
    watched: watches.Watches, app: App, monkeypatch: pytest.MonkeyPatch, no_looks: None
) -> None:
    looks: list[str] = []
    follow, read = store.follow_changes, store.read_changes

    def follow_counted(conn: Any, prefix: str, since: int) -> store.Changes:
        looks.append(f"follow {prefix}")
        return follow(conn, prefix, since)

    def read_counted(conn: Any, prefix: str, since: int | None) -> store.Changes:
        looks.append(f"read {prefix}")
        return read(conn, prefix, since)

    some = [Watch(watched, "app/x" if n % 2 else f"app/{n}", timeout=20) for n in range(1000)]
    for watch in some:
        watch.begin()
    monkeypatch.setattr(store, "follow_changes", follow_counted)
    monkeypatch.setattr(store, "read_changes", read_counted)
    for value in range(3):
        app.kv.put("app/x", value)
        assert {next(watch).value for watch in some[1::2]} == {value}
    put_all = [app.kv.put(f"app/{n}", n) for n in range(0, 1000, 200)]
    assert [next(some[n]).value for n in range(0, 1000, 200)] == [*range(0, 1000, 200)]
    assert "read" not in " ".join(looks)
    assert len(looks) <= 3 + len(put_all) + 1


def test_an_idle_watch_asks_nothing(watched: watches.Watches, monkeypatch: pytest.MonkeyPatch, no_looks: None) -> None:
    looks: list[str] = []
    follow = store.follow_changes
    monkeypatch.setattr(
        store, "follow_changes", lambda conn, *asked: (looks.append(str(asked)), follow(conn, *asked))[1]
    )
    idle = Watch(watched, "idle", timeout=0.5)
    idle.begin()
    wait_until(lambda: looks, 10, "the look after LISTEN")
    with pytest.raises(TimeoutError):
        next(idle)
    assert len(looks) == 1


@pytest.mark.long
def test_a_reader_locks_nothing(logins: Logins) -> None:
    """A viewer who forgets to commit would keep all others from writing."""
    alice = App("alice", dsn=logins.dsn("alice"))
    session = open_session(logins.connect("alice"), SHORT)
    put_bound(logins.connect("alice"), "app/a", session)
    wait_until(lambda: alice.kv.get("app/a") is None, 5)
    eye = logins.connect("eye")
    eye.execute("BEGIN")
    eye.execute("SELECT * FROM pgsched.kv_changes('app', 0)")
    alice.database.call(None, lambda conn: conn.execute("SET lock_timeout = '2s'"))
    assert alice.kv.put("app/b", 1) == 3
    eye.execute("COMMIT")
    alice.close()
