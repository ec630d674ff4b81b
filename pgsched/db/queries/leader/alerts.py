"""Alerts: open and close incidents, and record which sink was notified of them.

Each call is one statement or part of the caller's transaction.

Invariant: a unique index allows one open incident of a kind for a job, whichever process looks. Each delivery to a sink
is a row of its own. Any process that has the sink makes the delivery, and it is made at least once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql as composing

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.job_columns import cast_to_column, explain_refusal
from pgsched.db.rows import acting_for_user, fetch, fetch_as, first_row, rows
from pgsched.db.statements import sql

JOBS = 200  # checked by one statement
LEASE_S = 60.0  # longer than a delivery may last
LONGEST_PAUSE_S = 300.0  # between two tries of a delivery
# column of alert_defaults -> the PostgreSQL type that its text is read as
DEFAULTS: Mapping[str, LiteralString] = {
    "alert_after_failures": "integer", "max_lateness": "interval", "max_duration": "interval",
    "expect_every": "interval", "finish_by": "interval", "alert_to": "text[]", "dead_runs": "integer",
    "dead_runs_within": "interval",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    `changes`: the incidents that were opened or closed: (what, id, job, kind, details)
    `last_id`: the job id behind which to go on; None: all jobs have been checked
    """

    changes: list[Row]
    last_id: int | None


class AlertWork(NamedTuple):
    """What there is to do: `alert_look` in sql/alerts.sql.

    `watched`: jobs are watched or incidents open
    `pausing`: jobs may pause themselves
    `dead_runs`: runs without a job are watched
    `pending`: a delivery is due
    """

    watched: bool
    pausing: bool
    dead_runs: bool
    pending: bool


def look_for_work(conn: Connection[Any]) -> AlertWork:
    """Return what there is to do."""
    (found,) = fetch_as(conn, AlertWork, "alert_look", {})
    return found


def pause_failing_jobs(conn: Connection[Any], n: int = JOBS) -> list[Row]:
    """Pause up to `n` jobs whose newest runs all failed; return (id, job, reason) of each.

    With `error`: why the edit of the job was refused; None where it is paused.
    """
    return fetch(conn, "alert_pause", {"n": n})


def watch_dead_runs(conn: Connection[Any]) -> str | None:
    """Open or close the incident about dead runs without a job; return `opened` or `closed`, None if neither."""
    (row,) = fetch(conn, "alert_dead_runs")
    return None if row["what"] is None else str(row["what"])


def show_defaults(conn: Connection[Any]) -> Row:
    """Return what is watched where a job does not say it itself; all None where nothing is."""
    return first_row(conn, "alert_defaults") or dict.fromkeys(DEFAULTS)


def change_defaults(conn: Connection[Any], values: Mapping[str, Any]) -> Row:
    """Change what is watched where a job does not say it itself (the columns in DEFAULTS); return all of it.

    None: the column's own default, which is that nothing is watched. Raises InputError.
    """
    parts = [
        composing.SQL("{} = {}").format(
            composing.Identifier(name),
            composing.DEFAULT if value is None else cast_to_column(name, name, DEFAULTS),
        )
        for name, value in values.items()
    ]
    text = composing.SQL("UPDATE pgsched.alert_defaults SET {}").format(composing.SQL(", ").join(parts))
    try:
        with conn.transaction(), acting_for_user(conn):
            conn.execute(text, dict(values))
    except psycopg.Error as error:
        raise explain_refusal(conn, error, values, DEFAULTS) from error
    return show_defaults(conn)


def check_watched_jobs(conn: Connection[Any], after: int, n: int = JOBS) -> CheckResult:
    """Open and close incidents of the next `n` watched jobs behind the id `after`."""
    found = fetch(conn, sql("alert_check"), {"after": after, "n": n})
    return CheckResult([row for row in found if row["what"] is not None], found[0]["last_id"])


def close_no_leader(conn: Connection[Any]) -> None:
    """Close the incident that no process leads; delete incidents that were closed more than 400 days ago."""
    conn.execute(sql("alert_led"))


def open_no_leader(conn: Connection[Any], gone_s: float) -> bool:
    """Check whether no process has led for `gone_s` seconds; open an incident if so."""
    (row,) = fetch(conn, "alert_no_leader", {"gone_s": gone_s})
    return bool(row["missing"])


def add_deliveries(conn: Connection[Any], sinks: Sequence[str]) -> None:
    """Insert the deliveries that these sinks are to get: `alert_owed` in sql/alerts.sql."""
    conn.execute(sql("alert_owed"), {"sinks": list(sinks)})


def take_delivery(conn: Connection[Any], sinks: Sequence[str]) -> Row | None:
    """Take the next delivery for one of these sinks, so that no other process does for LEASE_S seconds.

    Returns None where none is due.
    """
    found = fetch(conn, "alert_take", {"sinks": list(sinks), "lease_s": LEASE_S})
    return found[0] if found else None


def record_delivery(conn: Connection[Any], row: Row, error: str | None) -> None:
    """Record the result of a delivery (`error` None: delivered). A failed one is retried, each time later."""
    again_s = min(2.0 ** min(row["attempts"], 10), LONGEST_PAUSE_S)
    key = {name: row[name] for name in ("alert_id", "event", "sink")}
    conn.execute(sql("alert_told"), {**key, "error": error, "again_s": again_s})


def list_alerts(
    conn: Connection[Any], *, everything: bool = False, job_id: int | None = None, n: int = 100
) -> list[Row]:
    """Return up to `n` open incidents, or all with `everything`, newest first: `alert_list` in sql/alerts.sql.

    `job_id`: only of this job, None: of all.
    """
    return rows(conn, "alert_list", {"open": not everything, "job_id": job_id, "n": n})


def set_test_alert(conn: Connection[Any], details: str, *, close: bool = False) -> int | None:
    """Open a test incident, or close it; return its id. None: there was none to close."""
    row = first_row(conn, "alert_test", {"details": details, "close": close})
    return None if row is None else int(row["id"])
