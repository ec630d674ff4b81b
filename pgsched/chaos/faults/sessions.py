"""Faults of sessions: ended, killed, silent, blocking others, or not available."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from pgsched.chaos.faults.network import CRASHED, TERM, await_all_working
from pgsched.chaos.registry import fault
from pgsched.chaos.site.proxy import with_application_name
from pgsched.chaos.stage import Stage

CLAIMING = """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
AND application_name LIKE 'pgsched claim%%' LIMIT 1"""
TERMINATE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
AND pid <> pg_backend_pid() AND application_name LIKE 'pgsched%' ORDER BY random() LIMIT 1"""
QUEUED = "SELECT count(*) FROM pgsched.runs WHERE phase = 2 AND state = 'queued'"
FEED = """INSERT INTO pgsched.runs (task, args, max_attempts, backoff_base)
SELECT 'brief', jsonb_build_object('seconds', %s::float8), 20, '1 second' FROM generate_series(1, 400)"""
ENDED = "SELECT count(*) FROM pgsched.runs WHERE finished_at BETWEEN to_timestamp(%s) AND to_timestamp(%s)"
STARTED = "SELECT extract(epoch FROM started_at)::float8 FROM pgsched.runs WHERE id = %s"
LOCK_RUN = "SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE"
LOCK_JOB = "SELECT FROM pgsched.jobs WHERE name = 'chaos-0' FOR UPDATE"
SLOTS_OF = "SELECT count(*) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = %s"
MOST_CONNECTIONS = 2000
SHORT_S = 0.05
# in a storm runs sleep longer: then the rate is that of busy places, and not of a processor that others use as well
LONGER_S = 0.2


def feed(stage: Stage, each_s: float) -> bool:
    """Keep more runs of `each_s` seconds queued than the workers can do. Always return True."""
    if stage.one(QUEUED) < 600:
        stage.db.execute(FEED, [each_s])
    return True


def run_fed_load(stage: Stage, seconds: float, each: Callable[[], object] = bool, each_s: float = SHORT_S) -> float:
    """Let `seconds` pass with runs of `each_s` seconds in the queue, calling `each` twice a second.

    Return how many runs ended per second.
    """
    began = stage.clock()
    tick = began

    def is_over() -> bool:
        nonlocal tick
        feed(stage, each_s)
        if (now := stage.clock()) >= tick:
            tick += 0.5
            each()
        return now >= began + seconds

    stage.wait(is_over, seconds + 30, f"{seconds:g} s of load")
    return float(stage.one(ENDED, began, began + seconds)) / seconds


def await_rate(stage: Stage, rate: float, since: float) -> None:
    """Record how long it takes until the rate of the last 2 s is 90 % of `rate`."""

    def back() -> bool:
        feed(stage, LONGER_S)
        now = stage.clock()
        return now >= since + 1 and float(stage.one(ENDED, now - 2, now)) / 2 >= 0.9 * rate

    stage.wait(back, 60, "nine tenths of the rate")
    stage.figure("back to 90 % of the rate after", stage.clock() - since, bound=10.0)


def terminate_one(stage: Stage) -> None:
    """Terminate a random session of a worker or of the leader."""
    stage.db.execute(TERMINATE)


def terminate_sessions(stage: Stage, seconds: float) -> None:
    """Terminate two sessions a second for `seconds`, and record the rates."""
    before = run_fed_load(stage, 8, each_s=LONGER_S)
    stage.figure("rate before, runs/s", before)
    during = run_fed_load(stage, seconds, lambda: terminate_one(stage), LONGER_S)
    stage.figure("rate meanwhile, runs/s", during)
    await_rate(stage, before, stage.clock())


@fault("sessions-terminated", tier="full", rate=2.0, drain_s=90.0)
def sessions_terminated(stage: Stage) -> None:
    """Terminate a session twice a second for 10 s: the rate is back at 90 % within 10 s."""
    terminate_sessions(stage, 10)


@fault("sessions-terminated-for-a-minute", tier="full", rate=2.0, drain_s=90.0)
def sessions_terminated_long(stage: Stage) -> None:
    """Terminate a session twice a second for 60 s: the rate is back at 90 % within 10 s."""
    terminate_sessions(stage, 60)


@fault("backend-killed", tier="quick")
def backend_killed(stage: Stage) -> None:
    """Kill a server process with SIGKILL: the server ends every session and recovers, and so do all workers."""
    stage.leader()
    pid = stage.one(CLAIMING)
    with stage.outage("the server recovers"):
        began = stage.clock()
        os.kill(pid, signal.SIGKILL)
        stage.wait(lambda: answers_again(stage, pid), 60, "the server to recover")
    stage.figure("the server was back after", stage.clock() - began)
    await_all_working(stage, bound=15.0)


def answers_again(stage: Stage, pid: int) -> bool:
    """Check whether the server answers, and this process has ended."""
    try:
        return not stage.one("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid)
    except psycopg.Error:
        return False


@fault("backend-frozen", tier="full")
def backend_frozen(stage: Stage) -> None:
    """Freeze a server process while its kernel acknowledges data: the worker drops it and works within 45 s."""
    stage.leader()
    pid = stage.one(CLAIMING)
    os.kill(pid, signal.SIGSTOP)
    try:
        await_all_working(stage, bound=45.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@fault("listen-lost", tier="full", jobs=0, rate=0.0, poll_s=None)
def listen_lost(stage: Stage) -> None:
    """Silence the LISTEN connections, then cut them: runs start within two poll periods, later at once again."""
    stage.leader()
    stage.proxy.silence("down", which=with_application_name("pgsched listen"))
    stage.figure("longest pick-up while nobody hears, poll period 1 s", longest_pick_up(stage), bound=2.5)
    stage.proxy.cut(with_application_name("pgsched listen"))
    stage.figure("longest pick-up right after the connections broke", longest_pick_up(stage), bound=2.5)
    heard = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgsched listen%%' AND state = 'idle'"
    stage.wait(lambda: stage.one(heard) >= stage.options.workers, 20, "the LISTEN connections to be back")
    stage.figure("longest pick-up with the connections back", longest_pick_up(stage), bound=2.5)


def longest_pick_up(stage: Stage) -> float:
    """Enqueue ten runs one by one; return the longest time from enqueue to start, in seconds."""
    waits = []
    for _ in range(10):
        sent_at = stage.clock()
        run = stage.enqueue("brief")
        stage.wait(lambda: stage.state(run) == "succeeded", 20, "a run to succeed")  # noqa: B023
        waits.append(float(stage.one(STARTED, run)) - sent_at)
    return max(waits)


@contextmanager
def open_transaction(stage: Stage, *statements: tuple[str, list[object]]) -> Iterator[None]:
    """Execute these statements in another transaction, which stays open until the end of the block."""
    with psycopg.connect(stage.dsn, application_name="chaos stage") as conn:
        for text, values in statements:
            conn.execute(text.encode(), values)
        yield
        conn.rollback()


def long_transaction(stage: Stage, seconds: float) -> None:
    """Pin xmin by an open transaction for `seconds` while work goes on, and record the rates."""
    before = run_fed_load(stage, 6)
    pin: tuple[tuple[str, list[object]], ...] = (
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", []),
        ("SELECT count(*) FROM pgsched.runs", []),
    )
    with open_transaction(stage, *pin):
        during = run_fed_load(stage, seconds)
    stage.figure("rate before, runs/s", before)
    stage.figure(f"rate with a transaction open for {seconds:g} s, runs/s", during)
    stage.figure("part of the rate that was lost, %", max(0.0, 100 * (1 - during / before)), bound=40)


@fault("long-transaction", tier="full", rate=2.0, drain_s=90.0)
def long_transaction_quick(stage: Stage) -> None:
    """Pin xmin by a forgotten transaction for 10 s: work goes on."""
    long_transaction(stage, 10)


@fault("long-transaction-for-minutes", tier="full", rate=2.0, drain_s=120.0)
def long_transaction_full(stage: Stage) -> None:
    """Pin xmin by a forgotten transaction for three minutes: work goes on."""
    long_transaction(stage, 180)


@fault("table-locked", tier="quick")
def table_locked(stage: Stage) -> None:
    """Lock runs in ACCESS EXCLUSIVE mode for 5 s, longer than a lease: no claim is reaped, the leader stays."""
    stage.leader()
    term, crashed = stage.one(TERM), stage.one(CRASHED)
    with stage.outage("the table is locked"):
        began = stage.clock()
        with open_transaction(stage, ("LOCK TABLE pgsched.runs IN ACCESS EXCLUSIVE MODE", [])):
            stage.wait(lambda: stage.clock() > began + 5, 20, "five seconds")
    await_all_working(stage)
    stage.figure("claims reaped", stage.one(CRASHED) - crashed, bound=0)
    stage.figure("new terms", stage.one(TERM) - term, bound=0)


@fault("row-locked", tier="full")
def row_locked(stage: Stage) -> None:
    """Lock the row of a running run for two leases: other runs go on, and the run is settled once afterwards."""
    run = stage.enqueue("hold", gate="row")
    stage.wait(lambda: stage.events(run), 15, "the run to start")
    crashed = stage.one(CRASHED)
    with open_transaction(stage, (LOCK_RUN, [run])):
        began = stage.clock()
        stage.open_gate("row")
        stage.wait(lambda: stage.clock() > began + 2 * stage.lease_s, 30, "two leases")
        during = stage.one(ENDED, began, stage.clock()) / (2 * stage.lease_s)
    stage.figure("runs ended a second beside it", during)
    stage.wait(lambda: stage.state(run) == "succeeded", 20, "the run to be settled")
    stage.figure("claims of others reaped", stage.one(CRASHED) - crashed, bound=1)
    stage.figure("starts of the locked run", len(stage.events(run)), bound=2)


@fault("job-locked", tier="full")
def job_locked(stage: Stage) -> None:
    """Lock the row of a job for 6 s: other jobs' slots are on time, and that job's slots follow."""
    stage.leader()
    with open_transaction(stage, (LOCK_JOB, [])):
        began = stage.clock()
        mine, others = stage.one(SLOTS_OF, "chaos-0"), stage.one(SLOTS_OF, "chaos-1")
        stage.wait(lambda: stage.clock() > began + 6, 30, "six seconds")
        stage.note(f"meanwhile: {stage.one(SLOTS_OF, 'chaos-0') - mine} slots of the job that is held,"
                   f" {stage.one(SLOTS_OF, 'chaos-1') - others} of another")  # fmt: skip
        stage.figure("slots of another job that are missing", max(0, 5 - (stage.one(SLOTS_OF, "chaos-1") - others)), 0)
    freed = stage.clock()
    stage.wait(lambda: stage.one(SLOTS_OF, "chaos-0") >= mine + 6, 20, "the slots of the job that was held")
    stage.figure("its slots followed after", stage.clock() - freed, bound=5.0)


@fault("out-of-connections", tier="full")
def out_of_connections(stage: Stage) -> None:
    """Take all connections: a new worker gives up and says why; the others are back within 10 s of a free one."""
    stage.leader()
    with stage.outage("no connection is to be had"), taken_connections(stage) as taken:
        stage.proxy.cut()
        taken()
        began = stage.clock()
        newcomer = stage.fleet.launch(*stage.worker_options())
        newcomer.ended_by = "no connection"
        code = newcomer.ended(60)
        stage.figure("a new worker gives up", stage.clock() - began, bound=30.0)
        log_lines = newcomer.log.read_text(errors="replace").strip().splitlines() or [""]
        stage.note(f"it ended with {code}: {log_lines[-1]}")
        stage.figure("a new worker that ends well without a connection", int(code == 0), bound=0)
        stage.wait(lambda: stage.clock() > began + 8, 30, "eight seconds")
    await_all_working(stage)


@contextmanager
def taken_connections(stage: Stage) -> Iterator[Callable[[], None]]:
    """Take all free connections, and again when the yielded function is called; free them after the block."""
    with contextlib.ExitStack() as connections:

        def take() -> None:
            for _ in range(MOST_CONNECTIONS):
                try:
                    connections.callback(psycopg.connect(stage.dsn, application_name="chaos stage").close)
                except psycopg.OperationalError:
                    return

        take()
        yield take
