"""`pgsched worker --processes N`: a parent replaces its N workers, passes stops on to them, and leaves none behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psycopg
import pytest

from pgsched.worker.supervision.children import FIRST_PAUSE_S, LONGEST_PAUSE_S, restart_pause_s
from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, Member, enqueue, events, one, open_gate, state
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in Linux's /proc")
ALIVE = "SELECT pid FROM pgsched.workers WHERE stopped_at IS NULL AND stopping_at IS NULL ORDER BY id"
PATIENCE_S = 40.0


def workers(db: psycopg.Connection) -> list[int]:
    """Return the pids of the live processes whose rows say that they are at work."""
    return [row[0] for row in db.execute(ALIVE) if lives(row[0])]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(parent: Member) -> list[str]:
    return Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()


def supervised(fleet: Fleet, db: psycopg.Connection, count: int, *options: str) -> tuple[Member, list[int]]:
    """Start a parent and wait until all its workers are at work. Return the parent and the pids of the workers."""
    parent = fleet.launch("--processes", str(count), *options)
    wait_until(lambda: len(workers(db)) == count or not parent.alive, PATIENCE_S, "all workers")
    assert parent.alive
    return parent, workers(db)


@pytest.mark.long
def test_a_worker_that_dies_is_replaced(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, (first, second) = supervised(fleet, db, 2, "--concurrency", "1")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: parent.logged("exit_code=137"), PATIENCE_S, "the parent to notice")
    wait_until(lambda: len(workers(db)) == 2, PATIENCE_S, "a worker instead of the one that was killed")
    assert second in workers(db)
    parent.signal(signal.SIGTERM)
    assert parent.ended(PATIENCE_S) == 0
    assert one(db, "SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NOT NULL") == 2


def test_the_first_stop_drains_every_worker_and_the_second_ends_the_grace_time(
    fleet: Fleet, db: psycopg.Connection
) -> None:
    parent, _ = supervised(fleet, db, 2, "--concurrency", "1", "--grace", "600")
    runs = [enqueue(db, "hold", gate=gate) for gate in "ab"]
    for run in runs:
        wait_until(lambda run=run: events(db, run, "start"), what="the start")  # type: ignore[misc]
    parent.signal(signal.SIGINT)
    wait_until(lambda: parent.log.read_text().count("draining") == 2, what="both to drain")
    open_gate(db, "a")
    wait_until(lambda: state(db, runs[0]) == "succeeded", what="the handler to end in its grace time")
    assert events(db, runs[1], "stopped") == []
    parent.signal(signal.SIGINT)
    assert parent.ended(PATIENCE_S) == 0
    assert [row_of(db, runs[1])[key] for key in ("state", "attempt")] == ["queued", 0]


@pytest.mark.long
def test_a_signal_to_every_process_at_once_still_drains(fleet: Fleet, db: psycopg.Connection) -> None:
    """Service managers send the signal to the parent and its workers at the same time."""
    parent, pids = supervised(fleet, db, 2, "--concurrency", "1", "--grace", "600")
    run = enqueue(db, "hold", gate="a")
    wait_until(lambda: events(db, run, "start"), what="the start")
    for pid in [*pids, parent.pid]:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: parent.logged("worker ended"), what="the idle worker to end")
    open_gate(db, "a")
    assert parent.ended(PATIENCE_S) == 0
    assert state(db, run) == "succeeded"
    assert events(db, run, "stopped") == []


@pytest.mark.long
def test_no_process_outlives_a_killed_parent(fleet: Fleet, db: psycopg.Connection, tmp_path: Path) -> None:
    on = tmp_path / "on"
    app = ("--app", "tests.support.apps.processes:app")
    parent, pids = supervised(fleet, db, 2, *app, "--concurrency", "1")
    enqueue(db, "with_children", on=str(on))
    wait_until(on.exists, PATIENCE_S, "the handler")
    parent.kill()
    wait_until(lambda: not any(map(lives, [*pids, int(on.read_text())])), what="the end of all")


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_a_handler_started_does_not_outlive_its_worker(
    number: signal.Signals, fleet: Fleet, db: psycopg.Connection, tmp_path: Path
) -> None:
    on = tmp_path / "on"
    parent, (pid,) = supervised(fleet, db, 1, "--app", "tests.support.apps.matrix:app", "--grace", "0")
    enqueue(db, "thread.leave", on=str(on))
    left = wait_until(lambda: on.exists() and on.read_text(), PATIENCE_S, "the handler")
    os.kill(pid, number)
    wait_until(lambda: not lives(int(left)), PATIENCE_S, "the end of what it started")
    assert parent.alive


@pytest.mark.long
def test_the_parent_gives_up_with_one_line_when_no_worker_can_start(fleet: Fleet) -> None:
    parent = fleet.launch("--processes", "3", "--app", "no.such.module")
    assert parent.ended(PATIENCE_S) == 2
    assert parent.log.read_text().count("error: app: there is no module 'no'") == 1


@pytest.mark.long
def test_the_parent_gives_up_when_workers_can_no_longer_start(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, pids = supervised(fleet, db, 2)
    db.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
    os.kill(pids[0], signal.SIGKILL)
    wait_until(lambda: parent.logged("exit_code=6"), PATIENCE_S, "the first replacement to fail")
    assert parent.alive, "one worker works on"
    os.kill(pids[1], signal.SIGKILL)
    assert parent.ended(PATIENCE_S) == 6
    assert parent.logged("giving up")


@pytest.mark.long
def test_workers_are_replaced_after_max_runs_and_no_run_is_lost(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, _ = supervised(fleet, db, 1, "--max-runs", "5", "--concurrency", "2")
    runs = [enqueue(db, "note") for _ in range(12)]
    for run in runs:
        wait_until(lambda run=run: state(db, run) == "succeeded", PATIENCE_S, "the runs")  # type: ignore[misc]
    counts = db.execute("SELECT count(*) FROM ledger GROUP BY pid ORDER BY min(at)").fetchall()
    assert counts == [(5,), (5,), (2,)]
    assert one(db, "SELECT count(DISTINCT run_id) FROM ledger") == 12
    parent.signal(signal.SIGTERM)
    assert parent.ended(PATIENCE_S) == 0


def test_a_worker_that_reached_max_runs_waits_for_its_last_run(fleet: Fleet, db: psycopg.Connection) -> None:
    (worker,) = fleet.start(1, "--max-runs", "2", "--grace", "0")
    run, _ = enqueue(db, "hold", gate="a"), enqueue(db, "note")
    wait_until(lambda: worker.logged("retiring") and events(db, run, "start"), what="the worker to take no more")
    late = enqueue(db, "note")
    open_gate(db, "a")
    assert worker.ended(PATIENCE_S) == 0
    assert (state(db, run), state(db, late)) == ("succeeded", "queued")


@pytest.mark.long
def test_a_retired_worker_that_is_stopped_gives_back_what_runs(fleet: Fleet, db: psycopg.Connection) -> None:
    (worker,) = fleet.start(1, "--max-runs", "1", "--grace", "0")
    run = enqueue(db, "hold", gate="a")
    wait_until(lambda: worker.logged("retiring") and events(db, run, "start"), what="the worker to take no more")
    worker.signal(signal.SIGTERM)
    assert worker.ended(PATIENCE_S) == 0
    assert [row_of(db, run)[key] for key in ("state", "attempt")] == ["queued", 0]


@pytest.mark.long
def test_a_worker_that_grows_too_large_ends_with_a_code_of_its_own(fleet: Fleet, db: psycopg.Connection) -> None:
    (worker,) = fleet.start(1, "--max-memory", "400")
    run = enqueue(db, "grow", mb="500")
    assert worker.ended(PATIENCE_S) == 10
    assert state(db, run) == "succeeded"
    assert worker.logged("more than --max-memory 400")


@pytest.mark.long
def test_a_parent_replaces_a_worker_that_grew_too_large(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, (pid,) = supervised(fleet, db, 1, "--max-memory", "400")
    enqueue(db, "grow", mb="500")
    wait_until(lambda: workers(db) not in ([], [pid]), PATIENCE_S, "the next worker")
    parent.signal(signal.SIGTERM)
    assert parent.ended(PATIENCE_S) == 0


def test_a_memory_limit_below_what_a_worker_takes_at_its_start_is_refused(fleet: Fleet) -> None:
    worker = fleet.launch("--max-memory", "5")
    assert worker.ended(PATIENCE_S) == 2
    assert worker.logged("max memory: 5 MB is less than the ")


@pytest.mark.long
def test_sighup_replaces_the_workers(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, before = supervised(fleet, db, 2)
    parent.signal(signal.SIGHUP)
    wait_until(lambda: len(workers(db)) == 2 and not {*before} & {*workers(db)}, PATIENCE_S, "new workers")
    assert not parent.logged("exit_code=1")
    parent.signal(signal.SIGTERM)
    assert parent.ended(PATIENCE_S) == 0


@pytest.mark.long
def test_sighups_during_a_replacement_cause_exactly_one_more_replacement(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, _ = supervised(fleet, db, 2)
    parent.signal(signal.SIGHUP)
    wait_until(lambda: len(children(parent)) == 3, PATIENCE_S, "a new worker to be started")
    for _ in range(3):
        parent.signal(signal.SIGHUP)
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.workers") == 6, PATIENCE_S, "the second turn")
    wait_until(lambda: len(workers(db)) == 2 and len(children(parent)) == 2, PATIENCE_S, "the old ones to end")
    parent.signal(signal.SIGTERM)
    assert parent.ended(PATIENCE_S) == 0
    assert parent.log.read_text().count("renewing") == 2


@pytest.mark.long
def test_sighup_keeps_the_workers_when_new_ones_cannot_start(fleet: Fleet, db: psycopg.Connection) -> None:
    parent, before = supervised(fleet, db, 2)
    db.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
    parent.signal(signal.SIGHUP)
    wait_until(lambda: parent.logged("not renewed"), PATIENCE_S, "the new worker to fail")
    assert workers(db) == before
    assert parent.log.read_text().count("error: ") == 1, "the others were not tried"
    run = enqueue(db, "note")
    wait_until(lambda: state(db, run) == "succeeded", PATIENCE_S, "the old workers to work on")


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_pauses_between_restarts_grow_to_a_bound(chance: float) -> None:
    assert restart_pause_s(0, chance) == 0
    pauses = [restart_pause_s(failures, chance) for failures in range(1, 40)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= FIRST_PAUSE_S / 2
    assert LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S
