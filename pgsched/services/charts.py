"""Charts of recent runs: throughput, waits and lateness, stretch by stretch.

Invariant: reads are bounded, and a figure that is estimated from a sample is marked (`sampled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import charts

STRETCHES = 60
COUNTED = 20_000  # runs of a stretch that are counted at most
RANGES = {"15m": 15.0, "1h": 60.0}  # seconds of each of the STRETCHES stretches; longer ranges: long_charts.py
SAMPLE = 300  # runs of a stretch that are read at most
DEPTH_COUNTED = 50_000  # open runs that are counted at most


@dataclass(frozen=True, slots=True)
class Stretch:
    """The runs that ended within a stretch of time.

    `per_s`: executed runs per second.
    `dead`, `missed`, `retried`: numbers of runs.
    `wait_50`, `wait_95`: median and 95th percentile of the waits, in seconds; None if no run waited.
    `late_50`, `late_95`, `late_max`: the same of lateness, and the greatest, in seconds; None without a run of a slot.
    `sampled`: only the last runs of the stretch were read; the others were counted, up to COUNTED.
    """

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


def read_stretches(conn: Connection[Any], span: str = "1h", count: int = STRETCHES) -> list[Stretch]:
    """Return the last `count` stretches of a range, oldest first."""
    return [build_stretch(row) for row in charts.finished_by_stretch(conn, RANGES[span], count, SAMPLE, COUNTED)]


def build_stretch(row: Row) -> Stretch:
    """Return the stretch of a row; where the row is a sample, its counts are scaled to the whole stretch.

    Runs end in bursts, so the runs that were read do not show how many there were; only a count does. Beyond COUNTED,
    the stretch is assumed to be as busy as its end, but never less than was counted.
    """
    sampled = row["seen"] >= SAMPLE
    width_s = max((row["until_at"] - row["from_at"]).total_seconds(), 0.1)
    share = row["ended"] / max(row["seen"], 1) if sampled else 1.0
    if row["ended"] >= COUNTED:
        share = max(share, width_s / max((row["until_at"] - row["earliest_at"]).total_seconds(), 0.001))
    kept = {name: row[name] for name in ("from_at", "until_at", "wait_50", "wait_95", "late_50", "late_95", "late_max")}
    counts = {name: row[name] * share for name in ("dead", "missed", "retried")}
    return Stretch(**kept, **counts, per_s=row["executed"] * share / width_s, sampled=sampled)


class Recent:
    """The last STRETCHES stretches of a range. Stretches that had ended at the last look are not read again."""

    def __init__(self, span: str) -> None:
        self.span = span
        self._known: list[Stretch] = []
        self._lock = Lock()

    def look(self, conn: Connection[Any], now: datetime) -> list[Stretch]:
        """Return the stretches as of `now`, by the database's clock."""
        width_s = RANGES[self.span]
        with self._lock:
            known = self._known
            behind = (now - known[-1].from_at).total_seconds() if known else width_s * STRETCHES
            new = read_stretches(conn, self.span, max(1, min(STRETCHES, int(behind // width_s) + 2)))
            kept = [one for one in known if new and one.from_at < new[0].from_at]
            self._known = [*kept, *new][-STRETCHES:]
            return self._known


def compute_rate(lately: Sequence[Stretch], seconds: float) -> float:
    """Return the executed runs per second in the last `seconds` of these stretches, or a little more."""
    chosen: list[Stretch] = []
    for part in reversed(lately):
        chosen.append(part)
        if (lately[-1].until_at - part.from_at).total_seconds() >= seconds:
            break
    widths_s = [(part.until_at - part.from_at).total_seconds() for part in chosen]
    executed = sum(part.per_s * width_s for part, width_s in zip(chosen, widths_s, strict=True))
    return executed / max(sum(widths_s), 0.1)


def count_open_runs(conn: Connection[Any]) -> Row:
    """Count the runs that have not ended, by state (see runs_open_counted in sql/charts.sql)."""
    return charts.count_open_runs(conn, DEPTH_COUNTED)


def list_failed_runs(conn: Connection[Any], n: int = 8) -> list[Row]:
    """Return the newest runs that ended badly."""
    return charts.failed_runs(conn, n)


def list_live_workers(conn: Connection[Any]) -> list[Row]:
    """Return the workers that are alive."""
    return charts.alive_workers(conn)


def list_gone_workers(conn: Connection[Any], n: int = 20) -> list[Row]:
    """Return the workers that have gone within the last hour."""
    return charts.gone_workers(conn, n)
