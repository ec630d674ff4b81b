"""Settings of a process: flags come first, then the environment, a settings file (for commands), the defaults here.

Every duration is in seconds. A process needs only the DSN. Without one, commands use the embedded server; an App does
so where it is allowed to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pgsched import hidden_environment
from pgsched.database_urls import other_product
from pgsched.errors import DatabaseUnreachable, InputError

ENVIRONMENT = {
    "PGSCHED_DSN": "connection string of the database (DATABASE_URL is read after it)",
    "PGSCHED_EMBEDDED": "1: an App for which nothing names a database may use the embedded server, as commands do",
    "PGSCHED_CONFIG": "settings file; without it pgsched.toml, in the current folder or above it in the repository",
    "PGSCHED_APP": "apps that workers serve and `check` examines: package.module:app, several with spaces between them",
    "PGSCHED_DJANGO_BACKEND": "alias of the backend in TASKS whose tasks the app pgsched.contrib.django.project has",
    "PGSCHED_FLEET": "fleet that the database must be of: a process refuses any other",
    "PGSCHED_HOME": "where the embedded server keeps its data, and the console the key of its logins",
    "PGSCHED_TZ": "zone in which commands read and show times, unless --tz names another",
    "PGSCHED_LOG": "log level: debug, info, warning, error",
    "PGSCHED_LOG_FORMAT": "console or json",
    "PGSCHED_OTEL": "1: set up OpenTelemetry's SDK in workers",
    "PGSCHED_BACKLOG_S": "seconds that runs may wait before they are a problem: 300, or 300,emails=60,batch=7200",
    "PGSCHED_IMPORT_DSN": "connection string of the database that `pgsched import` reads: its --from",
    "PGSCHED_SQL_DSN_<NAME>": "connection string of a database that SQL jobs may name",
    "PGSCHED_SQL_LOGIN": "connection string of the login that runs the statements of SQL jobs",
    "PGSCHED_LOG_BYTES": "bytes of output that a worker keeps of an attempt",
    "PGSCHED_ALERT_WEBHOOK": "URL to which alerts are sent",
    "PGSCHED_ALERT_COMMAND": "program that is started for alerts",
    "PGSCHED_ALERT_APPRISE_<NAME>": "URL of apprise to which alerts are sent, under this name: mailto://..., slack://...",
    "PGSCHED_WEB_TOKEN": "token that lets people into the console",
    "PGSCHED_WEB_READER_TOKEN": "token of people who may only look at it",
    "PGSCHED_WEB_PRODUCER_TOKEN": "token of programs that only make and read runs by the HTTP API",
    "PGSCHED_WEB_SECRET": "password that signs the cookies of a console in an application",
    "PGSCHED_WEB_PASSWORD_HASH": "hash of the password that lets people in",
}
MAX_PAYLOAD_BYTES = 1_048_576
CRASH_LIMIT = 5
BACKLOG_S = 300.0
WITHDRAW_AFTER_S = 600.0  # for declared jobs; longer than the 5 minutes that Kubernetes waits before it restarts a pod
PROGRAMS = frozenset({"command", "shell"})  # values of core.model.Kind: settings import no module above them
SQL_DSN = "PGSCHED_SQL_DSN_"
SQL_LOGIN = "PGSCHED_SQL_LOGIN"
IMPORT_DSN = "PGSCHED_IMPORT_DSN"
APPRISE = "PGSCHED_ALERT_APPRISE_"
# libpq's variables that say where the database is. Others (PGPASSWORD and so on) are read by libpq itself.
LIBPQ = {
    "PGSERVICE": "service",
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGDATABASE": "dbname",
    "PGUSER": "user",
}
REQUIRED_ANY_OF_LIBPQ = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGDATABASE")
SQL_DSN_NAME = SINK_NAME = re.compile("[a-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one worker process. Durations are in seconds."""

    concurrency: int = 8
    queues: tuple[str, ...] = ()
    allow: frozenset[str] = frozenset({"task"})  # kinds of runs (core.model.Kind)
    lease_s: float = 30.0
    poll_s: float = 1.0
    grace_s: float = 25.0
    settle_wait_s: float = 0.003
    leader: bool = True
    http_allow: tuple[str, ...] = ()  # addresses that HTTP jobs and pings may reach although they are not public
    sql_dsns: Mapping[str, str] = field(default_factory=dict, repr=False)  # DSNs by name, with passwords
    sql_login: str | None = field(default=None, repr=False)  # login for SQL jobs' statements; None: the worker's own
    sql_as_worker: bool = False  # use the worker's own login, also where roles are in force
    run_as: str | None = None  # the user of programs (kinds command and shell); None: the worker's own
    kill_after_most_s: float = 60.0  # longest time from the request to stop a run until it is killed
    default_timeout_s: float | None = None  # timeout of runs for which neither call, job nor task gives one
    log_bytes: int = 1 << 20  # bytes of an attempt's output that are kept; 0: none
    max_runs: int | None = None  # the worker ends after this many
    max_memory_mb: int | None = None  # the worker drains and ends when its process takes more
    metrics: str | None = None  # address at which metrics are served, and health with them
    health: str | None = None  # address at which health is served
    otel: bool = False  # set up OpenTelemetry's SDK by its environment variables
    pings: bool = True  # send starts and ends of runs to the ping_url of their jobs

    def __post_init__(self) -> None:
        require("concurrency", self.concurrency, 1, 10_000)
        require("lease", self.lease_s, 1, 86_400)
        require("poll", self.poll_s, 0.01, 3600)
        require("grace", self.grace_s, 0, 86_400)
        require("kill-after-most", self.kill_after_most_s, 0, 86_400)
        require("default-timeout", 1 if self.default_timeout_s is None else self.default_timeout_s, 0.001, 315_360_000)
        require("log bytes", self.log_bytes, 0, 1 << 30)
        require("max runs", 1 if self.max_runs is None else self.max_runs, 1, 1_000_000_000)
        require("max memory", 1 if self.max_memory_mb is None else self.max_memory_mb, 1, 1 << 24)
        if self.http_allow and not (self.pings or "http" in self.allow):
            raise InputError(
                "http-allow: this worker runs no http jobs and sends no pings: start it with --allow http, or without"
                " --no-pings", "http-allow"
            )  # fmt: skip
        if self.run_as is not None and not PROGRAMS & self.allow:
            raise InputError("run-as: this worker runs no programs: allow command or shell as well", "run-as")
        if self.sql_as_worker and "sql" not in self.allow:
            raise InputError("sql-as-worker: this worker runs no sql jobs: allow sql as well", "sql-as-worker")
        if self.sql_as_worker and self.sql_login is not None:
            raise InputError("sql-as-worker: not together with --sql-login (PGSCHED_SQL_LOGIN)", "sql-as-worker")


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """The settings of the leader's duties. Durations are in seconds."""

    election_every_s: float = 1.25
    reap_every_s: float = 5.0
    prune_every_s: float = 60.0
    prune_batch: int = 2000
    withdraw_after_s: float = WITHDRAW_AFTER_S
    count_every_s: float = 10.0
    tick_batch: int = 5000
    crash_limit: int = CRASH_LIMIT
    session_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        require("election period", self.election_every_s, 0.05, 60)
        require("reap period", self.reap_every_s, 0.05, 3600)
        require("tick batch", self.tick_batch, 1, 100_000)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The sinks to which this process delivers alerts, besides its log. All fields may hold secrets.

    `named`: URLs of apprise, by the names that jobs use in `alert_to`.
    """

    webhooks: tuple[str, ...] = field(default=(), repr=False)
    commands: tuple[str, ...] = field(default=(), repr=False)
    named: Mapping[str, str] = field(default_factory=dict, repr=False)


def find_alerts(environ: Mapping[str, str] | None = None) -> AlertSettings:
    """Return where a process sends alerts, from the variables PGSCHED_ALERT_... Raises InputError."""
    env = hidden_environment.environ() if environ is None else environ
    command = env.get("PGSCHED_ALERT_COMMAND")
    urls = tuple(env.get("PGSCHED_ALERT_WEBHOOK", "").split())
    return AlertSettings(urls, (command,) if command else (), find_named_sinks((), env))


def find_named_sinks(flags: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the named sinks: PGSCHED_ALERT_APPRISE_<NAME> of the environment, then each flag NAME=URL.

    A flag that is only a name refers to the environment: the command line moves URLs there. Raises InputError, which
    never shows a URL.
    """
    env = hidden_environment.environ() if environ is None else environ
    found = {key[len(APPRISE) :].lower(): url for key, url in env.items() if key.startswith(APPRISE) and url}
    for flag in flags:
        name, sign, url = flag.partition("=")
        if not sign and name in found:
            continue
        if not sign or not url or "/" in name:
            raise InputError("alert-apprise: expected NAME=URL", "alert-apprise")
        found[name] = url
    for name in found:
        if not SINK_NAME.fullmatch(name):
            raise InputError("alert-apprise: a name has lower-case letters, digits, - and _", "alert-apprise")
    return found


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a long-running process needs, besides its tasks."""

    dsn: str
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    leader: LeaderSettings = field(default_factory=LeaderSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)


def fleet(environ: Mapping[str, str] | None = None) -> UUID | None:
    """Return the fleet of PGSCHED_FLEET, None if there is none. Raises InputError."""
    given = (hidden_environment.environ() if environ is None else environ).get("PGSCHED_FLEET", "").strip()
    try:
        return UUID(given) if given else None
    except ValueError:
        raise InputError(
            "PGSCHED_FLEET: expected a uuid (SELECT fleet FROM pgsched.identity)", "PGSCHED_FLEET"
        ) from None


def find_sql_dsns(flags: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the databases that SQL jobs may name: PGSCHED_SQL_DSN_<NAME> of the environment, then each flag NAME=DSN.

    A flag that is only a name refers to the environment: the command line moves connection strings with passwords
    there. Raises InputError, which never shows a connection string.
    """
    env = hidden_environment.environ() if environ is None else environ
    found = {key[len(SQL_DSN) :].lower(): dsn for key, dsn in env.items() if key.startswith(SQL_DSN) and dsn}
    for flag in flags:
        name, sign, dsn = flag.partition("=")
        if not sign and name in found:
            continue
        if not sign or not dsn:
            raise InputError("sql-dsn: expected NAME=DSN", "sql-dsn")
        found[name] = dsn
    for name in found:
        if not SQL_DSN_NAME.fullmatch(name):
            shown = "the name before the first =" if len(name) > 63 or "/" in name or " " in name else repr(name)
            raise InputError(f"sql-dsn: {shown}: expected lower-case letters, digits, - and _", "sql-dsn")
    return found


def find_sql_login(flag: str | None) -> str | None:
    """Return the connection string with which SQL jobs run: the flag, else PGSCHED_SQL_LOGIN.

    Raises InputError for an empty one: a secret that was not filled in must not give jobs the worker's rights.
    """
    found = hidden_environment.environ().get(SQL_LOGIN) if flag is None else flag
    if found is not None and not found.strip():
        raise InputError("sql-login: it is given, but empty: fill it in, or leave it out", "sql-login")
    return found


def find_backlog_limits(environ: Mapping[str, str] | None = None) -> tuple[float, dict[str, float]]:
    """Return how many seconds runs may wait before that is a problem, from PGSCHED_BACKLOG_S.

    The first value holds for all queues; the second has those with a time of their own. Raises InputError.
    """
    text = (hidden_environment.environ() if environ is None else environ).get("PGSCHED_BACKLOG_S", "")
    everywhere, queues = BACKLOG_S, {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        queue, _, number = part.rpartition("=")
        try:
            seconds = float(number)
        except ValueError:
            raise InputError(f"PGSCHED_BACKLOG_S: {part!r}: expected SECONDS or QUEUE=SECONDS") from None
        require("PGSCHED_BACKLOG_S", seconds, 1, 1e8)
        if queue:
            queues[queue] = seconds
        else:
            everywhere = seconds
    return everywhere, queues


def require(name: str, value: float, low: float, high: float) -> None:
    """Raise InputError unless low <= value <= high."""
    if not low <= value <= high:
        raise InputError(f"{name}: {value:g} is out of range {low:g}-{high:g}", name)


def find_dsn(flag: str | None, environ: Mapping[str, str] | None = None, otherwise: str | None = None) -> str | None:
    """Return the DSN, or None where nothing names a database; the order and the errors are those of `find_dsn_source`.

    `flag`: what was given at the call itself, by --dsn or App(dsn=...).
    """
    found = find_dsn_source(flag, environ, otherwise)
    return None if found is None else found[1]


def find_dsn_source(
    flag: str | None, environ: Mapping[str, str] | None = None, otherwise: str | None = None
) -> tuple[str, str] | None:
    """Return the name of the source of the DSN, and the DSN; None where nothing names a database.

    The order is: the flag, PGSCHED_DSN, `otherwise` (the DSN of the app that a worker serves), DATABASE_URL, then
    libpq's PGHOST, PGHOSTADDR, PGSERVICE and PGDATABASE.

    Raises InputError for a DSN that is given but empty: a secret that was not filled in must not lead to another
    database. Raises it for another product's URL as well.
    """
    env = hidden_environment.environ() if environ is None else environ
    given = (
        ("--dsn", flag),
        ("PGSCHED_DSN", env.get("PGSCHED_DSN")),
        ("App(dsn=...)", otherwise),
        ("DATABASE_URL", env.get("DATABASE_URL")),
    )
    for name, value in given:
        if value is not None:
            return name, check_dsn(name, value)
    if not any(env.get(name) for name in REQUIRED_ANY_OF_LIBPQ):
        return None
    parts = {name: value for name in LIBPQ if (value := env.get(name))}
    quoted = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in parts.items()}
    return ", ".join(parts), " ".join(f"{LIBPQ[name]}='{value}'" for name, value in quoted.items())


def check_dsn(source: str, dsn: str) -> str:
    """Return the DSN. Raises InputError where it is no text, empty or another product's URL; `source` names it."""
    if not isinstance(dsn, str):
        wanted = "expected a string; of a URL of SQLAlchemy give url.render_as_string(hide_password=False)"
        raise InputError(f"dsn: {source} is of type {type(dsn).__name__}: {wanted}", "dsn")
    if not dsn.strip():
        raise InputError(f"dsn: {source} is given, but empty: fill it in, or leave it out", "dsn")
    if product := other_product(dsn):
        instead = "set PGSCHED_DSN" if source == "DATABASE_URL" else "give postgresql://user:password@host/database"
        raise InputError(f"dsn: {source} is of {product}: pgsched needs PostgreSQL; {instead}", "dsn")
    return dsn


def allows_embedded(environ: Mapping[str, str] | None = None) -> bool:
    """Check whether PGSCHED_EMBEDDED lets an App use the embedded server. Raises InputError."""
    given = (hidden_environment.environ() if environ is None else environ).get("PGSCHED_EMBEDDED", "").strip()
    if given not in ("", "0", "1"):
        raise InputError("PGSCHED_EMBEDDED: expected 1 or 0", "PGSCHED_EMBEDDED")
    return given == "1"


def no_dsn_error() -> DatabaseUnreachable:
    """Return the error for an App for which nothing names a database."""
    return DatabaseUnreachable(
        "no DSN: set PGSCHED_DSN, or give App(dsn=...); to use the embedded server (as `pgsched worker` does without a"
        " DSN), set PGSCHED_EMBEDDED=1, or give App(embedded=True)"
    )
