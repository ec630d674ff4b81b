"""Charts of ranges that are longer than rows are kept, from the minutes and hours that were counted.

Invariant: counts are exact. A percentile lies between the two bounds of its bin, so it is wrong by a factor of two at
worst. A year is estimated from every eleventh hour, unless a job has only few hours; an estimate is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import rollups
from pgsched.db.queries.leader.rollups import Stretches
from pgsched.services.charts import STRETCHES, Stretch, read_stretches

FIRST_S = 0.001  # the upper bound of the first bin; each next one is twice as high
# Seconds of each of the STRETCHES stretches: whole minutes, or whole hours for ranges above three days.
LONGER = {"6h": 360.0, "24h": 1440.0, "7d": 10_800.0, "30d": 43_200.0, "1y": 525_600.0}
OF_A_JOB = ("7d", "30d", "1y")  # counted minutes do not distinguish jobs
HOUR_S = 3600.0
NOTHING: Row = {"every": 1, "started": 0, "retried": 0, "dead": 0, "missed": 0, "late_max_s": None,
                "durations": (), "waits": (), "lates": ()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobStretch:
    """A stretch of one job.

    `runs`: executed runs.
    `took_50`, `took_95`: seconds that 50 % and 95 % of the runs took at most.
    `late_95`: seconds that 95 % of the slots were late at most.
    `sampled`: the figures are estimated.
    """

    from_at: datetime
    until_at: datetime
    runs: int
    dead: int
    missed: int
    took_50: float | None
    took_95: float | None
    late_95: float | None
    sampled: bool


Found = list[tuple[datetime, datetime, Row]]  # from, until, the counted figures


def read_range(conn: Connection[Any], span: str) -> list[Stretch]:
    """Return the stretches of any range: from the rows, or for the ranges in LONGER from the counted figures."""
    return read_stretches_counted(conn, span) if span in LONGER else read_stretches(conn, span)


def read_stretches_counted(conn: Connection[Any], span: str) -> list[Stretch]:
    """Return the last STRETCHES stretches of a range, oldest first.

    The newest one is not over, and its last seconds are not counted yet.
    """
    return [build_counted_stretch(*one) for one in read_counts(conn, span)]


def read_job_stretches(conn: Connection[Any], job_id: int, span: str) -> list[JobStretch]:
    """Return the stretches of one job, for the ranges in OF_A_JOB."""
    return [
        JobStretch(
            from_at, until_at, row["started"] * row["every"], row["dead"] * row["every"], row["missed"] * row["every"],
            percentile(row["durations"], 0.5), percentile(row["durations"], 0.95),
            cap(percentile(row["lates"], 0.95), row["late_max_s"]), row["every"] > 1,
        )
        for from_at, until_at, row in read_counts(conn, span, job_id)
    ]  # fmt: skip


def read_counts(conn: Connection[Any], span: str, job_id: int = 0) -> Found:
    """Return the counted figures of each stretch."""
    width_s = LONGER[span]
    now = rollups.find_uncounted(conn).now
    newest = datetime.fromtimestamp(now.timestamp() // width_s * width_s, now.tzinfo)
    begin = newest - timedelta(seconds=width_s * (STRETCHES - 1))
    unit = "hour" if job_id != 0 or width_s >= HOUR_S else "minute"
    read = {row["begins_at"]: row for row in rollups.read_stretches(conn, Stretches(unit, begin, now, width_s, job_id))}
    edges = [min(begin + timedelta(seconds=width_s * n), now) for n in range(STRETCHES + 1)]
    return [(at, until, read.get(at, NOTHING)) for at, until in pairwise(edges)]


def build_counted_stretch(from_at: datetime, until_at: datetime, row: Row) -> Stretch:
    """Return the figures of one stretch; they are estimates where not every hour was read."""
    every = row["every"]
    return Stretch(
        from_at=from_at,
        until_at=until_at,
        per_s=row["started"] * every / max((until_at - from_at).total_seconds(), 0.1),
        dead=float(row["dead"] * every),
        missed=float(row["missed"] * every),
        retried=float(row["retried"] * every),
        wait_50=percentile(row["waits"], 0.5),
        wait_95=percentile(row["waits"], 0.95),
        late_50=cap(percentile(row["lates"], 0.5), row["late_max_s"]),
        late_95=cap(percentile(row["lates"], 0.95), row["late_max_s"]),
        late_max=row["late_max_s"],
        sampled=every > 1,
    )


def cap(value: float | None, most: float | None) -> float | None:
    """Return the value, but not more than the greatest value that occurred."""
    return value if value is None or most is None else min(value, most)


def percentile(bins: Sequence[int], share: float) -> float | None:
    """Return the seconds below which this share of the values lies; None if there are none."""
    bins = [count or 0 for count in bins]
    wanted, below = sum(bins) * share, 0.0
    for n, count in enumerate(bins):
        if count and below + count >= wanted:
            low, high = (0.0, FIRST_S) if n == 0 else (FIRST_S * 2 ** (n - 1), FIRST_S * 2**n)
            return low + (high - low) * max(0.0, wanted - below) / count
        below += count
    return None
