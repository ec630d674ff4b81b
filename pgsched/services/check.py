"""`pgsched check`: whether a worker would start here, and which settings of this database are unwise.

Invariant: a check starts nothing and writes nothing. Each finding is one line (ok, warn or fail) with the remedy. Only
a failure gives an exit code: that of the error with which a worker would have ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from pgsched.config import (
    APPRISE,
    ENVIRONMENT,
    SQL_DSN,
    allows_embedded,
    find_backlog_limits,
    find_dsn,
    find_dsn_source,
    find_sql_dsns,
    fleet,
)  # fmt: skip
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, connect, ssl_problem
from pgsched.db.connection.dsn import hide_secrets
from pgsched.db.embedded import server
from pgsched.db.embedded.cluster import MAJOR, Cluster
from pgsched.db.queries.reports import inspection
from pgsched.db.schema import version
from pgsched.errors import DatabaseReadOnly, EmbeddedUnavailable, InputError, NotPermitted, PgschedError, WrongFleet
from pgsched.log import FORMATS, LEVELS

Level = Literal["ok", "warn", "fail"]
OLDEST_SERVER = 14
OF_ANY_NAME = (SQL_DSN, APPRISE, "PGSCHED_TEST_")  # variables whose names end as their users like


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check. `exit_code`: 0 unless it failed."""

    name: str
    level: Level
    text: str
    exit_code: int = 0


def ok(name: str, text: str) -> Finding:
    """Return a finding of the level ok."""
    return Finding(name, "ok", text)


def warn(name: str, text: str) -> Finding:
    """Return a finding of the level warn."""
    return Finding(name, "warn", text)


def fail(name: str, error: PgschedError) -> Finding:
    """Return a finding of the level fail, with the text and exit code of this error."""
    return Finding(name, "fail", str(error), error.exit_code)


def check(flag: str | None, environ: Mapping[str, str] | None = None, otherwise: str | None = None) -> list[Finding]:
    """Check the settings, and the database that they lead to. `otherwise`: the DSN of an app."""
    env = os.environ if environ is None else environ
    found = list(settings(env))
    try:
        named = find_dsn_source(flag, env, otherwise)
        if named is None:
            place, dsn = embedded_server()
            found += place
            if env.get("PGSCHED_EMBEDDED", "").strip() != "1":
                found.append(ok("embedded", "an App uses it only with App(embedded=True) or PGSCHED_EMBEDDED=1"))
        else:
            source, dsn = named
            found.append(ok("dsn", f"from {source}: {hide_secrets(dsn)}"))
    except InputError as error:
        return [*found, fail("dsn", error)]
    if dsn is not None:
        wrong = any(one.name == "PGSCHED_FLEET" for one in found)
        found += database(dsn, None if wrong else fleet(env))
    return found


def reachable(flag: str | None, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the DSN of a server that runs, without starting one; None if there is none."""
    return find_dsn(flag, os.environ if environ is None else environ) or embedded_server()[1]


def exit_code(found: list[Finding]) -> int:
    """Return the exit code of the first failure, 0 without one."""
    return next((finding.exit_code for finding in found if finding.level == "fail"), 0)


def check_roles(role: str, roles: list[str]) -> Iterator[Finding]:
    """Report which roles of least privilege a login acts as, and which grants its workers lack."""
    yield ok("grants", f"role {role} acts as pgsched_{', pgsched_'.join(roles)}")
    if "worker" not in roles:
        yield warn("grants", f"for workers: GRANT pgsched_worker, pgsched_leader TO {role}")
    elif "leader" not in roles:
        yield warn("grants", f"workers have to say --no-leader as this role, or: GRANT pgsched_leader TO {role}")


def settings(env: Mapping[str, str]) -> Iterator[Finding]:
    """Check the environment variables that pgsched reads, and those that look as if it should read them."""
    for name, allowed in (("PGSCHED_LOG", tuple(LEVELS)), ("PGSCHED_LOG_FORMAT", FORMATS)):
        value = env.get(name)
        if value is not None and value not in allowed:
            yield fail(name, InputError(f'"{value}" is not one of {", ".join(allowed)}'))
    readers: tuple[tuple[str, Callable[[Mapping[str, str]], object]], ...] = (
        ("PGSCHED_BACKLOG_S", find_backlog_limits),
        ("PGSCHED_EMBEDDED", allows_embedded),
        ("PGSCHED_FLEET", fleet),
        (f"{SQL_DSN}NAME", partial(find_sql_dsns, ())),
    )
    for name, read in readers:
        try:
            read(env)
        except InputError as error:
            yield fail(name, error)
    for name in sorted(env):
        if name.startswith("PGSCHED_") and name not in ENVIRONMENT and not name.startswith(OF_ANY_NAME):
            yield warn(name, f"is not a variable that pgsched reads; those are {', '.join(ENVIRONMENT)}")


def embedded_server() -> tuple[list[Finding], str | None]:
    """Check the embedded server without starting it; return its DSN if it runs."""
    try:
        home, binaries = server.data_dir(), server.bin_dir()
        cluster = Cluster(home / f"pg{MAJOR}", binaries)
        if cluster.state() == "ready":
            return [ok("embedded", f"no DSN was given; the embedded server runs, its data is in {home}")], cluster.dsn()
    except EmbeddedUnavailable as error:
        return [fail("embedded", error)], None
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        text = (
            f"the embedded server could not keep its data in {home}: set PGSCHED_HOME to a directory you may write to"
        )
        return [fail("embedded", EmbeddedUnavailable(text))], None
    absence = "" if (home / f"pg{MAJOR}").exists() else " (not made yet)"
    text = f"no DSN was given; the embedded PostgreSQL {MAJOR} in {home}{absence} is not running; a command starts it"
    return [ok("embedded", text), *check_disk(existing)], None


def check_disk(folder: Path) -> list[Finding]:
    """Warn if there is little space for a database."""
    stat = os.statvfs(folder)
    free_mb = stat.f_bavail * stat.f_frsize // 1_000_000
    return [warn("disk", f"only {free_mb} MB are free in {folder}")] if free_mb < 500 else []


def database(dsn: str, wanted: UUID | None = None) -> list[Finding]:
    """Check the database behind a DSN. `wanted`: the fleet to which it must belong."""
    try:
        with connect(dsn, purpose="check", timeout_s=10) as conn:
            facts = inspection.server(conn)
            where = f"PostgreSQL {facts['version']}, database {facts['database']} as role {facts['role']}"
            found = [
                ok("connection", where),
                *encryption(conn),
                *server_facts(facts),
                *durability(facts),
                *check_load(facts),
            ]
            return found + list(schema(conn, facts, wanted))
    except PgschedError as error:
        return [fail("connection", error)]


def encryption(conn: Connection[Any]) -> Iterator[Finding]:
    """Warn if the connection can be read on its way, or the server can be impersonated."""
    if problem := ssl_problem(conn):
        yield warn("sslmode", problem)


def server_facts(facts: Row) -> Iterator[Finding]:
    """Check the version, whether the server takes writes, and the encoding."""
    if facts["version_num"] // 10_000 < OLDEST_SERVER:
        yield fail("version", PgschedError(f"PostgreSQL {OLDEST_SERVER} or newer is needed: upgrade the server"))
    if facts["standby"] or facts["read_only"] == "on":
        why = "is a standby" if facts["standby"] else "has transaction_read_only = on"
        yield fail("writable", DatabaseReadOnly(f"the server {why}: point the DSN at the primary"))
    else:
        yield ok("writable", "takes writes")
    if facts["encoding"] != "UTF8":
        text = f"the database's encoding is {facts['encoding']}: what it has no place for is refused; prefer UTF8"
        yield warn("encoding", text)


def durability(facts: Row) -> Iterator[Finding]:
    """Warn of settings with which a crash of the server loses committed data."""
    for name in ("fsync", "full_page_writes"):
        if facts[name] == "off":
            yield warn(name, f"{name} = off: a crash of the machine can destroy the database; set it to on")
    if facts["synchronous_commit"] == "off":
        text = "a crash of the server forgets the last commits: settled runs run again; set it to on"
        yield warn("synchronous_commit", f"synchronous_commit = off: {text}")
    if facts["autovacuum"] == "off":
        yield warn("autovacuum", "autovacuum = off: the queue slows down within minutes; set it to on")


def check_load(facts: Row) -> Iterator[Finding]:
    """Warn of circumstances that slow a queue down, or stop it soon."""
    left = facts["max_connections"] - facts["connections"]
    if left < 10:
        text = f"{left} of {facts['max_connections']} connections are left; a worker needs about 5"
        yield warn("connections", f"{text}: raise max_connections")
    if (facts["transaction_s"] or 0) > 600:
        text = f"a transaction has been open for {facts['transaction_s']:.0f} s, and vacuum waits for it"
        yield warn("transactions", f"{text}: find it in pg_stat_activity (xact_start) and end it")
    if facts["notify_usage"] > 0.5:
        text = f"the notification queue is {facts['notify_usage']:.0%} full: end the session that holds it up"
        yield warn("notify", text)
    skew = abs((datetime.now(UTC) - facts["now"]).total_seconds())
    if skew > 5:
        yield warn("clock", f"this machine's clock and the database's differ by {skew:.0f} s; only the latter counts")


def schema(conn: Connection[Any], facts: Row, wanted: UUID | None = None) -> Iterator[Finding]:
    """Check whether pgsched is installed in this program's version, and whether this role may use it."""
    try:
        version.check_version(conn)
    except PgschedError as error:
        if isinstance(error, NotPermitted):
            yield fail("grants", error)
            return
        yield fail("schema", error)
        if version.current(conn) is None and not facts["may_create"]:
            text = (
                f"role {facts['role']} may not create schemas in {facts['database']}: let its owner run the migration"
            )
            yield fail("grants", NotPermitted(text))
        return
    yield ok("schema", f"version {version.SCHEMA_VERSION}")
    if wanted is not None:
        try:
            inspection.assert_fleet(conn, wanted)
        except (WrongFleet, NotPermitted) as error:
            yield fail("PGSCHED_FLEET", error)
    roles = inspection.roles_held(conn)
    if roles and "owner" not in roles:
        yield from check_roles(facts["role"], roles)
        return
    missing = inspection.missing_grants(conn)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        text = f"role {facts['role']} lacks {', '.join(missing[:3])}{more}: ask the owner of schema pgsched for them"
        yield fail("grants", NotPermitted(text))
    else:
        yield ok("grants", f"role {facts['role']} may read and write all tables")
