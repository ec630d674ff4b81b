"""`on_conflict="merge"` adds arguments to a run that waits; `debounce_max` bounds how far a run is put off."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError
from pgsched.app.release import releases
from pgsched.db.queries.runs import tasks
from tests.support.db.setting import at_once, row_of, take
from tests.support.fleet import one

pytestmark = pytest.mark.pg14
Connect = Callable[..., psycopg.Connection[Any]]
MERGE = "SELECT how FROM pgsched.enqueue_result('t', %s::jsonb, unique_key => 'k', on_conflict => 'merge'"


def merge(db: psycopg.Connection, args: str, more: str = "") -> str:
    return str(one(db, f"{MERGE}{more})", args))


def due_in(db: psycopg.Connection, run: int = 1) -> float:
    """Return the seconds from when the run was made until it is due."""
    return float(one(db, "SELECT extract(epoch FROM available_at - created_at) FROM pgsched.runs WHERE id = %s", run))


# ---- merge


def test_merging_replaces_values_and_appends_lists(db: psycopg.Connection) -> None:
    hows = [
        merge(db, '{"ids": [1], "text": "a", "both": [1], "deep": {"a": [1]}}'),
        merge(db, '{"ids": [2, 3], "text": "b", "both": 5, "new": [1]}'),
        merge(db, '{"ids": [], "deep": {"b": [2]}}'),
    ]
    assert hows == ["created", "replaced", "replaced"]
    assert row_of(db, 1)["args"] == {"ids": [1, 2, 3], "text": "b", "both": 5, "new": [1], "deep": {"b": [2]}}


def test_merging_leaves_the_time(db: psycopg.Connection) -> None:
    merge(db, '{"ids": [1]}', ", delay => '60 s'")
    merge(db, '{"ids": [2]}', ", delay => '600 s'")
    merge(db, '{"ids": [3]}')
    assert (round(due_in(db)), row_of(db, 1)["args"], row_of(db, 1)["state"]) == (60, {"ids": [1, 2, 3]}, "scheduled")


def test_nothing_is_merged_into_a_run_that_has_begun(db: psycopg.Connection) -> None:
    merge(db, '{"ids": [1]}')
    take(db)
    assert merge(db, '{"ids": [2]}') == "existing"
    assert row_of(db, 1)["args"] == {"ids": [1]}


def test_calls_that_merge_at_once_all_count(db: psycopg.Connection, connect: Connect) -> None:
    merge(db, '{"ids": []}')
    connections = [connect() for _ in range(8)]
    at_once([lambda n=n, conn=conn: merge(conn, f'{{"ids": [{n}]}}') for n, conn in enumerate(connections)])
    assert sorted(row_of(db, 1)["args"]["ids"]) == [*range(8)]


@pytest.mark.parametrize(("first", "second"), [("[1]", "{}"), ("{}", "[1]"), ("[1]", "[2]")])
def test_arguments_without_names_are_not_merged(db: psycopg.Connection, first: str, second: str) -> None:
    merge(db, first)
    with pytest.raises(psycopg.errors.CheckViolation, match="on_conflict: merge is for arguments by name"):
        merge(db, second)


def test_what_grows_too_large_is_refused(db: psycopg.Connection) -> None:
    half = '{"ids": ["' + "x" * 600_000 + '"]}'
    merge(db, half)
    with pytest.raises(psycopg.errors.CheckViolation, match="args: "):
        merge(db, half)
    with pytest.raises(psycopg.errors.CheckViolation, match="args: nested"):
        merge(db, '{"deep": ' + "[" * 250 + "]" * 250 + "}")


def test_another_task_merges_nothing(db: psycopg.Connection) -> None:
    merge(db, "{}")
    with pytest.raises(psycopg.errors.CheckViolation, match="it cannot take the payload of another"):
        db.execute("SELECT pgsched.enqueue('other', unique_key => 'k', on_conflict => 'merge')")


def test_python_merges(app: App, db: psycopg.Connection) -> None:
    @app.task(unique_by=("cart",), on_conflict="merge", delay=30)
    def sync(cart: int, items: list[int]) -> None: ...

    assert [sync.enqueue(1, [1]).how, sync.enqueue(1, [2]).how, sync.enqueue(2, [3]).how] == [
        "created", "replaced", "created"]  # fmt: skip
    assert row_of(db, 1)["args"] == {"cart": 1, "items": [1, 2]}


# ---- debounce_max


def debounce(db: psycopg.Connection, delay: str, policy: str = "replace") -> Any:
    return one(db, "SELECT how FROM pgsched.enqueue_result('t', unique_key => 'k', on_conflict => %s, delay => %s,"
                   " debounce_max => '60 s')", policy, delay)  # fmt: skip


@pytest.mark.parametrize("policy", ["replace", "merge"])
def test_a_run_is_put_off_for_debounce_max_at_most(db: psycopg.Connection, policy: str) -> None:
    debounce(db, "10 s", policy)
    assert 9 < due_in(db) < 11
    debounce(db, "30 s", policy)
    assert 29 < due_in(db) < 60
    debounce(db, "70 s", policy)
    assert due_in(db) == 60
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.runs SET created_at = created_at - interval '59 s'")
    debounce(db, "10 s", policy)
    assert (due_in(db), row_of(db, 1)["state"]) == (60, "scheduled")


def test_without_the_bound_a_run_is_put_off_for_ever(db: psycopg.Connection) -> None:
    found = one(db, "SELECT pg_get_functiondef('pgsched.meet_run'::regproc)")
    guard = "coalesce(least(due, r.created_at + debounce_max), due)"
    assert found.count(guard) == 1
    db.execute(found.replace(guard, "due").encode())
    debounce(db, "10 s")
    debounce(db, "70 s")
    assert due_in(db) > 69


def test_the_task_declares_the_bound(app: App, db: psycopg.Connection) -> None:
    @app.task(name="t", unique_key="doc {n}", on_conflict="replace", debounce_max=timedelta(minutes=1))
    def save(n: int) -> None: ...

    tasks.register(db, app.name, releases(app.tasks.values()))
    save.options(delay=10).enqueue(1)
    one(db, """SELECT pgsched.enqueue('t', '{"n": 1}', delay => '1 hour')""")
    assert due_in(db) == 60
    again = one(db, """SELECT how FROM pgsched.enqueue_result('t', '{"n": 1}', on_conflict => 'return')""")
    assert again == "existing"
    assert save.options(on_conflict="return").enqueue(1).how == "existing"
    with pytest.raises(InputError, match="debounce_max: it bounds how far"):
        save.options(on_conflict="return", debounce_max=5)


# ---- a new time has a new expiry


def test_a_run_that_is_put_off_expires_later(app: App, db: psycopg.Connection) -> None:
    task = app.task(name="t", expires=60)(lambda n=1: None)
    tasks.register(db, app.name, releases(app.tasks.values()))
    keyed = task.options(unique_key="k", on_conflict="replace")
    run = keyed.enqueue()
    one(db, "SELECT pgsched.enqueue('t', unique_key => 'k', on_conflict => 'replace', at => '2100-01-01 00:00Z')")
    assert one(db, "SELECT expires_at = '2100-01-01 00:01Z' FROM pgsched.runs WHERE id = %s", run)
    task.options(unique_key="k", on_conflict="replace", expires=datetime(2101, 1, 1, tzinfo=UTC)).enqueue()
    assert one(db, "SELECT expires_at = '2101-01-01Z' FROM pgsched.runs WHERE id = %s", run)
    task.options(unique_key="k", on_conflict="keep_time", expires=5).enqueue()
    assert one(db, "SELECT expires_at = '2101-01-01Z' FROM pgsched.runs WHERE id = %s", run)
