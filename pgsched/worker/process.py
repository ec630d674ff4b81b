"""One worker process: a worker, a leader candidate in its own thread, and the signals that stop both.

SIGTERM and SIGINT drain the worker, and so does the SIGHUP of a closed terminal. A second signal makes it hurry. An end
for any other reason has its own exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING

import pgsched
from pgsched import gc_tuning, hidden_environment, log
from pgsched.app.release import releases
from pgsched.config import Settings
from pgsched.core.model import Kind
from pgsched.db.connection import failover, pooler
from pgsched.db.connection.connect import connect, ssl_problem
from pgsched.db.connection.dsn import describe_database
from pgsched.db.queries.runs import sql_rights, workers
from pgsched.db.schema import version
from pgsched.errors import InputError, PgschedError
from pgsched.execute import signal_isolation
from pgsched.execute.output.record import Journal
from pgsched.execute.registry import make_executors
from pgsched.leader.election import Leader
from pgsched.telemetry import otel, tracing
from pgsched.threads import run_in_thread
from pgsched.worker import shutdown
from pgsched.worker.alerts import alerting
from pgsched.worker.observers.events import NO_EVENTS
from pgsched.worker.process_endpoint import ProcessEndpoints
from pgsched.worker.watching.memory_limit import check_memory
from pgsched.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgsched.app.base import AppBase
    from pgsched.worker.observers.tracing import Tracing
    from pgsched.worker.supervision.supervisor_link import SupervisorLink

logger = log.get("process")
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def process_name() -> str:
    """Return this process's name in `workers` and `leader`: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def prepare(settings: Settings) -> None:
    """Check the schema, and log what is unwise. Raises PgschedError."""
    failover.learn_timelines(settings.dsn)
    with connect(settings.dsn, purpose="worker") as conn:
        version.check_version(conn)
        if problem := ssl_problem(conn):
            logger.warning(problem)
        if mode := pooler.pooler_of(conn):
            logger.info("a pooler is on the way", mode=str(mode))


def refuse_other_database(dsn: str, app_dsn: str) -> None:
    """Raise InputError where the two connection strings lead to different databases.

    Otherwise runs that the app enqueues would never run here. Two ways to one database (past a pooler) are fine.
    """
    found = []
    for one in (dsn, app_dsn):
        with connect(one, purpose="worker") as conn:
            found.append(workers.which_database(conn))
    if found[0] != found[1]:
        raise InputError(
            f"dsn: the app is made for {describe_database(app_dsn)}, and this worker was told to serve"
            f" {describe_database(dsn)}: leave out --dsn (or PGSCHED_DSN, or DATABASE_URL), or the dsn of App(...)",
            "dsn",
        )


def run_worker(
    settings: Settings,
    app: AppBase | None = None,
    on_start: Callable[[Worker], None] | None = None,
    line: SupervisorLink | None = None,
) -> None:
    """Run one worker process to its end; `line` leads to its supervisor.

    Raises PgschedError where it cannot start, or cannot go on.
    """
    if app is not None and app.dsn is None:
        app.dsn = settings.dsn  # a handler that enqueues uses this database, wherever the DSN came from
    prepare(settings)
    if app is None and Kind.TASK in settings.worker.allow:
        logger.warning("no --app: this worker runs no task of Python code", kinds=sorted(settings.worker.allow))
    if app is not None and app.dsn is not None and app.dsn != settings.dsn:
        refuse_other_database(settings.dsn, app.dsn)
    if Kind.SQL in settings.worker.allow:
        sql_rights.refuse_rights(settings.dsn, settings.worker.sql_login, as_worker=settings.worker.sql_as_worker)
    gc_tuning.tune_for_long_run()
    check_memory(settings.worker.max_memory_mb)
    restore_sigchld()
    with ProcessEndpoints(settings, under_supervisor=line is not None) as observed:
        shutdown.run_loop(lambda: work_until_drained(settings, app, on_start, line, observed))


def restore_sigchld() -> None:
    """Restore the default of SIGCHLD where the parent process ignores it.

    Otherwise the kernel would report no exit codes to this process, and its commands would ignore the signal too.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


async def work_until_drained(
    settings: Settings,
    app: AppBase | None,
    on_start: Callable[[Worker], None] | None = None,
    line: SupervisorLink | None = None,
    observed: ProcessEndpoints | None = None,
) -> None:
    """Run the asyncio part of `run_worker`; return when drained."""
    if app is None:
        return await run_between_hooks(settings, app, on_start, line, observed)
    await app.hooks.start([task.name for task in app.tasks.values() if task.is_async])
    try:
        await run_between_hooks(settings, app, on_start, line, observed)
    finally:
        await app.hooks.shutdown()


async def run_between_hooks(
    settings: Settings,
    app: AppBase | None,
    on_start: Callable[[Worker], None] | None,
    line: SupervisorLink | None,
    observed: ProcessEndpoints | None,
) -> None:
    """Run the worker between the app's on_start and on_shutdown hooks.

    Errors in the settings are raised before anything is registered.
    """
    hidden_environment.drop()  # only now, because the app's hooks may read the secrets
    loop = asyncio.get_running_loop()
    worker = make_worker(settings, app, observed, declares=True)
    traced = trace(settings, worker)
    handled = [*SIGNALS, *([] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP])]
    for number in handled:
        # a service manager may signal every process, so under a supervisor only the supervisor makes this one hurry
        loop.add_signal_handler(number, *((worker.stop,) if line is None else (worker.ending.stop_at_least, 1)))
        # The event loop gets signals through a descriptor; this handler is also called while the loop is blocked.
        signal.signal(number, lambda *_: worker.ending.signal_received())
        signal.siginterrupt(number, False)
    signal_isolation.reset_in_children(handled)
    if line is not None:
        worker.ending.report_state = line.say
        line.on_stop(lambda times: loop.call_soon_threadsafe(worker.ending.stop_at_least, times))
    leader = Leader(
        settings.dsn,
        settings.leader,
        process_name(),
        on_fatal=lambda error: loop.call_soon_threadsafe(worker.ending.fail, error),
    )
    if observed is not None:
        observed.watch(worker, leader)
    thread = threading.Thread(target=leader.run, name="pgsched-leader", daemon=True)
    if on_start is not None:
        on_start(worker)
    try:
        worker.register()
        if settings.worker.leader:  # not earlier: jobs that the code no longer declares must not fire again
            thread.start()
        with alerting(settings, leader, stands=settings.worker.leader):
            await worker.run()
    finally:
        if thread.is_alive():
            leader.stop()
            await run_in_thread(partial(thread.join, 3.0))
        for number in handled:
            loop.remove_signal_handler(number)
        signal_isolation.clear_reset_signals()
        if traced is not None:
            await traced.close()


def trace(settings: Settings, worker: Worker) -> Tracing | None:
    """Trace the worker's attempts where the app has set up tracing or `otel` asks for it. Raises InputError."""
    if settings.worker.otel:
        otel.set_up()
    if not tracing.is_enabled():
        return None
    from pgsched.worker.observers.tracing import trace_attempts

    return trace_attempts(worker)


def make_worker(
    settings: Settings, app: AppBase | None, observed: ProcessEndpoints | None = None, *, declares: bool = False
) -> Worker:
    """Return a worker with an executor for each allowed kind.

    `declares`: the worker writes the jobs that the app's code declares.
    """
    mine = settings.worker
    journal = Journal(mine.log_bytes)
    chosen = make_executors(app, mine, settings.dsn, journal)
    registration = workers.Registration(
        name=process_name(),
        version=pgsched.__version__,
        app=None if app is None else app.name,
        concurrency=mine.concurrency,
        queues=list(mine.queues) or None,
        kinds=sorted(chosen),
        tasks=sorted(app.tasks) if app is not None and Kind.TASK in chosen else [],
        lease_s=mine.lease_s,
        jobs=app.jobs if app is not None and declares else None,
        # two programs that are both named main must not delete each other's jobs
        removes=app is not None and declares and app.named,
        releases=releases(app.tasks.values()) if app is not None and declares and Kind.TASK in chosen else None,
    )
    events = NO_EVENTS if observed is None or observed.worker_meter is None else observed.worker_meter
    return Worker(settings.dsn, mine, chosen, registration, journal, events)


def run_leader(settings: Settings) -> None:
    """Run only the leader's duties, until a signal. Raises PgschedError where no retry can help."""
    prepare(settings)
    gc_tuning.tune_for_long_run()
    fatal: list[PgschedError] = []
    leader = Leader(settings.dsn, settings.leader, process_name(), on_fatal=fatal.append)
    observed = ProcessEndpoints(settings)
    before = {number: signal.signal(number, lambda *_: leader.stop()) for number in SIGNALS}
    try:
        with observed:
            observed.watch(None, leader)
            with alerting(settings, leader, stands=True):
                leader.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if fatal:
        raise fatal[0]
