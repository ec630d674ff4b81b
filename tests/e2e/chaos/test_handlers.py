"""Handlers in real worker processes: time limits, snoozes, crashes, hooks, and exits that no handler can delay."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.services.status import read_status
from tests.support.apps import contract
from tests.support.fleet import Fleet, enqueue, one, state
from tests.support.waiting import wait_until

APP = ("--app", "tests.support.apps.contract:app", "--lease", "6", "--poll", "0.2")


@pytest.fixture(autouse=True)
def tables(db: psycopg.Connection) -> None:
    db.execute(contract.TABLES)


def add(db: psycopg.Connection, task: str, args: str = "{}", **policies: Any) -> int:
    """Enqueue a run with policies, which are read when the run is claimed."""
    names = "".join(f", {name}" for name in policies)
    marks = ", %s" * len(policies)
    query = f"INSERT INTO pgsched.runs (task, args{names}) VALUES (%s, %s{marks}) RETURNING id"
    return int(one(db, query, task, args, *policies.values()))


def of(db: psycopg.Connection, run_id: int, column: str) -> Any:
    return one(db, f"SELECT {column} FROM pgsched.runs WHERE id = %s", run_id)


@pytest.mark.long
def test_a_stuck_thread_is_abandoned_and_counted_and_delays_no_exit(fleet: Fleet, db: psycopg.Connection) -> None:
    (worker,) = fleet.start(1, *APP, "--concurrency", "2")
    stuck = [add(db, "stuck.thread", timeout="1 s", kill_after="0", max_attempts=1) for _ in range(3)]
    for run_id in stuck:  # the third run gets a place although the first two still occupy their threads
        wait_until(lambda run=run_id: state(db, run) == "dead", 60, "the end of the run")  # type: ignore[misc]
        assert of(db, run_id, "error") == "timed out after 1 s"
    wait_until(lambda: one(db, "SELECT abandoned FROM pgsched.workers") == 3, 30, "the count")
    assert any("3 abandoned handlers" in problem for problem in read_status(db).problems)
    worker.signal(signal.SIGTERM)
    assert worker.ended(40) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["forks.thread", "forks.loop", "forks.process", "forks.process_async"])
def test_sigterm_ends_a_process_forked_by_a_handler_but_not_its_worker(
    task: str, fleet: Fleet, db: psycopg.Connection
) -> None:
    (worker,) = fleet.start(1, *APP)
    for _ in range(2):
        run_id = add(db, task, max_attempts=1)
        wait_until(lambda run=run_id: state(db, run) == "succeeded", 60, "the end of the run")  # type: ignore[misc]
        assert of(db, run_id, "result") == -signal.SIGTERM
    assert worker.alive and not worker.logged("draining")


@pytest.mark.long
def test_a_worker_whose_event_loop_stays_blocked_can_be_stopped(fleet: Fleet, db: psycopg.Connection) -> None:
    (worker,) = fleet.start(1, *APP, "--grace", "1")
    run_id = add(db, "blocks.loop")
    wait_until(lambda: one(db, "SELECT blocked_by FROM pgsched.workers"), 60, "the worker to be blocked")
    worker.signal(signal.SIGTERM)
    assert worker.ended(60) == 1
    assert worker.logged(f"by='blocks.loop (run {run_id})'") and worker.logged("hears no stop")
    fleet.start(1, *APP)
    db.execute("INSERT INTO public.written VALUES (0, 'go')")
    wait_until(lambda: state(db, run_id) == "succeeded", 60, "the next attempt")
    assert of(db, run_id, "attempt") == 2


@pytest.mark.long  # by default: tests/integration/worker/test_leaving.py; for what is handed back: test_matrix.py
@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
@pytest.mark.parametrize("task", ["stays.loop", "stays_below.loop"])
def test_an_async_handler_or_thread_that_does_not_end_delays_no_exit(
    task: str, options: tuple[str, ...], fleet: Fleet, db: psycopg.Connection
) -> None:
    worker = fleet.launch(*APP, "--grace", "1", *options)
    run_id = add(db, task, kill_after="0", max_attempts=1)
    wait_until(lambda: one(db, "SELECT count(*) FROM public.written") == 1, 60, "the start")
    worker.signal(signal.SIGTERM)
    assert worker.ended(40) == 0
    assert worker.logged("ending at once: what handlers left behind does not end") and worker.logged("handlers=1")
    assert (state(db, run_id), of(db, run_id, "attempt")) == ("queued", 0)
    assert one(db, "SELECT outcome FROM pgsched.attempts") == "interrupted"
    assert one(db, "SELECT stopped_at IS NOT NULL FROM pgsched.workers")


@pytest.mark.long
def test_handlers_in_all_threads_of_the_event_loop_delay_no_exit(fleet: Fleet, db: psycopg.Connection) -> None:
    (worker,) = fleet.start(1, *APP, "--grace", "1", "--concurrency", "40")
    for _ in range(40):  # more than the event loop's threads, of which there are at most 32
        add(db, "stays_below.loop", kill_after="0", max_attempts=1)
    wait_until(lambda: one(db, "SELECT count(*) FROM public.written") == 40, 60, "the start")
    worker.signal(signal.SIGTERM)
    assert worker.ended(40) == 0
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'queued'") == 40
    assert one(db, "SELECT stopped_at IS NOT NULL FROM pgsched.workers")


@pytest.mark.few(1)
@pytest.mark.parametrize("place", ["loop", "thread", "process"])
def test_a_run_that_snoozes_until_it_is_ready_uses_one_attempt(
    place: str, fleet: Fleet, db: psycopg.Connection
) -> None:
    fleet.start(1, *APP)
    run_id = enqueue(db, f"waits.{place}")
    wait_until(lambda: of(db, run_id, "state") == "scheduled", 30, "a snooze")
    wait_until(lambda: of(db, run_id, "state") != "scheduled", 30, "the next try")
    db.execute("INSERT INTO public.written VALUES (0, 'go')")
    wait_until(lambda: state(db, run_id) == "succeeded", 30, "the end")
    assert of(db, run_id, "result") == 1
    assert one(db, "SELECT count(*) FROM pgsched.attempts") == 0


@pytest.mark.long
def test_a_run_whose_process_keeps_dying_is_quarantined(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(1, *APP)
    run_id = add(db, "dies.process", backoff="fixed", backoff_base="0", max_attempts=100)
    wait_until(lambda: state(db, run_id) == "dead", 90, "the quarantine")
    assert of(db, run_id, "reason") == "quarantined: 5 attempts took their process down"
    assert of(db, run_id, "error") == "the child process that ran it ended: exit code 7"
    assert one(db, "SELECT count(*) FROM pgsched.attempts WHERE outcome = 'crashed'") == 5


@pytest.mark.long
@pytest.mark.parametrize("why", ["timeout", "cancel"])
@pytest.mark.parametrize("place", ["thread", "process"])
def test_a_handler_learns_of_a_timeout_or_cancel_wherever_it_runs(
    place: str, why: str, fleet: Fleet, db: psycopg.Connection
) -> None:
    fleet.start(1, *APP)
    # A timeout includes the start of a child process, so another run starts the child process first.
    before = add(db, f"extends.{place}", '{"seconds": 1}')
    wait_until(lambda: state(db, before) == "succeeded", 60, "the one before")
    run_id = add(db, f"obeys.{place}", max_attempts=1, timeout="4 s" if why == "timeout" else None)
    wait_until(lambda: one(db, "SELECT count(*) FROM public.written") == 1, 30, "the start")
    if why == "cancel":
        assert one(db, "SELECT pgsched.cancel(%s)", run_id) == "requested"
    wait_until(lambda: state(db, run_id) in ("dead", "cancelled"), 30, "the end")
    assert state(db, run_id) == ("dead" if why == "timeout" else "cancelled")
    outcome = one(db, "SELECT outcome FROM pgsched.attempts")
    assert outcome == ("timed_out" if why == "timeout" else "cancelled")


@pytest.mark.long
def test_hooks_are_called_in_a_real_worker(
    fleet: Fleet, db: psycopg.Connection, tmp_path: Path, monkeypatch: Any
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("HOOKED_NOTES", str(notes))
    (worker,) = fleet.start(1, "--app", "tests.support.apps.hooked:app", "--lease", "6")
    whats = [("loop", "hi"), ("thread", "value"), ("process", "hi")]
    runs = [add(db, task, json.dumps({"what": what}), max_attempts=1) for task, what in whats]
    late = add(db, "loop", '{"what": "sleeps"}', max_attempts=1, timeout="4 s")
    dying = add(db, "dies", max_attempts=1)
    for run_id in [*runs, late, dying]:
        wait_until(lambda run=run_id: state(db, run) in ("succeeded", "dead"), 60, "the end")  # type: ignore[misc]
    assert [of(db, run_id, "result") for run_id in runs] == ["<hi>", None, "<hi>"]
    told = [line for line in notes.read_text().splitlines() if line.startswith("told ") and ":" in line]
    assert sorted(told) == [
        "told dies Crashed: the child process that ran it ended: exit code 7",
        "told loop TimedOut: timed out after 4 s",
        "told thread ValueError: no",
    ]
    worker.signal(signal.SIGTERM)
    assert worker.ended(40) == 0
    lines = notes.read_text().splitlines()
    assert lines[0] == "start" and lines[-1] == "shutdown"
    assert worker.logged("on_error hook failed") and worker.logged("a hook that fails")
