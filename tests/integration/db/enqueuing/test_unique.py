"""Unique keys, their scopes, and what each policy does on a conflict."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched import AlreadyEnqueued, App, InputError, RunId, bucket
from pgsched.app.options import OPTIONS, OptionKeywords, Options
from pgsched.app.task import Task
from tests.support.db.enqueued import count, end
from tests.support.db.pruning import prune
from tests.support.db.setting import row_of, take

Connect = Callable[..., psycopg.Connection[Any]]
LATER = datetime(2100, 1, 1, 10, 15, tzinfo=UTC)


# ---- what an enqueue returns


def test_an_enqueue_gives_an_int_that_says_whether_a_run_was_made(greet: Task[Any, Any]) -> None:
    first, plain = greet.options(unique_key="k").enqueue("Ada"), greet.enqueue("Ada")
    again = greet.options(unique_key="k").enqueue("Bob")
    assert (first.created, first.how) == (plain.created, plain.how) == (True, "created")
    assert (again, again.created, again.how) == (int(first), False, "existing")


def test_a_run_id_is_an_int_to_everything_else(db: psycopg.Connection[Any]) -> None:
    found = RunId(7, "existing")
    assert (found + 1, f"{found}", json.dumps([found]), {7: "x"}[found]) == (8, "7", "[7]", "x")
    assert (pickle.loads(pickle.dumps(found)), pickle.loads(pickle.dumps(found)).how) == (7, "existing")
    assert db.execute("SELECT %s + 1, %s::bigint", [found, found]).fetchone() == (8, 7)


# ---- conflicts while a run with the key is active


def test_reject_raises_the_id_of_the_run_and_spoils_no_transaction(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    unique = greet.options(unique_key="k", on_conflict="reject", connection=mine)
    first = unique.enqueue("Ada")
    with pytest.raises(AlreadyEnqueued, match=f"unique_key: run {first} has 'k' already") as raised:
        unique.enqueue("Bob")
    assert (raised.value.run_id, raised.value.exit_code) == (first, 11)
    mine.commit()
    assert count(db) == 1


def test_replace_takes_the_new_payload_and_the_new_time(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    first = greet.options(unique_key="k").enqueue("Ada")
    again = greet.options(unique_key="k", on_conflict="replace", at=LATER).enqueue("Bob")
    assert (again, again.how) == (first, "replaced")
    run = row_of(db, first)
    assert (run["args"], run["state"], datetime.fromisoformat(run["available_at"])) == (
        {"name": "Bob"}, "scheduled", LATER)  # fmt: skip
    greet.options(unique_key="k", on_conflict="replace").enqueue("Eve")
    run = row_of(db, first)
    assert datetime.fromisoformat(run["available_at"]) < datetime.now(UTC) + timedelta(hours=1), "sooner again"


def test_a_burst_of_replacements_makes_one_run_with_the_last_payload(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    debounced = greet.options(unique_key="k", on_conflict="replace", delay=60)
    ids = {debounced.enqueue(str(number)) for number in range(5)}
    (run_id,) = ids
    run = row_of(db, run_id)
    assert run["args"] == {"name": "4"}
    made, due = (datetime.fromisoformat(run[name]) for name in ("created_at", "available_at"))
    assert due - made > timedelta(seconds=60), "counted from the last one"


def test_keep_time_takes_the_new_payload_only(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    first = greet.options(unique_key="k", at=LATER).enqueue("Ada")
    again = greet.options(unique_key="k", on_conflict="keep_time").enqueue("Bob")
    assert (again, again.how) == (first, "replaced")
    run = row_of(db, first)
    assert (run["args"], run["state"], datetime.fromisoformat(run["available_at"])) == (
        {"name": "Bob"}, "scheduled", LATER)  # fmt: skip


@pytest.mark.parametrize("on_full", ["reject", "shed_oldest"])
def test_a_full_queue_accepts_an_enqueue_that_makes_no_run(
    on_full: str, greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth, on_full) VALUES ('default', 2, %s)", [on_full])
    greet.enqueue("oldest")
    only = greet.options(unique_key="k").enqueue("first")
    assert greet.options(unique_key="k").enqueue("second").how == "existing"
    assert greet.options(unique_key="k", on_conflict="replace").enqueue("third") == only
    assert db.execute("SELECT state, args->>'name' FROM pgsched.runs ORDER BY id").fetchall() == [
        ("queued", "oldest"),
        ("queued", "third"),
    ]


@pytest.mark.parametrize("policy", ["replace", "keep_time"])
def test_a_run_that_is_running_is_left_as_it_is(
    policy: Any, greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    first = greet.options(unique_key="k").enqueue("Ada")
    (claim,) = take(db)
    again = greet.options(unique_key="k", on_conflict=policy, delay=60).enqueue("Bob")
    assert (again, again.how) == (first, "existing")
    run = row_of(db, first)
    assert (run["args"], run["state"], run["token"]) == ({"name": "Ada"}, "running", str(claim.token))


@pytest.mark.parametrize("policy", ["replace", "keep_time"])
def test_the_payload_of_another_task_is_refused(policy: Any, greet: Task[Any, Any], app: App) -> None:
    greet.options(unique_key="k").enqueue("Ada")
    other = app.task(name="other")(lambda name: None)
    with pytest.raises(InputError, match='unique_key: run 1 has it, of task "t": it cannot take'):
        other.options(unique_key="k", on_conflict=policy).enqueue(name="x")


def test_a_payload_that_the_database_refuses_replaces_nothing(db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.enqueue('t', unique_key => 'k')")
    with pytest.raises(psycopg.errors.CheckViolation, match="args: must be a JSON object or array"):
        db.execute("SELECT pgsched.enqueue('t', '3', unique_key => 'k', on_conflict => 'replace')")
    assert row_of(db, 1)["args"] == {}


# ---- buckets


def test_a_bucket_has_one_run_even_after_that_run_was_pruned(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    hourly = greet.options(unique_key="k", unique_scope=bucket(timedelta(hours=1)), at=LATER)
    first = hourly.enqueue("Ada")
    end(db, first)
    again = hourly.enqueue("Bob")
    assert (again, again.how) == (first, "existing")
    assert prune(db, 0) == 1
    assert count(db) == 0
    assert hourly.enqueue("Eve") == first, "pruned history does not free it"


@pytest.mark.parametrize(("minutes", "same"), [(44, True), (45, False), (-15, True), (-16, False)])
def test_a_bucket_begins_at_the_full_hour_of_the_time_the_run_is_due(
    minutes: int, same: bool, greet: Task[Any, Any]
) -> None:
    one, other = (
        greet.options(unique_key="k", unique_scope=bucket(3600), at=at).enqueue("Ada")
        for at in (LATER, LATER + timedelta(minutes=minutes))
    )
    assert (one == other) is same


@pytest.mark.parametrize("seconds", [1, 90.5, 2_592_000, 1_234_567, 3600 * 86_400])
def test_the_period_of_a_bucket_is_stored_exactly(
    seconds: float, greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    greet.options(unique_key="k", unique_scope=bucket(seconds), at=LATER).enqueue("Ada")
    row = db.execute("SELECT split_part(scope, ' ', 2)::numeric FROM pgsched.kept_keys").fetchone()
    assert row is not None and float(row[0]) == seconds


def test_the_typed_keywords_are_the_options() -> None:
    assert OptionKeywords.__annotations__.keys() == OPTIONS.keys() == {field.name for field in fields(Options)}


def test_weeks_begin_on_monday(greet: Task[Any, Any]) -> None:
    sunday, monday = datetime(2101, 1, 2, 23, 59, tzinfo=UTC), datetime(2101, 1, 3, tzinfo=UTC)
    assert (sunday.strftime("%a"), monday.strftime("%a")) == ("Sun", "Mon")
    weekly = {"unique_key": "k", "unique_scope": bucket(timedelta(days=7))}
    ids = [greet.options(**weekly, at=monday + timedelta(days=n)).enqueue("Ada") for n in range(-1, 8)]
    assert len(set(ids[1:8])) == 1
    assert len(set(ids)) == 3
    assert greet.options(**weekly, at=sunday).enqueue("Ada") == ids[0]


def test_scopes_do_not_disturb_each_other(greet: Task[Any, Any]) -> None:
    scopes: list[Any] = ["while_active", bucket(60), bucket(3600)]
    assert len({greet.options(unique_key="k", unique_scope=scope).enqueue("Ada") for scope in scopes}) == 3


def test_conflict_policies_apply_in_buckets(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    hourly = {"unique_key": "k", "unique_scope": bucket(3600)}
    first = greet.options(**hourly, at=LATER).enqueue("Ada")
    at = LATER + timedelta(minutes=20)
    assert greet.options(**hourly, at=at, on_conflict="replace").enqueue("Bob").how == "replaced"
    run = row_of(db, first)
    assert (run["args"], datetime.fromisoformat(run["available_at"])) == ({"name": "Bob"}, at)
    with pytest.raises(AlreadyEnqueued):
        greet.options(**hourly, at=at, on_conflict="reject").enqueue("Bob")
    end(db, first)
    assert greet.options(**hourly, at=at, on_conflict="replace").enqueue("Eve").how == "existing"
    assert row_of(db, first)["args"] == {"name": "Bob"}


@pytest.mark.parametrize("scope", ["hourly", "bucket(soon)", "bucket(1 month)", "bucket(-1 hour)", "bucket()"])
def test_an_unknown_scope_is_refused(scope: str, db: psycopg.Connection[Any], greet: Task[Any, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="unique_scope"):
        db.execute("SELECT pgsched.enqueue('t', unique_key => 'k', unique_scope => %s)", [scope])
    with pytest.raises(InputError, match='unique_scope: expected "while_active", "while_queued"'):
        greet.options(unique_key="k", unique_scope=scope)


def test_a_period_of_less_than_a_second_is_refused() -> None:
    with pytest.raises(InputError, match=r"unique_scope: 0\.5 s is out of range 1 s to 10 years"):
        bucket(0.5)
