"""Who is told that there are items: some of those that wait, not all, and not only one that has stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.db.queries.recipes import items
from tests.support.logins import one
from tests.support.recipes.calls import function_without, session
from tests.support.recipes.items import end_sessions, put, waits
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
WITH_AND_WITHOUT = pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])


@WITH_AND_WITHOUT
def test_without_one_at_random_an_item_is_told_only_to_who_has_stopped(db: Db, connect: Connect, guarded: bool) -> None:
    """The first one that waits gets nothing: its process has stopped, and its lease goes on for a while."""
    if not guarded:
        function_without(db, "item_tell", "ORDER BY random() LIMIT 1", "LIMIT 0")
    waits(db, session(db))
    channel = waits(db, session(db))
    with connect() as ear:
        ear.execute(f"LISTEN {channel}".encode())
        for _ in range(40):  # each tells one of two
            put(db)
        assert bool(list(ear.notifies(timeout=5 if guarded else 0.2, stop_after=1))) is guarded


@WITH_AND_WITHOUT
def test_a_put_tells_at_most_twenty_sessions_and_one_more(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_tell", "LIMIT least(most, 20)", "LIMIT most")
    with connect() as ear:
        for _ in range(30):
            ear.execute(f"LISTEN {waits(db, session(db))}".encode())
        put(db, 30)
        told = len(list(ear.notifies(timeout=5, stop_after=20 if guarded else 30)))
        told += len(list(ear.notifies(timeout=0.2)))
        assert told in ({20, 21} if guarded else {30})


def test_what_a_dead_holder_had_is_found_though_the_clock_went_back(db: Db) -> None:
    put(db)
    assert one(db, "SELECT id FROM pgsched.item_get('q', gen_random_uuid(), %s)", session(db)) is not None
    end_sessions(db)
    db.execute("UPDATE pgsched.item_queues SET looked_at = clock_timestamp() + interval '1 hour'")
    assert one(db, "SELECT id FROM pgsched.item_get('q', gen_random_uuid(), %s)", session(db)) is not None


@pytest.mark.long
def test_who_waits_rests_between_looks_though_anybody_may_tell_it_to_look(
    app: App, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    ask = items.get
    monkeypatch.setattr(items, "get", lambda *given: looks.append(time.monotonic()) or ask(*given))
    queue = app.item_queue("q")
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(queue.get, 60)
        waiting = "SELECT session FROM pgsched.item_consumers WHERE waiting_since IS NOT NULL"
        wait_until(lambda: db.execute(waiting.encode()).fetchall(), what="it to wait")
        channel = f"pgsched_session_{one(db, waiting)}"
        began, before = time.monotonic(), len(looks)
        while time.monotonic() < began + 1:
            db.execute("SELECT pg_notify(%s, '')", [channel])
        assert len(looks) - before < 80
        queue.put("at last")
        assert got.result(30).value == "at last"
