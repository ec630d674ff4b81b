"""Incidents: found, ended, and told. Each call is a statement, or a part of the caller's transaction.

The rule: an index decides that there is one open incident of a kind for a job, whoever looks; what a sink was told is
in a row of its own, so that whoever has that sink tells it, and it is told at least once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, one, rows
from pgsched.db.statements import sql

JOBS = 200
LEASE_S = 60.0  # longer than telling may last
LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True, slots=True)
class Checked:
    """What was opened or closed (what, id, job, kind, details), and the job to go on behind; None: that was the end."""

    changes: list[Row]
    last_id: int | None


def look(conn: Connection[Any]) -> tuple[bool, bool]:
    """Is anything watched, and is anything to be told?"""
    (row,) = fetch(conn, "alert_look")
    return bool(row["watched"]), bool(row["pending"])


def check(conn: Connection[Any], after: int, n: int = JOBS) -> Checked:
    """Look at the next `n` watched jobs."""
    found = fetch(conn, sql("alert_check"), {"after": after, "n": n})
    return Checked([row for row in found if row["what"] is not None], found[0]["last_id"])


def led(conn: Connection[Any]) -> None:
    """There is a leader: the incident that there is none is over."""
    conn.execute(sql("alert_led"))


def no_leader(conn: Connection[Any], gone_s: float) -> bool:
    """Has nobody led for `gone_s` seconds? Opens the incident if so."""
    (row,) = fetch(conn, "alert_no_leader", {"gone_s": gone_s})
    return bool(row["missing"])


def owe(conn: Connection[Any], sinks: Sequence[str]) -> None:
    """Note what these sinks are to be told."""
    conn.execute(sql("alert_owed"), {"sinks": list(sinks)})


def take(conn: Connection[Any], sinks: Sequence[str]) -> Row | None:
    """The next thing that one of these sinks is to be told, taken from others for LEASE_S; None: there is nothing."""
    found = fetch(conn, "alert_take", {"sinks": list(sinks), "lease_s": LEASE_S})
    return found[0] if found else None


def told(conn: Connection[Any], row: Row, error: str | None) -> None:
    """Note what came of it; a failure is tried again, each time later."""
    again_s = min(2.0 ** min(row["attempts"], 10), LONGEST_PAUSE_S)
    key = {name: row[name] for name in ("alert_id", "event", "sink")}
    conn.execute(sql("alert_told"), {**key, "error": error, "again_s": again_s})


def listed(conn: Connection[Any], *, everything: bool = False, job_id: int | None = None, n: int = 100) -> list[Row]:
    """Open incidents, or all, the newest first (see alert_list in sql/alerts.sql)."""
    return rows(conn, "alert_list", {"open": not everything, "job_id": job_id, "n": n})


def test(conn: Connection[Any], details: str, *, close: bool = False) -> int | None:
    """Open an incident that is none, or close it; its id."""
    row = one(conn, "alert_test", {"details": details, "close": close})
    return None if row is None else int(row["id"])
