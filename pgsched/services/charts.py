"""How it has been going lately. The rule: reads are bounded, and what is estimated from a sample says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.rows import Row, one, rows

STRETCHES = 60
RANGES = {"15m": 15.0, "1h": 60.0}  # seconds of each of STRETCHES stretches; longer ones: long_charts.py
SAMPLE = 300
DEPTH_COUNTED = 50_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Runs that ended within a stretch of time. `per_s`: executed a second; it is estimated where `sampled`, and the
    other figures are then of the stretch's last runs. Waits and lateness in seconds, None without such a run."""

    from_at: datetime
    until_at: datetime
    per_s: float
    dead: float
    missed: float
    retried: float
    wait_50: float | None
    wait_95: float | None
    late_50: float | None
    late_95: float | None
    late_max: float | None
    sampled: bool


def rates(conn: Connection[Any], span: str = "1h", count: int = STRETCHES) -> list[Stretch]:
    """The last `count` stretches of a range, oldest first."""
    found = rows(conn, "runs_finished_by_stretch", {"width_s": RANGES[span], "count": count, "n": SAMPLE})
    return [stretch(row) for row in found]


def stretch(row: Row) -> Stretch:
    """A row, its counts brought up to the whole stretch where it is a sample."""
    sampled = row["seen"] >= SAMPLE
    width_s = max((row["until_at"] - row["from_at"]).total_seconds(), 0.1)
    read_s = (row["until_at"] - row["earliest_at"]).total_seconds() if sampled else width_s
    share = width_s / max(read_s, 0.001)
    kept = {name: row[name] for name in ("from_at", "until_at", "wait_50", "wait_95", "late_50", "late_95", "late_max")}
    counts = {name: row[name] * share for name in ("dead", "missed", "retried")}
    return Stretch(**kept, **counts, per_s=row["executed"] * share / width_s, sampled=sampled)


def depth(conn: Connection[Any]) -> Row:
    """How many runs have not ended, by state (see runs_open_counted in sql/charts.sql)."""
    found = one(conn, "runs_open_counted", {"n": DEPTH_COUNTED})
    assert found is not None
    return found


def failures(conn: Connection[Any], n: int = 8) -> list[Row]:
    """The newest runs that ended badly."""
    return rows(conn, "runs_failed_newest", {"n": n})


def workers(conn: Connection[Any]) -> list[Row]:
    """The workers that are alive."""
    return rows(conn, "workers_alive_draining")


def gone_workers(conn: Connection[Any], n: int = 20) -> list[Row]:
    """Those that have gone within the last hour."""
    return rows(conn, "workers_gone", {"n": n})
