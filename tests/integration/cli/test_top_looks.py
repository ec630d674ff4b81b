"""What `pgsched top` reads: the right rows, a bounded number of them, and nothing for pages that are not shown."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import Connection
from pgsched.services import top
from pgsched.services.top import PAGES, Change, Page, TopReader, act, connect_for_top
from tests.support.fleet import one

pytestmark = pytest.mark.packages

WORKER = (
    "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
    " VALUES ('w:1', 'w', 1, '0', 4, '{task}', '{t}', '1 h') RETURNING id"
)
RUNNING = (
    "INSERT INTO pgsched.runs (task, queue, priority, state, attempt, token, lease_until, started_at, worker_id,"
    " progress) SELECT %s, %s, %s, 'running', 2, gen_random_uuid(), now() + interval '1 h', now() - %s::interval,"
    """ max(id), '{"attempt": 1, "done": 1}' FROM pgsched.workers RETURNING id"""
)


@pytest.fixture
def conn(dsn: str) -> Any:
    with connect_for_top(dsn) as made:
        yield made


def asked(conn: Connection[Any], page: Page) -> dict[str, list[dict[str, Any]]]:
    return PAGES[page.name](conn, page)


def test_the_longest_running_runs_come_first_despite_long_queues(
    db: psycopg.Connection, conn: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "DEEP", 10)
    one(db, WORKER)
    ids = [one(db, RUNNING, task, queue, priority, ago) for task, queue, priority, ago in
           (("b", "mail", 5, "2 min"), ("a", "default", 9, "3 min"), ("c", "zoo", 0, "1 min"))]  # fmt: skip
    for queue in ("default", "mail", "zoo"):
        db.execute("INSERT INTO pgsched.runs (task, queue) SELECT 't', %s FROM generate_series(1, 100)", [queue])
    found = asked(conn, Page("running"))["running"]
    assert [row["id"] for row in found] == [ids[1], ids[0], ids[2]]
    assert found[0]["worker"] == "w:1"
    assert found[0]["progress"] is None, "it was of the attempt before"


def test_runs_that_wait_for_another_attempt_are_listed_as_failing(
    db: psycopg.Connection, conn: Connection[Any]
) -> None:
    for attempt, error in ((0, None), (1, "ValueError: it"), (2, "OSError: lost")):
        db.execute(
            "INSERT INTO pgsched.runs (task, state, attempt, error, available_at)"
            " VALUES ('t', 'scheduled', %s, %s, now() + interval '1 min' * %s)",
            [attempt, error, 3 - attempt],
        )
    assert [row["why"] for row in asked(conn, Page("failures"))["failing"]] == ["OSError: lost", "ValueError: it"]


def test_jobs_in_error_come_first_and_paused_jobs_last(db: psycopg.Connection, conn: Connection[Any]) -> None:
    db.execute("SET session_replication_role = replica")  # there is no leader that would plan the jobs
    for name, minutes in (("late", 9), ("soon", 1), ("Stopped", 2), ("broken", 3)):
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES (%s, 't', '@daily')", [name])
        db.execute(
            "UPDATE pgsched.jobs SET next_run_at = now() + interval '1 min' * %s WHERE name = %s", [minutes, name]
        )
    db.execute("UPDATE pgsched.jobs SET paused = true WHERE name = 'Stopped'")
    db.execute("UPDATE pgsched.jobs SET error = 'never', next_run_at = NULL WHERE name = 'broken'")
    found = asked(conn, Page("jobs"))["jobs"]
    assert [(row["name"], row["state"]) for row in found] == [
        ("broken", "error"), ("soon", "active"), ("late", "active"), ("Stopped", "paused")
    ]  # fmt: skip
    assert [row["name"] for row in asked(conn, Page("jobs", find="STO"))["jobs"]] == ["Stopped"]
    assert asked(conn, Page("jobs", find="%"))["jobs"] == []


def test_empty_queues_with_settings_or_a_pause_are_listed(db: psycopg.Connection, conn: Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('mail', 20)")
    db.execute("INSERT INTO pgsched.pauses (what, name, paused_by) VALUES ('queue', 'bulk', 'eve'), ('all', '', 'eve')")
    found = asked(conn, Page("queues"))["queues"]
    assert [(row["name"], row["concurrency_limit"]) for row in found] == [("bulk", None), ("mail", 20)]


def test_the_runs_of_a_queue_are_shown_in_the_order_of_claims(db: psycopg.Connection, conn: Connection[Any]) -> None:
    for task, queue, priority in (("second", "mail", 5), ("first", "mail", 1), ("other", "default", 0)):
        db.execute("INSERT INTO pgsched.runs (task, queue, priority) VALUES (%s, %s, %s)", [task, queue, priority])
    assert [row["task"] for row in asked(conn, Page("queue", "mail"))["runs"]] == ["first", "second"]


def test_only_the_end_of_long_output_is_read(db: psycopg.Connection, conn: Connection[Any]) -> None:
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")
    db.execute(
        "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk)"
        " SELECT %s, 1, n, 'stdout', repeat('x', 20000) || n || E'\n' FROM generate_series(1, 200) n",
        [run_id],
    )
    log = asked(conn, Page("run", run_id))["log"]
    assert (len(log), log[-1]["chunk"][-4:]) == (top.LOG_ROWS, "200\n")
    assert max(len(row["chunk"]) for row in log) == top.LOG_CHARACTERS


def test_the_page_of_a_missing_run_or_job_says_so(conn: Connection[Any]) -> None:
    look = TopReader().look(conn, Page("run", 4711))
    assert look.refused is not None
    assert "there is no run 4711" in look.refused
    assert "no job named" in str(TopReader().look(conn, Page("job", "x")).refused)
    assert TopReader().look(conn, Page("queue", "x")).rows == {"runs": []}


def test_only_the_page_that_is_shown_is_read(conn: Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in PAGES:
        monkeypatch.setitem(PAGES, name, lambda conn, page, name=name: called.append(name) or {})
    TopReader().look(conn, Page("jobs"))
    assert called == ["jobs"]


def test_past_intervals_of_the_chart_are_not_read_again(
    db: psycopg.Connection, conn: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    real = top.charts.read_stretches

    def noted(conn: Connection[Any], span: str, count: int) -> Any:
        counts.append(count)
        return real(conn, span, count)

    monkeypatch.setattr(top.charts, "read_stretches", noted)
    looking = TopReader()
    first = looking.look(conn, Page()).stretches
    db.execute("INSERT INTO pgsched.runs (task, state, attempt, started_at, finished_at)"
               " VALUES ('t', 'succeeded', 1, clock_timestamp(), clock_timestamp())")  # fmt: skip
    second = looking.look(conn, Page()).stretches
    assert counts[0] == 60
    assert counts[1] <= 3
    assert len(first) == len(second) == 60
    assert sum(one.per_s for one in first) == 0
    assert sum(one.per_s for one in second[-3:]) > 0
    gaps = {(b.from_at - a.from_at).total_seconds() for a, b in pairwise(second)}
    assert gaps == {15.0}


def test_actions_give_the_messages_of_the_commands(db: psycopg.Connection, conn: Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '@daily')")
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")
    assert act(conn, Change("cancel", "run", run_id, "why")) == f"run {run_id} is cancelled"
    assert act(conn, Change("retry", "run", run_id)) == f"run {run_id} is queued again"
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now()")
    assert act(conn, Change("cancel", "run", run_id)) == f"run {run_id} had ended already: dead"
    assert act(conn, Change("pause", "job", "nightly", "why")).startswith("job nightly is paused by ")
    assert act(conn, Change("resume", "job", "nightly")) == "job nightly is active"
    assert act(conn, Change("pause", "queue", "mail", "why")) == "queue mail is paused"
    assert act(conn, Change("resume", "queue", "mail")) == "queue mail goes on"


@pytest.mark.long
def test_a_long_history_is_not_read(db: psycopg.Connection, conn: Connection[Any]) -> None:
    """Each statement uses an index, or a bounded part of one."""
    db.execute("SET session_replication_role = replica")
    db.execute(
        "INSERT INTO pgsched.runs (task, queue, state, attempt, available_at, started_at, finished_at)"
        " SELECT 't', 'q', CASE WHEN n % 100 = 0 THEN 'dead' ELSE 'succeeded' END, 1, now() - n * interval '1 s',"
        " now() - n * interval '1 s', now() - n * interval '1 s' FROM generate_series(1, 60000) n"
    )
    db.execute("ANALYZE pgsched.runs")
    read = "SELECT coalesce(seq_scan, 0), coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'runs'"
    for page in (Page(name) for name in ("overview", "running", "queues", "jobs", "failures", "workers")):
        before = counted(db, read)
        TopReader().look(conn, page)
        flush(conn)
        scans, rows = (b - a for a, b in zip(before, counted(db, read), strict=True))
        assert (scans, rows < 12_000) == (0, True), (page, scans, rows)


def flush(conn: Connection[Any]) -> None:
    """Make the statistics of this session visible to other sessions."""
    if conn.info.server_version >= 150_000:
        conn.execute("SELECT pg_stat_force_next_flush()")
    else:  # before PostgreSQL 15, statistics are sent at most twice a second
        time.sleep(0.6)
        conn.execute("SELECT")


def counted(db: psycopg.Connection, question: str) -> tuple[int, int]:
    db.execute("SELECT pg_stat_clear_snapshot()")
    row = db.execute(question.encode()).fetchone()
    assert row is not None
    return row[0], row[1]
