"""Every executor in every case: the run gets the right outcome, and no process or session is left behind.

One worker takes all cells of a test at once, so that the whole table costs a few seconds.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter

import psycopg
import pytest

from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, one
from tests.support.matrix import ALL, ASLEEP, KINDS, Cell, Table, carrying
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in Linux's /proc")
PATIENCE_S = 60.0
OPEN = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
TOKENS = "SELECT token::text FROM pgsched.runs WHERE token IS NOT NULL UNION SELECT token::text FROM pgsched.attempts"
QUICK = ("--lease", "2", "--reap-every", "0.5", "--poll", "0.2")


def insert(db: psycopg.Connection, cells: dict[str, Cell]) -> dict[str, int]:
    return {kind: cell.insert(db) for kind, cell in cells.items()}


def tokens(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute(TOKENS)]


def nobody_left(db: psycopg.Connection, *marks: str) -> None:
    """Wait until no process that an attempt started is alive, and no session of its statements."""
    wait_until(lambda: not carrying(*marks, *tokens(db)), 20, "the end of all processes")
    wait_until(lambda: one(db, ASLEEP) == 0, 20, "the end of all sessions")


def outcomes(db: psycopg.Connection, runs: dict[str, int]) -> dict[str, tuple[str, str | None]]:
    return {
        kind: (row_of(db, run)["state"], one(db, "SELECT max(outcome) FROM pgsched.attempts WHERE run_id = %s", run))
        for kind, run in runs.items()
    }


@pytest.mark.long
def test_a_run_that_ends_by_itself_gets_the_right_outcome(
    fleet: Fleet, table: Table, db: psycopg.Connection, mark: str
) -> None:
    cells = table.settled()
    assert Counter(kind for _, kind in cells) >= Counter(dict.fromkeys(KINDS, 6)), "every kind has its cells"
    (worker,) = fleet.start(1, *ALL)
    runs = {key: cell.insert(db) for key, cell in cells.items()}
    wait_until(lambda: one(db, OPEN) == 0, PATIENCE_S, "all cells to end")
    wrong = [f"{key}: {what}" for key, cell in cells.items() for what in cell.wrong(db, runs[key])]
    assert wrong == []
    assert not table.canary.exists(), "an argument was read by a shell"
    assert [row[0] for row in db.execute("SELECT text FROM public.seen")] == table.hostile
    assert not carrying(*tokens(db))
    worker.signal(signal.SIGTERM)
    assert worker.ended(PATIENCE_S) == 0
    nobody_left(db, mark)


def test_timeouts_and_cancellations_stop_every_kind_of_run(
    fleet: Fleet, table: Table, db: psycopg.Connection, mark: str
) -> None:
    (worker,) = fleet.start(1, *ALL)
    late = insert(db, table.hanging("late", timeout="1 second"))
    runs = insert(db, table.hanging("asked"))
    wait_until(lambda: table.all_on(db, "asked", 2) or table.all_on(db, "asked", 1), PATIENCE_S, "all to begin")
    began = time.monotonic()
    db.execute("SELECT pgsched.cancel(id, 'no use') FROM unnest(%s) id", [list(runs.values())])
    wait_until(lambda: {row_of(db, run)["state"] for run in runs.values()} == {"cancelled"}, PATIENCE_S, "their end")
    took_s = time.monotonic() - began
    print(f"cancelled a run of each kind in {took_s:.2f} s")
    assert took_s < 5, "by the notification, not by the next heartbeat"
    assert outcomes(db, runs) == dict.fromkeys(KINDS, ("cancelled", "cancelled"))
    wait_until(lambda: {row_of(db, run)["state"] for run in late.values()} == {"dead"}, PATIENCE_S, "the timeouts")
    assert outcomes(db, late) == dict.fromkeys(KINDS, ("dead", "timed_out"))
    assert {row_of(db, run)["error"] for run in late.values()} == {"timed out after 1 s"}
    for kind in ("loop", "thread"):
        assert all(table.on(case, f"{kind}.stopped").exists() for case in ("late", "asked")), "the handler was told"
    assert not carrying(*tokens(db))
    worker.signal(signal.SIGTERM)
    assert worker.ended(PATIENCE_S) == 0
    nobody_left(db, mark)


@pytest.mark.long
def test_a_cancel_request_takes_effect_without_its_notification(
    fleet: Fleet, table: Table, db: psycopg.Connection
) -> None:
    fleet.start(1, *ALL, "--lease", "600")
    runs = insert(db, table.hanging("silent"))
    wait_until(lambda: table.all_on(db, "silent"), PATIENCE_S, "all to begin")
    began = time.monotonic()
    db.execute("UPDATE pgsched.runs SET cancel_requested_at = clock_timestamp()")
    wait_until(lambda: {row_of(db, run)["state"] for run in runs.values()} == {"cancelled"}, PATIENCE_S, "their end")
    print(f"cancelled a run of each kind in {time.monotonic() - began:.2f} s, without a notification")


def test_a_worker_that_drains_hands_all_its_runs_back(
    fleet: Fleet, table: Table, db: psycopg.Connection, mark: str
) -> None:
    (worker,) = fleet.start(1, *ALL, "--grace", "0")
    runs = insert(db, table.hanging("term"))
    runs["deaf"] = Cell("task", "thread.deaf", {"on": str(table.on("term", "deaf"))}).insert(db)
    wait_until(lambda: table.all_on(db, "term") and table.on("term", "deaf").exists(), PATIENCE_S, "all to begin")
    worker.signal(signal.SIGTERM)
    assert worker.ended(PATIENCE_S) == 0
    assert outcomes(db, runs) == dict.fromkeys(runs, ("queued", "interrupted"))
    assert {row_of(db, run)["attempt"] for run in runs.values()} == {0}
    nobody_left(db, mark)


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["worker", "parent"])
def test_a_worker_that_is_killed_leaves_no_process(
    options: tuple[str, ...], fleet: Fleet, table: Table, db: psycopg.Connection, mark: str
) -> None:
    (worker,) = fleet.start(1, *ALL, *QUICK, *options)
    runs = insert(db, table.hanging("kill"))
    wait_until(lambda: table.all_on(db, "kill"), PATIENCE_S, "all to begin")
    assert len(carrying(*tokens(db))) >= 6, "the command and the command line have children of their own"
    worker.kill()
    nobody_left(db, mark)
    fleet.start(1, *QUICK, "--allow", "http", "--http-allow", "127.0.0.1")  # this worker only leads
    wait_until(lambda: {row_of(db, run)["state"] for run in runs.values()} == {"dead"}, PATIENCE_S, "the reaper")
    assert outcomes(db, runs) == dict.fromkeys(KINDS, ("dead", "crashed"))


@pytest.mark.long
def test_a_zombie_of_every_kind_is_fenced(fleet: Fleet, table: Table, db: psycopg.Connection) -> None:
    (victim,) = fleet.start(1, *ALL, *QUICK, "--no-leader")
    runs = insert(db, table.gated())
    db.execute("UPDATE pgsched.runs SET max_attempts = 5")
    starts = "SELECT count(*) FROM pgsched.runs WHERE state = 'running' AND worker_id = %s"
    wait_until(lambda: table.starts(db) == 1, PATIENCE_S, "the first attempts")
    begun = "SELECT count(*) FROM pgsched.runs WHERE begun"
    wait_until(lambda: one(db, begun) == len(KINDS), PATIENCE_S, "the worker to say that they have begun")
    victim.signal(signal.SIGSTOP)
    (other,) = fleet.start(1, *ALL, *QUICK)
    wait_until(lambda: table.starts(db) == 2, PATIENCE_S, "the second attempts")
    assert one(db, starts, 2) == len(KINDS)
    table.open_gates(db)
    wait_until(lambda: one(db, OPEN) == 0, PATIENCE_S, "the second attempts to end")
    before = {kind: row_of(db, run) for kind, run in runs.items()}
    assert {row["state"] for row in before.values()} == {"succeeded"}
    victim.signal(signal.SIGCONT)
    wait_until(lambda: victim.log.read_text().count("claim lost") >= len(KINDS), PATIENCE_S, "the zombie to notice")
    other.signal(signal.SIGTERM)
    assert other.ended(PATIENCE_S) == 0
    victim.signal(signal.SIGTERM)
    assert victim.ended(PATIENCE_S) == 0
    assert {kind: row_of(db, run) for kind, run in runs.items()} == before
    assert db.execute("SELECT DISTINCT attempt, outcome FROM pgsched.attempts").fetchall() == [(1, "crashed")]
    assert one(db, "SELECT count(*) FROM public.seen") == 1, "the zombie's statements were committed"
