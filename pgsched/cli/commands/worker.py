"""`pgsched worker` and `pgsched leader`: the commands that start the long-running processes."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.common import Dsn, migrated_database
from pgsched.core.model import Kind
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.config import AlertSettings

JsonLog = Annotated[bool, typer.Option("--json", help="Log lines as JSON.")]
LEASE = "Seconds for which a claim is believed without a heartbeat."
ALLOW = "Kinds this worker may run: task,command,shell,sql,http (repeatable). Default: task."
HTTP_ALLOW = "HTTP jobs may go to this host, host:port, address or CIDR although it is not public (repeatable)."
PROCESSES = "Start this many workers and keep them there: one that ends is replaced."
MAX_RUNS = "End after so many runs; under --processes a new worker takes over."
MAX_MEMORY = "End when the process takes more than so many MB (exit code 10); under --processes as above."
LOG_BYTES = "Bytes of output kept of an attempt: a quarter its beginning, the rest its end; 0 keeps none."
SQL_DSN = "NAME=DSN: a database that SQL jobs may name (repeatable). In the environment: PGSCHED_SQL_DSN_NAME."
SQL_LOGIN = (
    "Run SQL jobs' statements with this DSN: a member of their owners that has no role of pgsched."
    " In the environment: PGSCHED_SQL_LOGIN."
)
SQL_AS_WORKER = "Run them as the worker's login although roles are in force: a text may do what that may."
RUN_AS = "Run commands and shell lines as this user of the machine (needs root)."
KILL_AFTER_MOST = "Seconds after which a run that was told to stop is killed, whatever its kill_after."
METRICS = "Serve metrics for Prometheus, and health: :9464, 127.0.0.1:9464 or [::]:9464."
HEALTH = "Serve only /healthz and /readyz at this address."
WEBHOOK = "Send alerts to this URL, by POST (repeatable). Every machine that may lead needs it."
COMMAND = "Run this program for each alert, with the alert as JSON on its standard input."
OTEL = "Set up OpenTelemetry as its OTEL_* variables say, unless the app does."
POLL = "Seconds between polls for work when no notification comes; up to twice that when idle."
REAP = "Seconds between checks for expired claims."

Webhook = Annotated[list[str] | None, typer.Option(help=WEBHOOK, metavar="URL", envvar="PGSCHED_ALERT_WEBHOOK")]
Command = Annotated[str | None, typer.Option(help=COMMAND, metavar="CMD", envvar="PGSCHED_ALERT_COMMAND")]

OTHER_WORDS = {"python": Kind.TASK}  # other words that --allow takes


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("worker")(worker)
    app.command("leader")(leader)


def worker(
    dsn: Dsn = None,
    app: Annotated[str | None, typer.Option("--app", help="Where the tasks are: package.module:app")] = None,
    concurrency: Annotated[int, typer.Option(help="Runs at the same time.")] = 8,
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue (repeatable). Default: all.")] = None,
    allow: Annotated[list[str] | None, typer.Option(help=ALLOW)] = None,
    http_allow: Annotated[list[str] | None, typer.Option(help=HTTP_ALLOW)] = None,
    sql_dsn: Annotated[list[str] | None, typer.Option(help=SQL_DSN)] = None,
    sql_login: Annotated[str | None, typer.Option(help=SQL_LOGIN, metavar="DSN")] = None,
    sql_as_worker: Annotated[bool, typer.Option("--sql-as-worker", help=SQL_AS_WORKER)] = False,
    run_as: Annotated[str | None, typer.Option(help=RUN_AS, metavar="USER")] = None,
    lease: Annotated[float, typer.Option(help=LEASE)] = 30.0,
    poll: Annotated[float, typer.Option(help=POLL)] = 1.0,
    grace: Annotated[float, typer.Option(help="Seconds that running handlers get after SIGTERM.")] = 25.0,
    kill_after_most: Annotated[float, typer.Option(help=KILL_AFTER_MOST)] = 60.0,
    reap_every: Annotated[float, typer.Option(help=REAP)] = 5.0,
    leader: Annotated[bool, typer.Option("--leader/--no-leader", help="Stand as leader candidate.")] = True,
    processes: Annotated[int | None, typer.Option(help=PROCESSES, min=1, max=1000)] = None,
    max_runs: Annotated[int | None, typer.Option(help=MAX_RUNS)] = None,
    max_memory: Annotated[int | None, typer.Option(help=MAX_MEMORY)] = None,
    log_bytes: Annotated[int, typer.Option(help=LOG_BYTES, envvar="PGSCHED_LOG_BYTES")] = 1 << 20,
    metrics: Annotated[str | None, typer.Option(help=METRICS, metavar="[HOST]:PORT")] = None,
    health: Annotated[str | None, typer.Option(help=HEALTH, metavar="[HOST]:PORT")] = None,
    otel: Annotated[bool, typer.Option("--otel", help=OTEL, envvar="PGSCHED_OTEL")] = False,
    alert_webhook: Webhook = None,
    alert_command: Command = None,
    json: JsonLog = False,
) -> None:
    """Run jobs until stopped.

    The one process to start on every machine.

    The first SIGTERM or Ctrl-C drains (no new claims, running handlers get the grace time, the rest is handed back);
    a second one hurries. With --processes the parent passes them on; SIGHUP replaces its workers one by one.

    Example: pgsched worker --concurrency 8 --app myproject.tasks:app
    """
    from pgsched import hidden_environment
    from pgsched.config import PROGRAMS, LeaderSettings, Settings, WorkerSettings, find_sql_dsns, find_sql_login
    from pgsched.execute.output.streams import flush_each_line
    from pgsched.worker.supervision.process_one import leave_process_one
    from pgsched.worker.supervision.supervisor_link import connect_supervisor

    allowed = parse_kinds(",".join(allow or ["task"]))
    hides = bool(PROGRAMS & allowed) and hidden_environment.hide()  # before a child process can inherit the secrets
    link = connect_supervisor() if processes is not None else None
    if processes is None:
        leave_process_one()
    flush_each_line()
    if json:
        os.environ["PGSCHED_LOG_FORMAT"] = "json"  # for child processes
    configure_log(json, **({} if link is None else {"process": link.number}))
    settings = WorkerSettings(
        concurrency=concurrency,
        queues=tuple(queue or ()),
        allow=allowed,
        http_allow=tuple(http_allow or ()),
        sql_dsns=find_sql_dsns(sql_dsn or ()),
        sql_login=find_sql_login(sql_login) if Kind.SQL in allowed else None,
        sql_as_worker=sql_as_worker,
        run_as=run_as,
        lease_s=lease,
        poll_s=poll,
        grace_s=grace,
        kill_after_most_s=kill_after_most,
        leader=leader,
        max_runs=max_runs,
        max_memory_mb=max_memory,
        log_bytes=log_bytes,
        metrics=metrics,
        health=health,
        otel=otel,
    )
    for name, given in (("sql-dsn", sql_dsn), ("sql-login", sql_login)):
        # a variable counts for all workers of the host, so it is not refused
        if given and Kind.SQL not in allowed:
            raise InputError(f"{name}: this worker runs no sql jobs: start it with --allow sql as well", name)
    if PROGRAMS & allowed:
        log_hiding(hides)
    if otel:
        os.environ["PGSCHED_OTEL"] = "1"  # for child processes
    if processes is not None and link is None:
        return supervise(processes, dsn, app, metrics, health)
    from pgsched.worker.process import run_worker

    tasks = None
    if app is not None:
        from pgsched.app.base import import_app

        tasks = import_app(app)
    with migrated_database(dsn, tasks.dsn if tasks is not None else None) as address:
        whole = Settings(
            address, settings, LeaderSettings(reap_every_s=reap_every), alert_settings(alert_webhook, alert_command)
        )
        run_worker(whole, tasks, line=link)
    return None


def log_hiding(hides: bool) -> None:
    """Log whether other users of the machine can read this process's memory and environment."""
    from pgsched import log

    what = "only root reads this process's memory, environment and core" if hides else "this system hides no process"
    log.get("process").debug(what, why="it may run commands or shell lines")


def supervise(processes: int, dsn: str | None, app: str | None, metrics: str | None, health: str | None) -> None:
    """Become the parent of `processes` workers; end with its exit code.

    Each worker finds the database as this process would. Only workers know the DSN of the app, because this process
    runs no user code. Without an app and a DSN, the embedded server is started once, here.
    """
    from pgsched.config import find_dsn
    from pgsched.worker.supervision.supervisor import supervise as run

    if app is not None or find_dsn(dsn) is not None:
        raise typer.Exit(run(processes, None, metrics, health))
    with migrated_database(dsn) as address:
        raise typer.Exit(run(processes, address, metrics, health))


def leader(
    dsn: Dsn = None,
    reap_every: Annotated[float, typer.Option(help=REAP)] = 5.0,
    metrics: Annotated[str | None, typer.Option(help=METRICS, metavar="[HOST]:PORT")] = None,
    health: Annotated[str | None, typer.Option(help=HEALTH, metavar="[HOST]:PORT")] = None,
    alert_webhook: Webhook = None,
    alert_command: Command = None,
    json: JsonLog = False,
) -> None:
    """Only decide slots and reap; run nothing.

    The leader's duties: tick, admission, reaper, pruner. A candidate beside the others.

    Example: pgsched leader
    """
    from pgsched.config import LeaderSettings, Settings, WorkerSettings
    from pgsched.worker.process import run_leader
    from pgsched.worker.supervision.process_one import leave_process_one

    leave_process_one()
    configure_log(json)
    with migrated_database(dsn) as address:
        shown = WorkerSettings(metrics=metrics, health=health)
        alerts = alert_settings(alert_webhook, alert_command)
        run_leader(Settings(address, shown, LeaderSettings(reap_every_s=reap_every), alerts))


def alert_settings(webhooks: list[str] | None, command: str | None) -> AlertSettings:
    """Return where this process sends alerts.

    A worker under a parent may get PGSCHED_ALERT_WEBHOOK only after its command line was read, so that variable is read
    here again.
    Raises InputError for a webhook or command that cannot be used.
    """
    from pgsched.config import AlertSettings
    from pgsched.leader.alerting.sinks import configured_sinks

    urls = webhooks or os.environ.get("PGSCHED_ALERT_WEBHOOK", "").split()
    settings = AlertSettings(tuple(urls), (command,) if command else ())
    configured_sinks(settings)
    return settings


def configure_log(json: bool, **fields: object) -> None:
    """Log to stderr in the format of --json, PGSCHED_LOG and PGSCHED_LOG_FORMAT.

    `fields`: added to each line of the log.
    Raises InputError for an unknown level or format.
    """
    from pgsched import log

    level = read_choice("PGSCHED_LOG", "info", log.LEVELS)
    fmt = "json" if json else read_choice("PGSCHED_LOG_FORMAT", "console", log.FORMATS)
    log.configure(level, fmt, **fields)


def read_choice(name: str, otherwise: str, known: Collection[str]) -> str:
    """Return the value of an environment variable, or `otherwise` if it is not set.

    Raises InputError for a value that is not in `known`.
    """
    value = os.environ.get(name) or otherwise
    if value not in known:
        raise InputError(f"{name}: {value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}", name)
    return value


def parse_kinds(text: str) -> frozenset[Kind]:
    """Return the kinds in a comma-separated list; `python` is another word for `task`.

    Raises InputError for an unknown kind and for an empty list.
    """
    names = [OTHER_WORDS.get(word, word) for name in text.split(",") if (word := name.strip())]
    unknown = [name for name in names if name not in list(Kind)]
    if unknown or not names:
        hint = did_you_mean(unknown[0], Kind) if unknown else ""
        raise InputError(f"allow: {', '.join(unknown) or 'nothing'} is not one of {', '.join(Kind)}{hint}", "allow")
    return frozenset(Kind(name) for name in names)
