"""Values, watches, parties and barriers behind a pooler that lends a session for one transaction at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pgsched import App
from tests.support.bouncer import Bouncer
from tests.support.recipes.bound_keys import SHORT, Db, open_session, put_bound
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram


@pytest.fixture
def app(bouncer: Bouncer) -> Iterator[App]:
    app = App("pooled", dsn=bouncer.dsn)
    yield app
    app.close()


def test_a_watch_gets_every_change_behind_a_pooler(app: App, db: Db) -> None:
    with app.watch("app", timeout=20) as watch, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [app.kv.put("app/a", n) for n in range(100)])
        assert [next(watch).version for _ in range(100)] == [*range(1, 101)]
        writing.result(20)
        put_bound(db, "app/b", open_session(db, SHORT))
        assert [next(watch).kind for _ in range(2)] == ["put", "deleted"]


def test_parties_and_barriers_behind_a_pooler(app: App) -> None:
    with app.party("p", data=1, ttl=2) as party:
        assert [member.data for member in party.members()] == [1]
        with ThreadPoolExecutor(3) as pool:
            for one in [pool.submit(app.double_barrier("d", 3).enter, 20) for _ in range(3)]:
                pool.submit(one.result(20).leave, 20)
        wait_until(lambda: app.kv.list("d") == [], 10)
        assert not party.lost
    app.barrier("b").set()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.barrier("b").wait, 20)
        app.barrier("b").remove()
        waiting.result(20)
    assert app.counter("c").add() == 1
