"""The tick's own statement checks the rows of plain slots, with the same result as the trigger on runs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.leader.ticker import tick
from pgsched.worker.claiming.known_queues import mark
from tests.support.db.setting import ASLEEP, Open, add_jobs, cut, heard, put_back
from tests.support.fleet import one

CHECKED = "SELECT count(*) FROM pgsched.runs WHERE checked"
STATES = "SELECT state, count(*) FROM pgsched.runs GROUP BY state ORDER BY state"
PLAIN = """pgsched.is_plain(j.task, j.args, coalesce(j.queue, h.queue), coalesce(j.priority, h.priority),
                coalesce(j.max_attempts, h.max_attempts), j.timeout)"""


def ticked(db: psycopg.Connection) -> int:
    """Tick once; return how many jobs got an error."""
    with db.transaction():
        return tick(db, 100).errors


@pytest.mark.parametrize(
    "columns",
    [{}, {"tags": ["a"]}, {"timeout": "5 min"}, {"start_deadline": "1 day"}, {"max_attempts": 1, "priority": 0}],
    ids=str,
)
def test_plain_slots_are_checked_by_the_ticks_statement(columns: dict[str, Any], db: psycopg.Connection) -> None:
    add_jobs(db, 3, 4, **columns)
    assert ticked(db) == 0
    assert one(db, CHECKED) == 12
    assert db.execute(STATES).fetchall() == [("queued", 12)]


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({"concurrency_key": "k"}, "waiting"),
        ({"concurrency_limit": 1}, "waiting"),
        ({"backoff": "fixed"}, "queued"),
        ({"kill_after": "1 s"}, "queued"),
        ({"backoff_jitter": 0.5}, "queued"),
        ({"backoff_base": "1 s"}, "queued"),
        ({"backoff_max": "2 hours"}, "queued"),
        ({"kind": "shell"}, "queued"),
        ({"kind": "http", "task": "http://127.0.0.1:1/"}, "queued"),
        ({"jitter": "1 hour"}, None),
    ],
    ids=str,
)
def test_slots_that_are_not_plain_are_left_to_the_trigger(
    columns: dict[str, Any], state: str | None, db: psycopg.Connection
) -> None:
    add_jobs(db, 3, 4, **({"task": "t"} | columns))
    assert ticked(db) == 0
    found = dict(db.execute(STATES).fetchall())
    assert sum(found.values()) == 12
    assert one(db, CHECKED) == (0 if state else found.get("queued", 0))
    assert state is None or found == {state: 12}


def test_slots_that_wait_for_other_jobs_are_left_to_the_trigger(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 4)
    db.execute(
        "UPDATE pgsched.jobs SET after_jobs = ARRAY(SELECT id FROM pgsched.jobs WHERE name = 'j1') WHERE name <> 'j1'"
    )
    put_back(db, 4)
    assert ticked(db) == 0
    assert db.execute(STATES).fetchall() == [("queued", 4), ("waiting", 8)]
    assert one(db, CHECKED) == 4


def test_slots_of_a_limited_queue_wait(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('default', 1)")
    add_jobs(db, 3, 4)
    assert ticked(db) == 0
    assert db.execute(STATES).fetchall() == [("waiting", 12)]
    assert one(db, CHECKED) == 0


def told(db: psycopg.Connection, connect: Open) -> list[str]:
    """Tick once; return the marks of the queues of which sleeping workers were notified."""
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    assert ticked(db) == 0
    return heard(db, listener)


def test_sleeping_workers_are_notified_of_each_queue(db: psycopg.Connection, connect: Open) -> None:
    db.execute(ASLEEP, [600_000])
    add_jobs(db, 4, 4)
    db.execute("UPDATE pgsched.jobs SET queue = 'other' WHERE name IN ('j1', 'j2')")
    put_back(db, 4)
    assert sorted(told(db, connect)) == sorted(map(mark, ("default", "other")))
    assert one(db, CHECKED) == 16


def test_a_tick_notifies_even_if_another_transaction_just_did(db: psycopg.Connection, connect: Open) -> None:
    """An enqueue may rely on a notification sent some milliseconds before. A tick may take longer than that."""
    db.execute(ASLEEP, [600_000])
    db.execute("CREATE OR REPLACE FUNCTION pgsched.tell_workers(queue text) RETURNS text LANGUAGE sql AS 'SELECT NULL'")
    add_jobs(db, 4, 4)
    assert told(db, connect) == [mark("default")]


def test_no_notification_is_sent_while_no_worker_sleeps(db: psycopg.Connection, connect: Open) -> None:
    db.execute(ASLEEP, [-1000])
    add_jobs(db, 4, 4)
    assert told(db, connect) == []
    assert one(db, CHECKED) == 16


BAD = [
    {"task": " "},
    {"queue": " a"},
    {"timeout": "11 years"},
    {"kill_after": "11 years"},
    {"tags": [f"{n}-{n * n}" for n in range(9000)]},
    {"args": "1"},
    {"start_deadline": "7000 years"},
    {"schedule": None, "run_at": "1969-12-31 00:00Z", "catch_up_window": "200 years", "decided_until": "-infinity"},
]


def bad_job(db: psycopg.Connection, bad: dict[str, Any]) -> None:
    """Add three jobs, of which `j2` has values that no trigger has checked."""
    add_jobs(db, 3, 4)
    columns = ", ".join(f"{name} = %({name})s" for name in bad)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(f"UPDATE pgsched.jobs SET {columns} WHERE name = 'j2'", bad)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad}"[:40])
def test_a_row_that_the_trigger_would_refuse_is_refused(bad: dict[str, Any], db: psycopg.Connection) -> None:
    bad_job(db, bad)
    assert ticked(db) == 1
    assert one(db, CHECKED) == 8
    assert one(db, "SELECT error FROM pgsched.jobs WHERE name = 'j2'").startswith("the database refuses its row: ")


def test_without_the_check_a_bad_slot_would_run(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    bad_job(db, {"queue": " a"})
    cut(monkeypatch, "tick_insert", PLAIN, "true")
    assert ticked(db) == 0
    assert one(db, CHECKED) == 12
