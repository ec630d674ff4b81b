"""`pgsched worker` and `pgsched leader`: start the long-running processes. `worker list` and `drain`: workers.py."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Apps, Dsn, migrated_database
from pgsched.cli.once import CommandGroup
from pgsched.core.model import Kind
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.config import AlertSettings

JsonLog = Annotated[bool, typer.Option("--json", help="Log lines as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log only warnings and errors.")]
LEASE = "Seconds for which a claim is believed without a heartbeat."
ALLOW = "Kinds this worker may run: task,command,shell,sql,http (repeatable). Default: task."
HTTP_ALLOW = (
    "HTTP jobs and pings may go to this host, host:port, address or CIDR although it is not public (repeatable)."
)
PROCESSES = "Start this many workers and keep them there: one that ends is replaced."
RELOAD = "Start anew when a .py or .toml file below the current folder changes: for development."
MAX_RUNS = "End after so many runs; under --processes a new worker takes over."
MAX_MEMORY = "End when the process takes more than so many MB (exit code 10); under --processes as above."
LOG_BYTES = "Bytes of output kept of an attempt: a quarter its beginning, the rest its end; 0 keeps none."
SQL_DSN = "NAME=DSN: a database that SQL jobs may name (repeatable). In the environment: PGSCHED_SQL_DSN_<NAME>."
SQL_LOGIN = (
    "Run SQL jobs' statements with this DSN: a member of their owners that has no role of pgsched."
    " In the environment: PGSCHED_SQL_LOGIN."
)
SQL_AS_WORKER = "Run them as the worker's login although roles are in force: a text may do what that may."
RUN_AS = "Run commands and shell lines as this user of the machine (needs root)."
KILL_AFTER_MOST = "Seconds after which a run that was told to stop is killed, whatever its kill_after."
DEFAULT_TIMEOUT = "Seconds that an attempt may take if neither call, job nor task gives a timeout. Default: no limit."
METRICS = "Serve metrics for Prometheus, and health: :9464, 127.0.0.1:9464 or [::]:9464."
HEALTH = "Serve only /healthz and /readyz at this address."
WEBHOOK = "Send alerts to this URL, by POST (repeatable). Every machine that may lead needs it."
COMMAND = "Run this program for each alert, with the alert as JSON on its standard input."
APPRISE = (
    "Send alerts to this URL of apprise, under a name that jobs use in alert_to (repeatable)."
    " In the environment: PGSCHED_ALERT_APPRISE_<NAME>."
)
PINGS = "Send the start and end of each run to its job's ping_url."
OTEL = "Set up OpenTelemetry as its OTEL_* variables say, unless the app does."
POLL = "Seconds between polls for work when no notification comes; up to twice that when idle."
REAP = "Seconds between checks for expired claims."

WEBHOOK_VARIABLE = "PGSCHED_ALERT_WEBHOOK"
Webhook = Annotated[list[str] | None, typer.Option(help=WEBHOOK, metavar="URL", envvar=WEBHOOK_VARIABLE)]
Command = Annotated[str | None, typer.Option(help=COMMAND, metavar="CMD", envvar="PGSCHED_ALERT_COMMAND")]
Apprise = Annotated[list[str] | None, typer.Option(help=APPRISE, metavar="NAME=URL")]

OTHER_WORDS = {"python": Kind.TASK}  # other words that --allow takes


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    noun = typer.Typer(cls=CommandGroup, subcommand_metavar="[list|drain]", rich_markup_mode=None)
    noun.callback(invoke_without_command=True)(worker)
    app.add_typer(noun, name="worker", help=worker.__doc__)
    app.command("leader")(leader)


def worker(
    context: typer.Context,
    dsn: Dsn = None,
    app: Apps = None,
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
    default_timeout: Annotated[float | None, typer.Option(help=DEFAULT_TIMEOUT)] = None,
    reap_every: Annotated[float, typer.Option(help=REAP)] = 5.0,
    leader: Annotated[bool, typer.Option("--leader/--no-leader", help="Stand as leader candidate.")] = True,
    processes: Annotated[int | None, typer.Option(help=PROCESSES, min=1, max=1000)] = None,
    reload: Annotated[bool, typer.Option("--reload", help=RELOAD)] = False,
    max_runs: Annotated[int | None, typer.Option(help=MAX_RUNS)] = None,
    max_memory: Annotated[int | None, typer.Option(help=MAX_MEMORY)] = None,
    log_bytes: Annotated[int, typer.Option(help=LOG_BYTES, envvar="PGSCHED_LOG_BYTES")] = 1 << 20,
    metrics: Annotated[str | None, typer.Option(help=METRICS, metavar="[HOST]:PORT")] = None,
    health: Annotated[str | None, typer.Option(help=HEALTH, metavar="[HOST]:PORT")] = None,
    pings: Annotated[bool, typer.Option("--pings/--no-pings", help=PINGS)] = True,
    otel: Annotated[bool, typer.Option("--otel", help=OTEL, envvar="PGSCHED_OTEL")] = False,
    alert_webhook: Webhook = None,
    alert_command: Command = None,
    alert_apprise: Apprise = None,
    json: JsonLog = False,
    quiet: Quiet = False,
) -> None:
    """Run jobs until stopped.

    The one process to start on every machine.

    The first SIGTERM or Ctrl-C drains (no new claims, running handlers get the grace time, the rest is handed back);
    a second one hurries. With --processes the parent passes them on; SIGHUP replaces its workers one by one.

    Example: pgsched worker --concurrency 8 --app myproject.tasks:app
    """
    if context.invoked_subcommand is not None:
        return None
    from pgsched import hidden_environment
    from pgsched.config import PROGRAMS, LeaderSettings, Settings, WorkerSettings, find_sql_dsns, find_sql_login
    from pgsched.execute.output.streams import flush_each_line
    from pgsched.worker.supervision.process_one import leave_process_one
    from pgsched.worker.supervision.supervisor_link import connect_supervisor

    allowed = parse_kinds(",".join(allow or ["task"]))
    hides = bool(PROGRAMS & allowed) and hidden_environment.hide()  # before a child process can inherit the secrets
    link = connect_supervisor() if processes is not None or reload else None
    if processes is None and not reload:
        leave_process_one()
    flush_each_line()
    if json:
        os.environ["PGSCHED_LOG_FORMAT"] = "json"  # for child processes
    if quiet:
        os.environ["PGSCHED_LOG"] = "warning"  # for child processes
    configure_log(json, quiet, **({} if link is None or reload else {"process": link.number}))
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
        default_timeout_s=default_timeout,
        leader=leader,
        max_runs=max_runs,
        max_memory_mb=max_memory,
        log_bytes=log_bytes,
        metrics=metrics,
        health=health,
        otel=otel,
        pings=pings,
    )
    if Kind.SQL not in allowed:
        refuse_sql_options({"sql-dsn": sql_dsn, "sql-login": sql_login})
    if PROGRAMS & allowed:
        log_hiding(hides)
    if otel:
        os.environ["PGSCHED_OTEL"] = "1"  # for child processes
    if link is None and reload:
        return start_reloader(dsn, app, processes)
    if link is None and processes is not None:
        return supervise(processes, dsn, app, metrics, health)
    from pgsched.app.base import import_apps
    from pgsched.worker.process import run_worker

    apps = import_apps(app or ())
    with migrated_database(dsn, next((one.dsn for one in apps if one.dsn is not None), None)) as address:
        alerts = alert_settings(alert_webhook, alert_command, alert_apprise)
        whole = Settings(address, settings, LeaderSettings(reap_every_s=reap_every), alerts)
        run_worker(whole, apps, line=link)
    return None


def refuse_sql_options(given: Mapping[str, Any]) -> None:
    """Raise InputError for an option of SQL jobs. A variable is not refused, because it counts for all workers."""
    for name, value in given.items():
        if value:
            raise InputError(f"{name}: this worker runs no sql jobs: start it with --allow sql as well", name)


def log_hiding(hides: bool) -> None:
    """Log whether other users of the machine can read this process's memory and environment."""
    from pgsched import log

    what = "only root reads this process's memory, environment and core" if hides else "this system hides no process"
    log.get("process").debug(what, why="it may run commands or shell lines")


def supervise(processes: int, dsn: str | None, app: list[str] | None, metrics: str | None, health: str | None) -> None:
    """Become the parent of `processes` workers; end with its exit code.

    Each worker finds the database as this process would. Only workers know the DSN of the app, because this process
    runs no user code. Without an app and a DSN, the embedded server is started once, here.
    """
    from pgsched.worker.supervision.supervisor import supervise as run

    with database_of_children(dsn, app) as address:
        raise typer.Exit(run(processes, address, metrics, health))


def start_reloader(dsn: str | None, app: list[str] | None, processes: int | None) -> None:
    """Become the parent of a worker that is started anew after each change; end with its exit code."""
    from pgsched.worker.supervision.reloader import reload_worker, require_watchfiles

    if processes is not None:
        raise InputError("reload: not together with --processes: it starts one worker anew", "reload")
    require_watchfiles()
    with database_of_children(dsn, app) as address:
        raise typer.Exit(reload_worker(address))


@contextmanager
def database_of_children(dsn: str | None, app: list[str] | None) -> Iterator[str | None]:
    """Yield the DSN of the embedded server for worker processes, None where they find a database themselves."""
    from pgsched.config import find_dsn

    if app or find_dsn(dsn) is not None:
        yield None
        return
    with migrated_database(dsn) as address:
        yield address


def leader(
    dsn: Dsn = None,
    reap_every: Annotated[float, typer.Option(help=REAP)] = 5.0,
    metrics: Annotated[str | None, typer.Option(help=METRICS, metavar="[HOST]:PORT")] = None,
    health: Annotated[str | None, typer.Option(help=HEALTH, metavar="[HOST]:PORT")] = None,
    alert_webhook: Webhook = None,
    alert_command: Command = None,
    alert_apprise: Apprise = None,
    json: JsonLog = False,
    quiet: Quiet = False,
) -> None:
    """Only decide slots and reap; run nothing.

    The leader's duties: tick, admission, reaper, pruner. A candidate beside the others.

    Example: pgsched leader
    """
    from pgsched.config import LeaderSettings, Settings, WorkerSettings
    from pgsched.worker.process import run_leader
    from pgsched.worker.supervision.process_one import leave_process_one

    leave_process_one()
    configure_log(json, quiet)
    with migrated_database(dsn) as address:
        shown = WorkerSettings(metrics=metrics, health=health)
        alerts = alert_settings(alert_webhook, alert_command, alert_apprise)
        run_leader(Settings(address, shown, LeaderSettings(reap_every_s=reap_every), alerts))


def alert_settings(
    webhooks: list[str] | None, command: str | None, named: list[str] | None = None, *, alone: bool = False
) -> AlertSettings:
    """Return where this process sends alerts: to what was given, and to the sinks of the environment.

    `alone`: only to what was given.

    A webhook `PGSCHED_ALERT_WEBHOOK` stands for the value of that variable, where the command line has put it.

    A worker under a parent may get PGSCHED_ALERT_WEBHOOK only after its command line was read, so that variable is read
    here again.
    Raises InputError for a webhook, a command or a URL of apprise that cannot be used.
    """
    from pgsched.config import AlertSettings, find_named_sinks
    from pgsched.leader.alerting.sinks import configured_sinks

    moved = os.environ.get(WEBHOOK_VARIABLE, "").split()
    urls = [url for one in webhooks or () for url in (moved if one == WEBHOOK_VARIABLE else [one])]
    sinks = find_named_sinks(named or ())
    if alone:
        given = {flag.partition("=")[0] for flag in named or ()}
        sinks = {name: url for name, url in sinks.items() if name in given}
    elif not urls:
        urls = moved
    settings = AlertSettings(tuple(urls), (command,) if command else (), sinks)
    configured_sinks(settings)
    return settings


def configure_log(json: bool, quiet: bool = False, **fields: object) -> None:
    """Log to stderr in the format of --json, --quiet, PGSCHED_LOG and PGSCHED_LOG_FORMAT.

    `fields`: added to each line of the log.
    Raises InputError for an unknown level or format.
    """
    from pgsched import log

    level = "warning" if quiet else read_choice("PGSCHED_LOG", "info", log.LEVELS)
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
