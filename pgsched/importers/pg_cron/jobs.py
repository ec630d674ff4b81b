"""The rows of cron.job as jobs of kind `sql`.

Invariant: each row becomes a job with the same statements, or is named with the reason.

What the columns mean: README.md of https://github.com/citusdata/pg_cron ("Managing and creating jobs", "Setting up
pg_cron"). Times are read in cron.timezone, GMT unless it is set; a job's runs are queued one behind the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
from pgsched.errors import InputError, ScheduleError
from pgsched.importers.file_values import omit_refused
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.importers.job_names import JobNames
from pgsched.importers.pg_cron.schedules import AT_REBOOT, SyntaxRefused, read_schedule, read_seconds
from pgsched.importers.schedules.spellings import Rule, add_choice, choose_spelling

MOST_JOBS = 20_000
LONGEST_SOURCE = 100  # characters of a command that a comment repeats
# Each minute it looks which wall clocks match: one that is skipped has no run, one that comes twice has two.
RULE = Rule(shifts=False, repeats=True)
LOCAL_NODES = ("", "localhost", "127.0.0.1", "::1")
# Statements that PostgreSQL refuses inside a transaction block, or that end one.
OUTSIDE = re.compile(
    r"(?:^|;)\s*(VACUUM|CALL|COMMIT|ROLLBACK|BEGIN|START\s+TRANSACTION|END|ALTER\s+SYSTEM"
    r"|(?:CREATE|DROP)\s+(?:DATABASE|TABLESPACE|SUBSCRIPTION)|CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY"
    r"|DROP\s+INDEX\s+CONCURRENTLY|REINDEX\s+(?:DATABASE|SYSTEM|\w+\s+CONCURRENTLY))\b",
    re.IGNORECASE,
)
OPENERS = re.compile(r"'|\"|--|/\*|\$(?:[A-Za-z_]\w*)?\$")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server.

    `database`: where pgsched's jobs run. `timezone`: cron.timezone, None where the role may not see it.
    `match_both`: cron.match_dom_and_dow. `sees_all`: the role sees the jobs of other roles, too. `port`: of the server,
    None where it is not known.
    """

    database: str
    timezone: str | None = "GMT"
    match_both: bool = False
    sees_all: bool = True
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of cron.job."""

    jobid: int
    schedule: str
    command: str
    database: str
    username: str
    nodename: str = "localhost"
    nodeport: int | None = None
    active: bool = True
    jobname: str | None = None

    @property
    def where(self) -> str:
        """The row's place, for comments."""
        return f"cron.job {self.jobid}"


def import_rows(rows: Iterable[Row], settings: Settings, now: datetime) -> Imported:
    """Return the jobs of the rows. Raises InputError for too many, and for a zone that is not known."""
    timezone = read_timezone(settings.timezone or "GMT")
    found = Imported()
    if settings.timezone is None:
        found.remarks.append(Remark(Reason.TIME_ZONE, "the role may not see cron.timezone: taken for GMT (--timezone)"))
    if not settings.sees_all:
        found.remarks.append(Remark(Reason.OWN_JOBS, "run it as a superuser to read the jobs of all"))
    if settings.match_both:
        found.remarks.append(Remark(Reason.DOM_AND_DOW, "as cron.match_dom_and_dow says"))
    listed = list(rows)
    if len(listed) > MOST_JOBS:
        raise InputError(f"{len(listed):,} jobs; at most {MOST_JOBS:,} are read at once")
    roles = Counter(row.username for row in listed)
    usual_role = roles.most_common(1)[0][0] if roles else ""
    if any(read_seconds(row.schedule) for row in listed):
        found.remarks.append(Remark(Reason.ANCHOR, "pg_cron counts an interval from the last start"))
    if listed:
        found.remarks.append(Remark(Reason.ROLE, f"apply the file as {usual_role}, whose jobs they were"))
    names = JobNames()
    for row in listed:
        name = row.jobname or f"cron {row.jobid}"
        name = names.take_first(name, f"{name} ({row.jobid})")
        job = import_row(row, name, settings, timezone, now)
        if isinstance(job, Omitted):
            found.omitted.append(job)
            continue
        if row.username != usual_role:
            job.remarks.append(Remark(Reason.ROLE, f"it ran as {row.username}"))
        found.add(job)
    return omit_refused(found)


def read_timezone(name: str) -> str:
    """Return the IANA name of cron.timezone. Raises InputError."""
    name = name.strip() or "GMT"
    if name.upper() in ("GMT", "UTC"):
        return "UTC"
    for known in (name, *(one for one in zones.names() if one.lower() == name.lower())):
        try:
            return zones.zone(known).key or known
        except ScheduleError:
            continue
    raise InputError(f'cron.timezone is "{name[:64]}", no IANA zone: say which one with --timezone', "timezone")


def import_row(row: Row, name: str, settings: Settings, timezone: str, now: datetime) -> ImportedJob | Omitted:
    """Return the job of a row, or why there is none."""
    columns: dict[str, Any] = {"kind": "sql", "task": row.command}
    remarks: list[Remark] = []
    try:
        add_schedule(columns, remarks, row, settings.match_both, timezone, now)
    except SyntaxRefused as error:
        return omit(row, Reason.SYNTAX, str(error))
    except ScheduleError as error:
        return omit(row, Reason.SCHEDULE, str(error))
    if row.schedule.strip().startswith(AT_REBOOT):
        return omit(row, Reason.AT_REBOOT, row.schedule.strip())
    if (found := OUTSIDE.search(without_texts(row.command))) is not None:
        words = " ".join(found[1].split()).upper()
        may = ", if its procedure commits" if words == "CALL" else ""
        remarks.append(Remark(Reason.TRANSACTION, f"{words}{may}", "task"))
    node = other_server(row, settings.port)
    if node is not None:
        columns["args"] = {"dsn": row.database}
        remarks.append(Remark(Reason.SERVER, f"database {row.database} on {node}", "args"))
    elif row.database != settings.database:
        columns["args"] = {"dsn": row.database}
        remarks.append(Remark(Reason.DATABASE, f"database {row.database}", "args"))
    columns |= {"catch_up": "skip", "max_attempts": 1}
    if not row.active:
        columns["paused"] = True
        remarks.append(Remark(Reason.SUSPENDED, "active is false", "paused"))
    return ImportedJob(name, columns, remarks, row.where, row.schedule)


def other_server(row: Row, port: int | None) -> str | None:
    """Return host and port of the server on which a job runs; None where it is the server with this port."""
    same_port = port is None or row.nodeport is None or row.nodeport == port
    if row.nodename in LOCAL_NODES and same_port:
        return None
    return row.nodename[:200] + ("" if row.nodeport is None else f":{row.nodeport}")


def add_schedule(
    columns: dict[str, Any], remarks: list[Remark], row: Row, match_both: bool, timezone: str, now: datetime
) -> None:
    """Add when a job runs, and what happens while it runs. Raises SyntaxRefused, ScheduleError."""
    if row.schedule.strip().startswith(AT_REBOOT):
        return
    seconds = read_seconds(row.schedule)
    if seconds is not None:
        columns |= {"schedule": f"@every {seconds}s", "overlap": "buffer_one"}
        return
    fields, ignored = read_schedule(row.schedule, match_both=match_both)
    choice = choose_spelling(fields, timezone, RULE, now)
    if choice is None:
        raise ScheduleError("day of month", "no expression says that a day must match both fields of days")
    parse(choice.expression, timezone)
    columns["overlap"] = "buffer_all"
    add_choice(columns, remarks, choice, timezone)
    if ignored:
        remarks.append(Remark(Reason.IGNORED, f"pg_cron ignores {ignored[:LONGEST_SOURCE]!r}", "schedule"))


def without_texts(command: str) -> str:
    """Return the statements without comments and without what stands in quotes or between dollar signs."""
    kept, at = [], 0
    while (found := OPENERS.search(command, at)) is not None:
        kept.append(command[at : found.start()])
        closer = {"--": "\n", "/*": "*/"}.get(found[0], found[0])
        end = command.find(closer, found.end())
        if end < 0:
            return " ".join(kept)
        at = end + len(closer)
    return " ".join([*kept, command[at:]])


def omit(row: Row, reason: Reason, text: str) -> Omitted:
    """Return a row that became no job."""
    return Omitted(row.where, f"{row.schedule} {row.command[:LONGEST_SOURCE]}", Remark(reason, text))
