"""Runs that the enqueueing statement has checked itself, in place of the trigger (column `checked`).

Everything that the trigger does for other runs is done for these as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.app.task import Task
from pgsched.db.queries.leader.limits import list_writers
from pgsched.db.queries.runs import enqueue
from pgsched.errors import QueueFull
from pgsched.worker.claiming.known_queues import mark
from tests.support.db.setting import ASLEEP
from tests.support.fleet import one

Open = Callable[..., psycopg.Connection[Any]]
CHECKED = "SELECT count(*) FROM pgsched.runs WHERE checked"
MANY = [{"n": n} for n in range(enqueue.WORTH_CHECKING)]
OPTIONS = dict.fromkeys(("queue", "priority", "max_attempts", "timeout", "at", "delay", "tags"))
KEYS = ("unique_key", "unique_scope", "on_conflict", "idempotency_key", "idempotency_retention")
AFTER = ("after", "after_any", "on_failure")
VALUES = {**OPTIONS, "task": "t", "concurrency_key": None, **dict.fromkeys((*KEYS, *AFTER))}
DECIDED = {**VALUES, "queue": "default", "priority": 5, "max_attempts": 3}


@pytest.fixture
def task(dsn: str) -> Iterator[Task[Any, Any]]:
    app = App("test", dsn=dsn)

    @app.task(name="t")
    def t(n: int) -> None: ...

    yield t
    app.close()


def one_and_many(task: Any) -> None:
    task.enqueue(n=1)
    task.enqueue_many(MANY)


def test_many_plain_runs_are_checked_together(task: Task[Any, Any], db: psycopg.Connection) -> None:
    one_and_many(task)
    assert one(db, CHECKED) == len(MANY)


def test_a_few_runs_are_checked_by_the_trigger(task: Task[Any, Any], db: psycopg.Connection) -> None:
    task.enqueue_many(MANY[1:])
    assert one(db, CHECKED) == 0


@pytest.mark.parametrize("options", [{"delay": 60}, {"concurrency_key": "k"}, {"unique_key": "k"}])
def test_runs_that_are_not_plain_are_checked_by_the_trigger(
    options: dict[str, Any], task: Task[Any, Any], db: psycopg.Connection
) -> None:
    task.options(**options).enqueue(n=1)
    if "unique_key" not in options:
        task.options(**options).enqueue_many(MANY)
    assert one(db, CHECKED) == 0
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'queued'") == ("unique_key" in options)


def test_a_limited_queue_holds_one_and_many_runs(task: Task[Any, Any], db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('default', 1)")
    one_and_many(task)
    assert db.execute("SELECT state, count(*) FROM pgsched.runs GROUP BY state").fetchall() == [
        ("waiting", 1 + len(MANY))
    ]


def test_a_full_queue_refuses_many_runs(task: Task[Any, Any], db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth) VALUES ('default', 2)")
    task.enqueue(n=1)
    with pytest.raises(QueueFull):
        task.enqueue_many(MANY)


def test_the_leader_sees_a_writer_that_has_only_checked_its_runs(connect: Open, db: psycopg.Connection) -> None:
    """The statement takes its lock before it looks for a limit of the queue. So no limit can come in between unseen."""
    producer = connect(autocommit=False)
    assert list_writers(db) == {}
    row = producer.execute(enqueue.sql("enqueue_plain"), DECIDED).fetchone()
    assert row == (True,)
    assert len(list_writers(db)) == 1


@pytest.mark.parametrize("how", ["one", "many"])
def test_a_sleeping_worker_is_notified(how: str, task: Task[Any, Any], connect: Open, db: psycopg.Connection) -> None:
    db.execute(ASLEEP, [600_000])
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    if how == "one":
        task.enqueue(n=1)
    else:
        task.enqueue_many(MANY)
    assert [notify.payload for notify in listener.notifies(timeout=10, stop_after=1)] == [mark("default")]
    assert one(db, CHECKED) == (0 if how == "one" else len(MANY))


def test_no_notification_is_sent_while_no_worker_sleeps(
    task: Task[Any, Any], connect: Open, db: psycopg.Connection
) -> None:
    db.execute(ASLEEP, [-1000])
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    one_and_many(task)
    db.execute("NOTIFY pgsched_runs, 'end'")
    assert [notify.payload for notify in listener.notifies(timeout=10, stop_after=1)] == ["end"]


BAD = [
    {"task": " "},
    {"task": "x" * 65537},
    {"args": "[1]"},
    {"args": "1"},
    {"queue": " a"},
    {"queue": "q" * 101},
    {"queue": ""},
    {"priority": 10},
    {"priority": -1},
    {"max_attempts": 0},
    {"max_attempts": 1001},
    {"timeout": "0 s"},
    {"timeout": "11 years"},
    {"at": "infinity"},
    {"at": "1969-01-01"},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_values_of_one_run_are_refused(bad: dict[str, Any], db: psycopg.Connection) -> None:
    """For the trigger, an array as args is no bad value; so the run is made here too."""
    values = {"args": "{}", "trace": None, **VALUES, **bad}
    if bad == {"args": "[1]"}:
        db.execute(enqueue.sql("enqueue"), values)
        assert one(db, CHECKED) == 0
        return
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(enqueue.sql("enqueue"), values)


@pytest.mark.parametrize(
    "bad", [bad for bad in BAD if bad.keys() & {"task", "queue", "priority", "max_attempts", "timeout"}], ids=str
)
def test_bad_values_of_many_runs_are_refused(bad: dict[str, Any], db: psycopg.Connection) -> None:
    assert db.execute(enqueue.sql("enqueue_plain"), {**VALUES, **bad}).fetchone() == (False,)
    with pytest.raises(psycopg.errors.CheckViolation):
        enqueue.enqueue_many(db, ["{}"] * enqueue.WORTH_CHECKING, {**VALUES, **bad})


@pytest.mark.parametrize(
    "change",
    [
        "available_at = 'infinity'",
        "available_at = '1969-12-31'",
        "expires_at = '-infinity'",
        "job_id = 1",
        "scheduled_at = now()",
        "job_id = 1, scheduled_at = 'infinity'",
        "state = 'lost'",
        "state = 'lost', finished_at = now()",
    ],
)
def test_no_later_edit_makes_a_row_impossible(change: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(f"UPDATE pgsched.runs SET {change}")


@pytest.mark.parametrize(
    "columns",
    [
        "(task, job_id) VALUES ('t', 1)",
        "(task, scheduled_at) VALUES ('t', now())",
        "(task, state) VALUES ('t', 'lost')",
    ],
)
def test_no_insert_makes_an_impossible_row(columns: str, db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(f"INSERT INTO pgsched.runs {columns}")
