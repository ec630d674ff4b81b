"""Changes of a run that has not started: its priority, when it is due, and its queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Result
from pgsched.db.queries.leader import ticks
from pgsched.db.queries.runs import runs
from pgsched.errors import InputError, NotFound, QueueFull
from tests.support.db import dependencies
from tests.support.db.limiting import admit, end, limit_queue
from tests.support.db.setting import done, row_of, take
from tests.support.db.settling import settle

LATER = datetime(2040, 1, 1, tzinfo=UTC)


def enqueue(db: psycopg.Connection[Any], task: str = "t", **options: Any) -> int:
    named = "".join(f", {name} => %s" for name in options)
    row = db.execute(f"SELECT pgsched.enqueue(%s{named})".encode(), [task, *options.values()]).fetchone()
    assert row is not None
    return int(row[0])


def test_a_queued_run_gets_another_priority_and_stays_queued(db: psycopg.Connection[Any]) -> None:
    first, second = enqueue(db), enqueue(db)
    assert runs.update(db, second, priority=1) == "queued"
    assert [claim.id for claim in take(db, 1)] == [second]
    assert row_of(db, first)["priority"] == 5


def test_a_queued_run_can_be_put_off_and_brought_back(db: psycopg.Connection[Any]) -> None:
    run = enqueue(db)
    assert runs.update(db, run, at=LATER) == "scheduled"
    assert take(db) == [] and row_of(db, run)["available_at"] == "2040-01-01T00:00:00+00:00"
    assert runs.update(db, run, at=datetime.now(UTC) - timedelta(seconds=1)) == "scheduled"
    ticks.admit(db, 100)
    assert [claim.id for claim in take(db)] == [run]


def test_a_run_that_moves_into_a_limited_queue_goes_through_its_admission(db: psycopg.Connection[Any]) -> None:
    limit_queue(db, "few", concurrency_limit=1)
    first, second = enqueue(db, queue="few"), enqueue(db)
    admit(db)
    assert runs.update(db, second, queue="few") == "waiting"
    admit(db)
    assert row_of(db, second)["state"] == "waiting", "the queue's only place is taken"
    end(db, first)
    admit(db)
    assert row_of(db, second)["state"] == "queued"


def test_a_run_that_leaves_a_limited_queue_is_free_at_once(db: psycopg.Connection[Any]) -> None:
    limit_queue(db, "few", concurrency_limit=1)
    enqueue(db, queue="few")
    waits = enqueue(db, queue="few")
    admit(db)
    assert runs.update(db, waits, queue="other") == "queued"


def test_a_full_queue_takes_no_run_of_another_queue(db: psycopg.Connection[Any]) -> None:
    limit_queue(db, "full", max_depth=1)
    enqueue(db, queue="full")
    run = enqueue(db)
    with pytest.raises(QueueFull, match="queue: full is full"):
        runs.update(db, run, queue="full")
    assert row_of(db, run)["queue"] == "default"


def test_a_run_that_waits_for_others_is_put_off_behind_them(db: psycopg.Connection[Any]) -> None:
    parent = enqueue(db)
    child = enqueue(db, after=[parent])
    assert runs.update(db, child, at=LATER, priority=2, queue="later") == "waiting"
    end(db, parent)
    dependencies.admit(db)
    row = row_of(db, child)
    assert (row["state"], row["available_at"], row["priority"], row["queue"]) == (
        "scheduled", "2040-01-01T00:00:00+00:00", 2, "later",
    )  # fmt: skip


def left(db: psycopg.Connection[Any], run: int, since: str) -> float:
    """Return how many minutes lie between this instant and the run's expiry."""
    row = db.execute(f"SELECT extract(epoch FROM expires_at - {since}) / 60 FROM pgsched.runs WHERE id = %s".encode(),
                     [run]).fetchone()  # fmt: skip
    assert row is not None
    return round(float(row[0]))


def test_a_run_that_is_put_off_expires_as_long_after_it_is_due(db: psycopg.Connection[Any]) -> None:
    parent = enqueue(db)
    for run in (enqueue(db, expires="1 hour"), enqueue(db, expires="1 hour", after=[parent])):
        runs.update(db, run, at=LATER)
        assert left(db, run, "timestamptz '2040-01-01 00:00Z'") == 60
        runs.update(db, run, at=datetime(1980, 1, 1, tzinfo=UTC))
        assert left(db, run, "clock_timestamp()") == 60, "it is due now"
        runs.update(db, run, priority=1)
        assert left(db, run, "clock_timestamp()") == 60
    never = enqueue(db)
    runs.update(db, never, at=LATER)
    assert row_of(db, never)["expires_at"] is None


def test_a_run_that_runs_or_has_ended_is_not_changed(db: psycopg.Connection[Any]) -> None:
    run = enqueue(db)
    (claim,) = take(db)
    with pytest.raises(InputError, match=f"state: run {run} is running: only a run that has not started"):
        runs.update(db, run, priority=1)
    settle(db.info.dsn, done(claim, Result.SUCCEEDED))
    with pytest.raises(InputError, match=rf"state: run {run} has ended \(succeeded\)"):
        runs.update(db, run, at=LATER)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing to change"),
        ({"priority": 10}, "priority: 10 is out of range 0-9"),
        ({"priority": 2**31}, "out of range"),
        ({"at": datetime(8999, 1, 1, tzinfo=UTC)}, "at: .* is not an instant between 1970 and 8997"),
        ({"at": datetime(1950, 1, 1, tzinfo=UTC)}, "at: .* is not an instant"),
        ({"queue": ""}, "queue: "),
        ({"queue": " x"}, "queue: "),
        ({"queue": "a\nb"}, "queue: "),
        ({"queue": "q" * 101}, "queue: "),
    ],
)
def test_wrong_values_are_refused_by_name(db: psycopg.Connection[Any], changes: dict[str, Any], message: str) -> None:
    run = enqueue(db)
    before = row_of(db, run)
    with pytest.raises(InputError, match=message):
        runs.update(db, run, **changes)
    assert row_of(db, run) == before


def test_an_unknown_run_is_not_found(db: psycopg.Connection[Any]) -> None:
    for run_id in (4711, 0, 2**63):
        with pytest.raises(NotFound):
            runs.update(db, run_id, priority=1)


def test_a_change_is_in_the_audit(db: psycopg.Connection[Any]) -> None:
    run = enqueue(db)
    runs.update(db, run, priority=2)
    found = db.execute("SELECT action, what, name, change FROM pgsched.audit ORDER BY id DESC LIMIT 1").fetchone()
    assert found == ("changed", "run", str(run), {"priority": [5, 2]})


def test_a_change_of_nothing_is_refused_in_sql_as_everywhere(db: psycopg.Connection[Any]) -> None:
    run = enqueue(db)
    before, entries = row_of(db, run), db.execute("SELECT count(*) FROM pgsched.audit").fetchone()
    for call in (f"update_run({run})", f"update_run({run}, NULL, NULL, NULL)", "update_run(4711)"):
        with pytest.raises(psycopg.errors.CheckViolation, match="nothing to change: give priority, at or queue"):
            db.execute(f"SELECT pgsched.{call}".encode())
    assert row_of(db, run) == before
    assert db.execute("SELECT count(*) FROM pgsched.audit").fetchone() == entries
