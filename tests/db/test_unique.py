"""Unique keys, their scopes and what happens on a conflict; idempotency keys and the results they keep; tags."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched import AlreadyEnqueued, App, InputError, QueueFull, RunId, bucket
from pgsched.db.leading import prune
from pgsched.options import OPTIONS, Given, Options
from pgsched.task import Task
from tests.race.setting import row_of, take

Connect = Callable[..., psycopg.Connection[Any]]
LATER = datetime(2100, 1, 1, 10, 15, tzinfo=UTC)


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    app = App(dsn=dsn)
    yield app
    app.close()


@pytest.fixture
def greet(app: App) -> Any:
    @app.task(name="t")
    def greet(name: str) -> None: ...

    return greet


def end(db: psycopg.Connection[Any], run_id: int, state: str = "succeeded", result: Any = None) -> None:
    ended = "UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp(), result = %s WHERE id = %s"
    db.execute(ended, [state, json.dumps(result), run_id])


def count(db: psycopg.Connection[Any]) -> int:
    row = db.execute("SELECT count(*) FROM pgsched.runs").fetchone()
    return int(row[0]) if row else 0


# ---- what an enqueue gives


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


def test_a_burst_that_replaces_runs_once_after_it_with_the_last_payload(
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


def test_a_bucket_has_one_run_whatever_became_of_it(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    hourly = greet.options(unique_key="k", unique_scope=bucket(timedelta(hours=1)), at=LATER)
    first = hourly.enqueue("Ada")
    end(db, first)
    again = hourly.enqueue("Bob")
    assert (again, again.how) == (first, "existing")
    prune(db, -60, 10)
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
def test_a_period_reaches_the_database_to_the_second(
    seconds: float, greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    greet.options(unique_key="k", unique_scope=bucket(seconds), at=LATER).enqueue("Ada")
    row = db.execute("SELECT split_part(scope, ' ', 2)::numeric FROM pgsched.kept_keys").fetchone()
    assert row is not None and float(row[0]) == seconds


def test_the_typed_keywords_are_the_options() -> None:
    assert Given.__annotations__.keys() == OPTIONS.keys() == {field.name for field in fields(Options)}


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


def test_policies_hold_in_buckets(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
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
def test_a_scope_that_is_none_is_refused(scope: str, db: psycopg.Connection[Any], greet: Task[Any, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="unique_scope"):
        db.execute("SELECT pgsched.enqueue('t', unique_key => 'k', unique_scope => %s)", [scope])
    with pytest.raises(InputError, match=r'unique_scope: expected "while_active" or pgsched.bucket\(period\)'):
        greet.options(unique_key="k", unique_scope=scope)


def test_a_period_is_checked() -> None:
    with pytest.raises(InputError, match=r"unique_scope: 0\.5 s is out of range 1 s to 10 years"):
        bucket(0.5)


# ---- idempotency keys


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
    assert prune(db, -60, 10) == 1 and count(db) == 0
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
        assert prune(db, 3600, 10) == 1
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


def test_a_rolled_back_enqueue_leaves_no_key(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    for key in ({"idempotency_key": "k"}, {"unique_key": "k", "unique_scope": bucket(60)}):
        greet.options(connection=mine, **key).enqueue("Ada")
    mine.rollback()
    assert db.execute("SELECT count(*) FROM pgsched.kept_keys").fetchone() == (0,)


# ---- the same in SQL


def test_the_sql_function_takes_everything(db: psycopg.Connection[Any]) -> None:
    call = (
        "SELECT * FROM pgsched.enqueue_result(task => 't', args => '{\"a\": 1}', queue => 'q', priority => 2,"
        " at => '2100-01-01Z', unique_key => 'u', unique_scope => 'bucket(1 day)', on_conflict => 'keep_time',"
        " idempotency_key => 'i', idempotency_retention => '1 hour', timeout => '5s', tags => '{a,b}',"
        " max_attempts => 7)"
    )
    assert [db.execute(call).fetchone(), db.execute(call).fetchone()] == [(1, "created"), (1, "repeated")]
    run = row_of(db, 1)
    assert [run[name] for name in ("queue", "priority", "state", "tags", "max_attempts", "timeout")] == [
        "q", 2, "scheduled", ["a", "b"], 7, "00:00:05"]  # fmt: skip


def test_reject_in_sql_is_a_unique_violation(db: psycopg.Connection[Any]) -> None:
    call = "SELECT pgsched.enqueue('t', unique_key => 'k', on_conflict => 'reject')"
    db.execute(call)
    with pytest.raises(psycopg.errors.UniqueViolation, match='unique_key: run 1 has "k" already'):
        db.execute(call)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("unique_key => ''", "unique_key: must not be empty"),
        ("unique_key => repeat('x', 501)", "unique_key: 501 characters, at most 500 are allowed"),
        ("idempotency_key => ' k'", "idempotency_key: must not begin or end with a space"),
        ("idempotency_key => 'k', idempotency_retention => '0'", "idempotency_retention: 00:00:00 is less than"),
        ("on_conflict => 'merge'", 'on_conflict: "merge" is not one of return, reject, replace, keep_time'),
        ("tags => ARRAY['']", "tags: must not be empty"),
        ("tags => array_fill('x'::text, ARRAY[101])", "tags: 101 tags, at most 100 are allowed"),
        ("unique_key => 'k', at => 'infinity'", "at: infinity is not an instant"),
    ],
)
def test_the_sql_function_refuses_what_does_not_fit(db: psycopg.Connection[Any], options: str, message: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=message):
        db.execute(f"SELECT pgsched.enqueue('t', {options})")


# ---- tags


def test_tags_are_kept_with_the_run(app: App, db: psycopg.Connection[Any]) -> None:
    task = app.task(name="t", tags=["eu"])(lambda: None)
    rows = [row_of(db, task.enqueue()), row_of(db, task.options(tags=("us", 'odd "\\,{}', "NULL")).enqueue())]
    assert [row["tags"] for row in rows] == [["eu"], ["us", 'odd "\\,{}', "NULL"]]
    task.options(tags=["us", 'odd "\\,{}', "NULL"]).enqueue_many([[]])
    assert row_of(db, 3)["tags"] == rows[1]["tags"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": "eu"}, "tags: expected a list of text"),
        ({"tags": [""]}, "tags: must not be empty"),
        ({"tags": ["x"] * 101}, "tags: 101 tags, at most 100 are allowed"),
        ({"on_conflict": "merge"}, 'on_conflict: "merge" is not one of return, reject, replace, keep_time'),
        ({"idempotency_retention": 0}, "idempotency_retention: 0 s is out of range"),
        ({"idempotency_key": "x" * 501}, "idempotency_key: 501 characters, at most 500"),
    ],
)
def test_options_are_refused_where_they_are_given(greet: Task[Any, Any], options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        greet.options(**options)


def test_an_idempotency_key_for_many_is_refused(greet: Task[Any, Any]) -> None:
    with pytest.raises(InputError, match="idempotency_key: names one run; enqueue_many makes many"):
        greet.options(idempotency_key="k").enqueue_many([["Ada"]])


# ---- limits


def test_a_full_queue_is_an_error_of_its_own(
    app: App, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth, on_full) VALUES ('default', 1, 'reject')")
    greet.enqueue("Ada")
    with pytest.raises(QueueFull, match="queue: default is full") as raised:
        greet.enqueue("Bob")
    assert raised.value.exit_code == 12
    with pytest.raises(QueueFull):
        greet.enqueue("Bob", connection=connect())


def test_what_pgsched_refuses_on_the_callers_connection_is_told_in_its_words(
    greet: Task[Any, Any], app: App, connect: Connect
) -> None:
    mine = connect(autocommit=False)
    greet.options(idempotency_key="k", connection=mine).enqueue("Ada")
    other = app.task(name="other")(lambda: None)
    with pytest.raises(InputError, match="idempotency_key"):
        other.options(idempotency_key="k", connection=mine).enqueue()
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        greet.enqueue("Ada", connection=mine)


def test_a_run_that_only_limits_hold_waits_for_its_new_time(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('default', 1)")
    first = greet.options(unique_key="k").enqueue("Ada")
    assert row_of(db, first)["state"] == "waiting"
    greet.options(unique_key="k", on_conflict="replace", at=LATER).enqueue("Bob")
    run = row_of(db, first)
    assert (run["state"], run["ready_at"], run["args"]) == ("scheduled", None, {"name": "Bob"})
    db.execute("SELECT pgsched.cancel(%s)", [first])
    second = greet.options(unique_key="k").enqueue("Ada")
    greet.options(unique_key="k", on_conflict="replace").enqueue("Eve")
    run = row_of(db, second)
    assert (run["state"], run["args"]) == ("waiting", {"name": "Eve"}) and run["ready_at"] is not None


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
def test_how_is_told_whatever_the_connections_encoding(encoding: str, greet: Task[Any, Any], connect: Connect) -> None:
    mine = connect(client_encoding=encoding, row_factory=psycopg.rows.namedtuple_row)
    unique = greet.options(unique_key="k", connection=mine)
    assert [greet.enqueue("a", connection=mine).how, unique.enqueue("a").how, unique.enqueue("a").how] == [
        "created", "created", "existing"]  # fmt: skip
    later = greet.options(at=LATER, timeout=5, tags=["a"], connection=mine)
    assert later.enqueue_many([["a"]]) == 1
