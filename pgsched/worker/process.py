"""One worker process: a worker for each app, a leader candidate in its own thread, and the signals that stop both.

SIGTERM and SIGINT drain the worker, and so does the SIGHUP of a closed terminal. A second signal makes it hurry. An end
for any other reason has its own exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
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
from pgsched.worker import shutdown
from pgsched.worker.alerts import alerting
from pgsched.worker.ending import WorkerEnd
from pgsched.worker.observers.events import NO_EVENTS
from pgsched.worker.observers.job_events import JobListener, job_events
from pgsched.worker.observers.pings import Pings
from pgsched.worker.process_endpoint import ProcessEndpoints
from pgsched.worker.together import report_as_one, work_together
from pgsched.worker.watching.memory_limit import check_memory
from pgsched.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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
            f" {describe_database(dsn)}: leave out --dsn (or PGSCHED_DSN), or the dsn of App(...)",
            "dsn",
        )


def run_worker(
    settings: Settings,
    apps: Sequence[AppBase] = (),
    line: SupervisorLink | None = None,
) -> None:
    """Run one worker process to its end, with one worker for each app; `line` leads to its supervisor.

    Raises PgschedError where it cannot start, or cannot go on.
    """
    for app in apps:
        if app.dsn is None:
            app.dsn = settings.dsn  # a handler that enqueues uses this database, wherever the DSN came from
    prepare(settings)
    if not apps and Kind.TASK in settings.worker.allow:
        logger.warning(no_app(settings.worker.allow))
    for app in apps:
        if app.dsn is not None and app.dsn != settings.dsn:
            refuse_other_database(settings.dsn, app.dsn)
    refuse_sql_rights(settings)
    gc_tuning.tune_for_long_run()
    check_memory(settings.worker.max_memory_mb)
    restore_sigchld()
    with ProcessEndpoints(settings, under_supervisor=line is not None) as observed:
        shutdown.run_loop(lambda: work_until_drained(settings, apps, line, observed))


def no_app(allow: Collection[str]) -> str:
    """Return the warning about a worker without an app, which says what the worker can run all the same."""
    others = sorted(set(allow) - {Kind.TASK})
    can = f"only runs of kind {', '.join(others)}" if others else "nothing at all, it can only lead"
    more = "" if others else ", or --allow command,shell,sql,http"
    return f"no --app: this worker runs no task of Python code: {can}; give --app package.module:app{more}"


def refuse_sql_rights(settings: Settings) -> None:
    """Raise InputError where SQL jobs would run with rights that their owners do not have."""
    if Kind.SQL in settings.worker.allow:
        sql_rights.refuse_rights(settings.dsn, settings.worker.sql_login, as_worker=settings.worker.sql_as_worker)


def restore_sigchld() -> None:
    """Restore the default of SIGCHLD where the parent process ignores it.

    Otherwise the kernel would report no exit codes to this process, and its commands would ignore the signal too.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


async def work_until_drained(
    settings: Settings,
    apps: Sequence[AppBase],
    line: SupervisorLink | None = None,
    observed: ProcessEndpoints | None = None,
) -> None:
    """Run the asyncio part of `run_worker`, between the apps' on_start and on_shutdown hooks; return when drained."""
    started: list[AppBase] = []
    try:
        for app in apps:
            await app.hooks.start([task.name for task in app.tasks.values() if task.is_async])
            started.append(app)
        await run_between_hooks(settings, apps, line, observed)
    finally:
        for app in reversed(started):
            await app.hooks.shutdown()


async def run_between_hooks(
    settings: Settings,
    apps: Sequence[AppBase],
    line: SupervisorLink | None,
    observed: ProcessEndpoints | None,
) -> None:
    """Run the workers between the hooks. Errors in the settings are raised before anything is registered."""
    hidden_environment.drop()  # only now, because the apps' hooks may read the secrets
    loop = asyncio.get_running_loop()
    workers = make_workers(settings, apps, observed)
    first = workers[0].ending
    traced = [trace(settings, worker) for worker in workers]

    def each(call: Callable[[WorkerEnd], object]) -> None:
        for worker in workers:
            call(worker.ending)

    handled = [*SIGNALS, *([] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP])]
    for number in handled:
        # a service manager may signal every process, so under a supervisor only the supervisor makes this one hurry
        asked: Callable[[WorkerEnd], object] = WorkerEnd.stop if line is None else stop_at_least(1)
        loop.add_signal_handler(number, each, asked)
        # The event loop gets signals through a descriptor; this handler is also called while the loop is blocked.
        signal.signal(number, lambda *_: each(WorkerEnd.signal_received))
        signal.siginterrupt(number, False)
    signal_isolation.reset_in_children(handled)
    if line is not None:
        report_as_one([worker.ending for worker in workers], line.say)
        line.on_stop(lambda times: loop.call_soon_threadsafe(each, stop_at_least(times)))
    leader = Leader(
        settings.dsn,
        settings.leader,
        process_name(),
        on_fatal=lambda error: loop.call_soon_threadsafe(first.fail, error),
    )
    if observed is not None:
        observed.watch(workers, leader)
    try:
        await work_together(workers, leader, settings)
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
        signal_isolation.clear_reset_signals()
        for one in traced:
            if one is not None:
                await one.close()


def stop_at_least(times: int) -> Callable[[WorkerEnd], None]:
    """Return a call that stops a worker until `times` stops were requested."""
    return lambda ending: ending.stop_at_least(times)


def make_workers(settings: Settings, apps: Sequence[AppBase], observed: ProcessEndpoints | None) -> list[Worker]:
    """Return a worker for each app, or one without an app; only the first one runs other kinds than tasks.

    Raises InputError.
    """
    workers = [make_worker(settings, apps[0] if apps else None, observed, declares=True)]
    if len(apps) > 1 and Kind.TASK not in settings.worker.allow:
        raise InputError("allow: several apps need the kind task: add --allow task", "allow")
    tasks_only = replace(
        settings.worker, allow=frozenset({Kind.TASK}), run_as=None, sql_as_worker=False, sql_login=None,
        http_allow=settings.worker.http_allow if settings.worker.pings else (),
    )  # fmt: skip
    for number, app in enumerate(apps[1:], 2):
        others = replace(settings, worker=tasks_only)
        workers.append(make_worker(others, app, observed, declares=True, name=f"{process_name()}/{number}"))
    return workers


def trace(settings: Settings, worker: Worker) -> Tracing | None:
    """Trace the worker's attempts where the app has set up tracing or `otel` asks for it. Raises InputError."""
    if settings.worker.otel:
        otel.set_up()
    if not tracing.is_enabled():
        return None
    from pgsched.worker.observers.tracing import trace_attempts

    return trace_attempts(worker)


def make_worker(
    settings: Settings,
    app: AppBase | None,
    observed: ProcessEndpoints | None = None,
    *,
    declares: bool = False,
    name: str | None = None,
) -> Worker:
    """Return a worker with an executor for each allowed kind.

    `declares`: the worker writes the jobs that the app's code declares. `name`: its name in `workers`.
    """
    mine = settings.worker
    journal = Journal(mine.log_bytes)
    chosen = make_executors(app, mine, settings.dsn, journal)
    registration = workers.Registration(
        name=name or process_name(),
        version=pgsched.__version__,
        app=None if app is None else app.name,
        concurrency=mine.concurrency,
        queues=list(mine.queues) or None,
        kinds=sorted(chosen),
        tasks=sorted(app.tasks) if app is not None and Kind.TASK in chosen else [],
        lease_s=mine.lease_s,
        jobs=app.declared_jobs if app is not None and declares else None,
        releases=releases(app.tasks.values()) if app is not None and declares and Kind.TASK in chosen else None,
    )
    meter = NO_EVENTS if observed is None or observed.worker_meter is None else observed.worker_meter
    listeners: list[JobListener] = [Pings(mine.http_allow)] if mine.pings else []
    if app is not None:
        listeners += [make(settings.dsn) for make in app.hooks.job_listeners]
    events = job_events(meter, listeners)
    worker = Worker(settings.dsn, mine, chosen, registration, journal, events)
    events.attach(worker.runner)
    return worker


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
            observed.watch((), leader)
            with alerting(settings, leader, stands=True):
                leader.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if fatal:
        raise fatal[0]
