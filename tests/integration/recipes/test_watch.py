"""A watch gets every change, in order, over cut connections, or says that it skipped some; and it costs one query."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.errors import DatabaseUnreachable, NotPermitted
from pgsched.recipes import feeds, watches
from pgsched.recipes.watch import Change, Watch
from tests.support.logins import Logins
from tests.support.recipes.bound_keys import SHORT, Db, cut_connections, number, open_session, put_bound, put_many
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection[Any]]
CHANNEL = "SELECT pgsched.store_channel('app')"


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only notifications tell of changes."""
    monkeypatch.setattr(feeds, "LOOK_AT_LEAST_S", 3600.0)


def first(watch: Watch, count: int) -> list[Change]:
    return [next(watch) for _ in range(count)]


def seen(changes: list[Change]) -> list[tuple[str, str, Any]]:
    return [(change.kind, change.key, change.value) for change in changes]


def test_a_watch_gets_the_changes_of_its_prefix_in_their_order(app: App) -> None:
    app.kv.put("app/a", 1)
    with app.watch("app/a", timeout=10) as watch:
        app.kv.put("app/a", 2)
        app.kv.put("app/b", 3)
        app.kv.put("app/a1", None)
        app.kv.delete("app/a")
        changes = first(watch, 3)
        assert seen(changes) == [("put", "app/a", 2), ("put", "app/a1", None), ("deleted", "app/a", None)]
        assert [change.version for change in changes] == [2, 4, 5]
        assert changes[0].changed_at is not None
        assert watch.version == 5


def test_a_watch_begins_after_a_version(app: App) -> None:
    for value in range(5):
        app.kv.put("app/a", value)
    assert [change.value for change in first(app.watch("app", since=2, timeout=10), 3)] == [2, 3, 4]
    watch = app.watch("app", since=0, timeout=0)
    assert watch.version == 0
    next(watch)
    assert watch.version == 1
    assert [change.value for change in first(app.watch("app", since=watch.version), 4)] == [1, 2, 3, 4]


def test_a_root_is_watched_before_it_is_used(app: App, no_looks: None) -> None:
    with app.watch("new", timeout=10) as watch:
        app.kv.put("new/a", 1)
        assert next(watch).version == 1


def test_a_watch_wakes_by_a_notification(app: App, dsn: str, no_looks: None) -> None:
    other = App("other", dsn=dsn)
    watch = app.watch("app", timeout=20)
    watch.begin()
    for value in range(5):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, watch)
            other.kv.put("app", value)
            assert waiting.result(20).value == value
    other.close()


def test_a_watch_looks_by_itself_where_no_notifications_come(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler that lends sessions for a transaction."""
    monkeypatch.setattr(watches, "is_shared", lambda _: True)
    with app.watch("app", timeout=20) as watch:
        for value in range(3):
            app.kv.put("app", value)
            assert next(watch).value == value


def test_versions_of_concurrent_writers_are_gapless_and_in_order(app: App, dsn: str) -> None:
    others = [App(f"other{n}", dsn=dsn) for n in range(4)]
    with app.watch("app", timeout=20) as watch, ThreadPoolExecutor(4) as pool:
        for other in others:
            for n in range(40):
                pool.submit(other.kv.put, f"app/{n % 7}", n)
        assert [change.version for change in first(watch, 160)] == [*range(1, 161)]
    for other in others:
        other.close()


def test_a_watch_misses_nothing_when_its_connection_is_cut(app: App, db: Db, dsn: str) -> None:
    other = App("other", dsn=dsn)
    with app.watch("app", timeout=20) as watch, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [other.kv.put("app", n) for n in range(200)])
        cuts = 0
        versions = []
        for n in range(200):
            versions.append(next(watch).version)
            if n % 50 == 10:
                cuts += cut_connections(db, "watch")
        writing.result(20)
        assert versions == [*range(1, 201)]
        assert cuts > 0
    other.close()


@pytest.mark.long
def test_a_watch_that_is_too_late_says_that_it_skipped(app: App, db: Db) -> None:
    with app.watch("app/", timeout=20) as watch:
        put_many(db, "app/", 1500)
        change = next(watch)
        assert (change.kind, change.key, change.value) == ("skipped", "app/", None)
        assert change.version == 1500 == len(app.kv.list("app/"))
        app.kv.put("app/1", "next")
        assert seen([next(watch)]) == [("put", "app/1", "next")]
    late = app.watch("app/", since=0, timeout=20)
    assert next(late).kind == "skipped"
    app.kv.put("app/1", "after")
    assert next(late).value == "after"


@pytest.mark.long
def test_a_watch_that_reads_too_slowly_gets_what_the_database_keeps(app: App, db: Db) -> None:
    """More than the feed keeps, and in the end more than the database keeps."""
    with app.watch("app/", timeout=20) as slow, app.watch("app/", timeout=20) as fast:
        for number_of in range(1, 4):
            put_many(db, f"app/{number_of}/", 400)
            first(fast, 400)
        assert next(slow).kind == "skipped"
        put_many(db, "app/4/", 700)
        assert [change.version for change in first(slow, 700)] == [*range(1201, 1901)]
        assert [change.version for change in first(fast, 700)] == [*range(1201, 1901)]


def test_a_watch_says_that_the_database_was_restored_to_an_older_state(app: App, db: Db) -> None:
    put_many(db, "app/", 50)
    with app.watch("app/", timeout=20) as watch:
        app.kv.put("app/1", 1)
        assert next(watch).version == 51
        with db.transaction():
            db.execute("UPDATE pgsched.store_roots SET version = 30")
            db.execute("DELETE FROM pgsched.store_changes WHERE version > 30")
        app.kv.put("app/1", 2)
        assert next(watch).kind == "skipped"
        app.kv.put("app/1", 3)
        wait_until(lambda: next(watch).version == 32, 10)
    assert next(app.watch("app/", since=60, timeout=20)).kind == "skipped"


def test_a_time_limit_holds_for_each_item(app: App) -> None:
    with app.watch("app", timeout=0.05) as watch:
        for value in range(2):
            with pytest.raises(TimeoutError):
                next(watch)
            app.kv.put("app", value)
            wait_until(lambda v=value: take_or_none(watch) == v, 10)  # type: ignore[misc]


def take_or_none(watch: Watch) -> Any:
    with contextlib.suppress(TimeoutError):
        return next(watch).value
    return None


def test_a_watch_ends_by_close_and_with_its_app(app: App, dsn: str) -> None:
    other = App("other", dsn=dsn)
    with ThreadPoolExecutor(2) as pool:
        closed, left = app.watch("app"), other.watch("app")
        for watch in (closed, left):
            watch.begin()
        loops = [pool.submit(list, watch) for watch in (closed, left)]
        closed.close()
        other.close()
        assert [loop.result(10) for loop in loops] == [[], []]
    assert list(closed) == []


def test_a_watch_is_told_of_a_dead_session_although_no_leader_runs(app: App, db: Db, no_looks: None) -> None:
    with app.watch("app", timeout=20) as watch:
        put_bound(db, "app/a", open_session(db, SHORT))
        put_bound(db, "app/b", open_session(db, "1 h"))
        assert seen(first(watch, 3)) == [("put", "app/a", 1), ("put", "app/b", 1), ("deleted", "app/a", None)]


@pytest.mark.long
def test_a_watch_looks_again_where_a_root_is_locked_when_a_session_ends(app: App, db: Db, connect: Open) -> None:
    with app.watch("app", timeout=20) as watch:
        put_bound(db, "app/a", open_session(db, SHORT))
        next(watch)
        with connect(autocommit=False) as other:
            other.execute("SELECT pgsched.kv_put('app/b', '1')")
            wait_until(lambda: app.kv.get("app/a") is None, 5, "the end of the session")
            assert number(db, "SELECT extract(epoch FROM look_at - now()) < 1 FROM pgsched.kv_changes('app', 1)")
            other.rollback()
        assert next(watch).kind == "deleted"


def test_a_watch_in_asyncio(app: App) -> None:
    async def main() -> None:
        async with app.watch("app", timeout=20) as watch:
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            for value in range(3):
                await app.kv.put_async("app", value)
            values = []
            async for change in watch:
                values.append(change.value)
                if len(values) == 3:
                    break
            assert values == [0, 1, 2]
        with pytest.raises(TimeoutError):
            await anext(app.watch("app", timeout=0))
        closed = app.watch("app")
        threading.Timer(0.1, closed.close).start()
        assert [change async for change in closed] == []

    asyncio.run(main())


def test_the_error_of_a_watch_reaches_its_loop(app: App, logins: Logins, no_looks: None) -> None:
    """The name is granted to somebody else while it is watched."""
    alice = App("alice", dsn=logins.dsn("alice"))
    with alice.watch("app", timeout=20) as watch:
        alice.kv.put("app", 1)
        assert next(watch).value == 1
        app.kv.put("app", 2)
        assert next(watch).value == 2
        logins.connect("ops").execute("SELECT grant_names('app', %s)", [logins.name("bob")])
        app.kv.put("app", 3)
        with pytest.raises(NotPermitted):
            next(watch)
    alice.close()


def test_a_watch_begins_only_where_the_database_answers() -> None:
    app = App("nowhere", dsn="host=127.0.0.1 port=1 dbname=x connect_timeout=1")
    with pytest.raises(DatabaseUnreachable):
        next(app.watch("app"))
    app.close()
