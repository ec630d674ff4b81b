"""Jobs declared in code are reconciled with the table; rows of SQL or of other apps are not touched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError


@dataclass(frozen=True)
class Declared:
    name: str
    task: str = "reports.build"
    schedule: str | None = "0 2 * * *"
    timezone: str = "UTC"
    args: Any = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)


def anchor(db: psycopg.Connection, name: str) -> Any:
    row = db.execute("SELECT anchor_at, updated_at, run_at FROM pgsched.jobs WHERE name = %s", [name]).fetchone()
    assert row is not None
    return row


def test_a_declared_job_is_created_once_and_then_unchanged(db: psycopg.Connection) -> None:
    nightly = Declared("nightly", policies={"jitter": timedelta(seconds=5), "priority": 2, "tags": ["a"]})
    assert jobs.declare(db, [nightly], "shop") == {"nightly": "created"}
    before = anchor(db, "nightly")
    assert jobs.declare(db, [nightly], "shop") == {"nightly": "unchanged"}
    assert anchor(db, "nightly") == before
    row = jobs.show_job(db, "nightly")
    assert (row["declared_by"], row["jitter"], row["priority"], row["tags"]) == ("shop", timedelta(seconds=5), 2, ["a"])


def test_a_policy_change_does_not_move_the_anchor_and_a_schedule_change_does(db: psycopg.Connection) -> None:
    jobs.declare(db, [Declared("a", schedule="@every 1h")], "shop")
    before = anchor(db, "a")
    assert jobs.declare(db, [Declared("a", schedule="@every 1h", policies={"priority": 1})], "shop") == {"a": "updated"}
    assert anchor(db, "a")[0] == before[0]
    assert jobs.declare(db, [Declared("a", schedule="@every 2h")], "shop") == {"a": "updated"}
    assert anchor(db, "a")[0] > before[0]
    assert jobs.show_job(db, "a")["priority"] is None, "what is no longer declared is its task's to say again"


def test_a_one_off_declared_without_a_time_stays_at_its_time(db: psycopg.Connection) -> None:
    once = Declared("once", schedule=None)
    assert jobs.declare(db, [once], "shop") == {"once": "created"}
    before = anchor(db, "once")
    assert jobs.declare(db, [once], "shop") == {"once": "unchanged"}
    assert anchor(db, "once") == before


def test_a_job_no_longer_declared_is_removed(db: psycopg.Connection) -> None:
    jobs.declare(db, [Declared("a"), Declared("b")], "shop")
    assert jobs.declare(db, [Declared("b")], "shop") == {"b": "unchanged", "a": "removed"}
    assert jobs.declare(db, [], "shop") == {"b": "removed"}


def test_rows_made_by_sql_or_by_another_app_are_foreign_and_untouched(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('mine', 'by.hand', '@daily')")
    jobs.declare(db, [Declared("theirs")], "other")
    before = [anchor(db, "mine"), anchor(db, "theirs")]
    changed = [Declared("mine", task="x"), Declared("theirs", task="x")]
    assert jobs.declare(db, changed, "shop") == {"mine": "foreign", "theirs": "foreign"}
    assert jobs.declare(db, [], "shop") == {}
    assert [anchor(db, "mine"), anchor(db, "theirs")] == before


def test_an_operators_pause_outlives_a_deployment(db: psycopg.Connection) -> None:
    jobs.declare(db, [Declared("a")], "shop")
    jobs.pause(db, "a", "incident 7")
    assert jobs.declare(db, [Declared("a", policies={"priority": 1})], "shop") == {"a": "updated"}
    assert jobs.show_job(db, "a")["paused_reason"] == "incident 7"


def test_a_bad_declaration_names_the_job_and_changes_nothing(db: psycopg.Connection) -> None:
    bad = [Declared("a"), Declared("b", schedule="61 * * * *")]
    with pytest.raises(InputError, match=r"job b: minute: 61 is out of range 0-59"):
        jobs.declare(db, bad, "shop")
    with pytest.raises(InputError, match=r"job b: priority: "):
        jobs.declare(db, [Declared("b", policies={"priority": 99_999})], "shop")
    with pytest.raises(InputError, match=r"colour: is not a column"):
        jobs.declare(db, [Declared("b", policies={"colour": "red"})], "shop")
    with pytest.raises(InputError, match="declared twice: a"):
        jobs.declare(db, [Declared("a"), Declared("a")], "shop")
    assert jobs.list_jobs(db) == []


def test_a_locked_job_is_left_as_it_is(db: psycopg.Connection, connect: Callable[..., psycopg.Connection]) -> None:
    jobs.declare(db, [Declared("a"), Declared("b")], "shop")
    editor = connect(autocommit=False)
    editor.execute("UPDATE pgsched.jobs SET priority = 1 WHERE name = 'a'")
    changed = [Declared(name, policies={"priority": 2}) for name in ("a", "b")]
    done = jobs.declare(db, changed, "shop", wait_s=0.1)
    assert done == {"a": f"held by session {editor.info.backend_pid}", "b": "updated"}
    assert db.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)


def test_ten_workers_may_start_at_once(connect: Callable[..., psycopg.Connection]) -> None:
    conns = [connect() for _ in range(10)]
    barrier = threading.Barrier(len(conns))
    done: list[dict[str, str]] = []
    errors: list[BaseException] = []

    def start(number: int) -> None:
        # two releases of the code, in opposite orders: the worst case for deadlocks
        declared = [Declared(f"job {n}") for n in (range(20) if number % 2 else range(19, 4, -1))]
        barrier.wait()
        try:
            done.append(jobs.declare(conns[number], declared, "shop"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=[number]) for number in range(len(conns))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(done) == 10
    assert {row["name"] for row in jobs.list_jobs(conns[0])} >= {f"job {n}" for n in range(5, 20)}


def test_the_settable_columns_are_those_of_the_table(db: psycopg.Connection) -> None:
    from pgsched.db.queries.jobs.job_columns import SETTABLE

    catalog = dict(
        db.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = 'pgsched.jobs'::regclass AND attnum > 0 AND NOT attisdropped"
        ).fetchall()
    )
    full = {"timestamptz": "timestamp with time zone"}
    assert {column: full.get(kind, kind) for column, kind in SETTABLE.items()} == {c: catalog[c] for c in SETTABLE}
    kept_by_triggers = {
        *("id", "paused_at", "declared_by", "owner", "created_at", "updated_at", "anchor_at"),
        *("decided_until", "next_run_at", "run_count", "error", "error_at", "resumed_at", "shifts"),
    }
    assert set(catalog) == set(SETTABLE) | kept_by_triggers
