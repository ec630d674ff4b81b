"""Idempotency keys, and the results they keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched import AlreadyEnqueued, App, InputError, bucket
from pgsched.app.task import Task
from pgsched.leader.pruner import Pruner
from tests.support.db.enqueued import count, end
from tests.support.db.pruning import prune

Connect = Callable[..., psycopg.Connection[Any]]


def test_an_idempotency_key_gives_the_first_run_also_after_it_has_ended(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    once = greet.options(idempotency_key="request 7")
    first = once.enqueue("Ada")
    end(db, first)
    again = once.enqueue("Ada")
    assert (again, again.how, count(db)) == (first, "repeated", 1)


def test_the_first_result_outlives_its_run(greet: Task[Any, Any], app: App, db: psycopg.Connection[Any]) -> None:
    once = greet.options(idempotency_key="k")
    first = once.enqueue("Ada")
    open_ = app.first_result("k")
    assert open_ is not None and (open_.run_id, open_.state, open_.finished_at) == (first, "queued", None)
    end(db, first, result={"paid": 3})
    kept = app.first_result("k")
    assert kept is not None and (kept.state, kept.result) == ("succeeded", {"paid": 3})
    assert prune(db, 0) == 1 and count(db) == 0
    assert app.first_result("k") == kept
    assert once.enqueue("Ada") == first and count(db) == 0

    async def main() -> Any:
        try:
            return await app.first_result_async("k")
        finally:
            await app.close_async()

    assert asyncio.run(main()) == kept
    assert app.first_result("unknown") is None


def expire(db: psycopg.Connection[Any]) -> None:
    db.execute("UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() - interval '1 second'")


@pytest.mark.parametrize("pruned", [True, False])
def test_a_key_that_has_expired_is_free_again(
    pruned: bool, greet: Task[Any, Any], app: App, db: psycopg.Connection[Any]
) -> None:
    once = greet.options(idempotency_key="k", idempotency_retention=timedelta(minutes=5))
    first = once.enqueue("Ada")
    kept = db.execute("SELECT expires_at - created_at FROM pgsched.kept_keys").fetchone()
    assert kept is not None and abs(kept[0] - timedelta(minutes=5)) < timedelta(seconds=30)
    expire(db)
    if pruned:
        assert Pruner().tidy(db, 10) == 1
        assert db.execute("SELECT count(*) FROM pgsched.kept_keys").fetchone() == (0,)
    assert app.first_result("k") is None
    again = once.enqueue("Ada")
    assert again.created and again != first
    assert app.first_result("k").run_id == once.enqueue("Ada") == again  # type: ignore[union-attr]


def test_an_idempotency_key_used_for_another_task_is_refused(greet: Task[Any, Any], app: App) -> None:
    first = greet.options(idempotency_key="k").enqueue("Ada")
    other = app.task(name="other")(lambda: None)
    with pytest.raises(InputError, match=f'idempotency_key: "k" was used for run {first} of task "t"'):
        other.options(idempotency_key="k").enqueue()


def test_an_idempotency_key_goes_before_the_unique_key(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    both = greet.options(idempotency_key="i", unique_key="u", on_conflict="reject")
    first = both.enqueue("Ada")
    assert both.enqueue("Ada").how == "repeated", "the answer was lost: the same call again is not refused"
    other = greet.options(idempotency_key="j", unique_key="u", on_conflict="reject")
    for _ in range(2):
        with pytest.raises(AlreadyEnqueued):
            other.enqueue("Bob")
    end(db, first)
    assert other.enqueue("Bob").created, "a refused enqueue uses up no key"


def test_an_idempotency_key_remembers_the_run_that_was_found(greet: Task[Any, Any]) -> None:
    first = greet.options(unique_key="u").enqueue("Ada")
    both = greet.options(idempotency_key="i", unique_key="u")
    assert [both.enqueue("Bob").how, both.enqueue("Bob").how] == ["existing", "repeated"]
    assert both.enqueue("Bob") == first


def test_an_idempotency_key_keeps_the_result_of_the_run_it_found(
    greet: Task[Any, Any], app: App, db: psycopg.Connection[Any]
) -> None:
    first = greet.options(unique_key="u", idempotency_key="h").enqueue("Ada")
    for key in ("i", "j"):
        assert greet.options(idempotency_key=key, unique_key="u").enqueue("Bob") == first
    end(db, first, result={"paid": 3})
    kept = app.first_result("i")
    assert kept is not None and (kept.run_id, kept.state, kept.result) == (first, "succeeded", {"paid": 3})
    assert prune(db, 0) == 1 and count(db) == 0
    assert [app.first_result(key) for key in ("h", "i", "j")] == [kept] * 3
    expire(db)
    again = greet.options(idempotency_key="i").enqueue("Ada")
    end(db, again)
    assert db.execute("SELECT met FROM pgsched.kept_keys WHERE key = 'i'").fetchone() == (None,)
    assert prune(db, 0) == 1
    found = app.first_result("i")
    assert found is not None and (found.run_id, found.state, found.result) == (again, "succeeded", None)


def test_a_rolled_back_enqueue_leaves_no_key(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    for key in ({"idempotency_key": "k"}, {"unique_key": "k", "unique_scope": bucket(60)}):
        greet.options(connection=mine, **key).enqueue("Ada")
    mine.rollback()
    assert db.execute("SELECT count(*) FROM pgsched.kept_keys").fetchone() == (0,)


@pytest.mark.parametrize("taken", [False, True])
def test_a_plain_insert_cannot_set_an_idempotency_key(
    taken: bool, greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    if taken:
        greet.options(idempotency_key="k").enqueue("Ada")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"idempotency_key: .* pgsched\.enqueue"):
        db.execute("INSERT INTO pgsched.runs (task, idempotency_key) VALUES ('t', 'k')")
    assert count(db) == int(taken)
