"""How it has been going lately. The rule: reads are bounded, and what is estimated from a sample says so."""

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
COUNTED = 20_000  # of the runs that ended in a stretch
RANGES = {"15m": 15.0, "1h": 60.0}  # seconds of each of STRETCHES stretches; longer ones: long_charts.py
SAMPLE = 300
DEPTH_COUNTED = 50_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Runs that ended within a stretch of time. `per_s`: executed a second. Where `sampled`, its last runs were read
    and the others counted, up to COUNTED. Waits and lateness in seconds, None without such a run."""

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
    return [stretch(row) for row in charts.finished_by_stretch(conn, RANGES[span], count, SAMPLE, COUNTED)]


def stretch(row: Row) -> Stretch:
    """A row, its counts brought up to the whole stretch where it is a sample.

    Runs end in bursts: what was read does not say how many there were, only counting does. Beyond COUNTED it is taken
    that the stretch was as busy as its end, but no less than was counted."""
    sampled = row["seen"] >= SAMPLE
    width_s = max((row["until_at"] - row["from_at"]).total_seconds(), 0.1)
    share = row["ended"] / max(row["seen"], 1) if sampled else 1.0
    if row["ended"] >= COUNTED:
        share = max(share, width_s / max((row["until_at"] - row["earliest_at"]).total_seconds(), 0.001))
    kept = {name: row[name] for name in ("from_at", "until_at", "wait_50", "wait_95", "late_50", "late_95", "late_max")}
    counts = {name: row[name] * share for name in ("dead", "missed", "retried")}
    return Stretch(**kept, **counts, per_s=row["executed"] * share / width_s, sampled=sampled)


class Recent:
    """The last STRETCHES stretches of a range. Those that were over at the last look are not read again."""

    def __init__(self, span: str) -> None:
        self.span = span
        self._known: list[Stretch] = []
        self._lock = Lock()

    def look(self, conn: Connection[Any], now: datetime) -> list[Stretch]:
        """As of now, by the database's clock."""
        width_s = RANGES[self.span]
        with self._lock:
            known = self._known
            behind = (now - known[-1].from_at).total_seconds() if known else width_s * STRETCHES
            new = rates(conn, self.span, max(1, min(STRETCHES, int(behind // width_s) + 2)))
            kept = [one for one in known if new and one.from_at < new[0].from_at]
            self._known = [*kept, *new][-STRETCHES:]
            return self._known


def rate_of(lately: Sequence[Stretch], seconds: float) -> float:
    """Executed runs a second over so many seconds before the end of the last of these stretches, or a little more."""
    chosen: list[Stretch] = []
    for part in reversed(lately):
        chosen.append(part)
        if (lately[-1].until_at - part.from_at).total_seconds() >= seconds:
            break
    widths_s = [(part.until_at - part.from_at).total_seconds() for part in chosen]
    executed = sum(part.per_s * width_s for part, width_s in zip(chosen, widths_s, strict=True))
    return executed / max(sum(widths_s), 0.1)


def depth(conn: Connection[Any]) -> Row:
    """How many runs have not ended, by state (see runs_open_counted in sql/charts.sql)."""
    return charts.open_runs(conn, DEPTH_COUNTED)


def failures(conn: Connection[Any], n: int = 8) -> list[Row]:
    """The newest runs that ended badly."""
    return charts.failed_runs(conn, n)


def workers(conn: Connection[Any]) -> list[Row]:
    """The workers that are alive."""
    return charts.alive_workers(conn)


def gone_workers(conn: Connection[Any], n: int = 20) -> list[Row]:
    """Those that have gone within the last hour."""
    return charts.gone_workers(conn, n)
