"""The report "what happened last night": what became of the runs of the last hours, by job and by task.

Invariant: the reads are bounded. Figures come from the runs themselves where these are few and all still there.
Otherwise they come from the hours that were counted, and are marked: counts are then exact, and times approximate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import summary
from pgsched.db.queries.reports.live import database_now
from pgsched.errors import InputError, NotPermitted
from pgsched.services.long_charts import FIRST_S, percentile

MOST = 100_000  # runs that are read at most
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What became of the runs of one job, or of a task outside of jobs.

    `job`: the job's name; None for runs without a job. `task`: the task of runs without a job, else empty.
    `ok`, `dead`, `cancelled`: runs that ended so.
    `missed`, `skipped`: slots and runs that did not run.
    `late`: slots that started later than `max_lateness`, or a minute, after their time.
    `took_50_s`, `took_max_s`: the median and the longest duration of an attempt, in seconds.
    `error`: the error of the newest dead run.
    """

    job: str | None
    task: str
    ok: int = 0
    dead: int = 0
    missed: int = 0
    skipped: int = 0
    cancelled: int = 0
    late: int = 0
    took_50_s: float | None = None
    took_max_s: float | None = None
    error: str | None = None

    @property
    def badness(self) -> tuple[float, ...]:
        """The key by which the worst comes first."""
        return (-(self.dead + self.missed), -self.late, -self.skipped, -(self.took_max_s or 0))


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the runs that ended between two instants, the worst jobs first.

    `exact`: all figures come from the runs. Otherwise they come from counted hours: `since` is a full hour, durations
    are wrong by a factor of two at worst, and `late` counts what was late by up to twice as much.
    """

    since: datetime
    until: datetime
    exact: bool
    jobs: list[JobSummary]

    @property
    def totals(self) -> dict[str, int]:
        """The sums of all counts."""
        names = ("ok", "dead", "missed", "skipped", "cancelled", "late")
        return {name: sum(getattr(one, name) for one in self.jobs) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        jobs = [asdict(one) | {"task": one.task or None} for one in self.jobs]
        return {"since": self.since, "until": self.until, "exact": self.exact, "totals": self.totals, "jobs": jobs}


def read_report(
    conn: Connection[Any], since: datetime | timedelta, until: datetime | timedelta | None = None, most: int = MOST
) -> Report:
    """Return what became of the runs that ended from `since` on and before `until` (None: now).

    Times are instants, or so long ago by the database's clock. `most`: how many runs are read.
    A role that sees only its own runs gets a report of them. Raises InputError if the time is empty, and NotPermitted
    if such a role has more runs than are read.
    """
    now = database_now(conn)
    start = now - since if isinstance(since, timedelta) else since
    end = now - until if isinstance(until, timedelta) else until or now
    if start >= end:
        raise InputError("since: is not before the end of the report", "since")
    from_hour, to_hour = floor_hour(start + HOUR - timedelta(microseconds=1)), floor_hour(end)
    found = summary.ended_by_job(conn, start, end, most, from_hour, to_hour)
    read, inside = (sum(row[name] for row in found) for name in ("read", "inside"))
    if read < most and inside >= count_known(conn, from_hour, to_hour):
        return Report(start, end, True, worst_first(map(summarize_rows, found)))
    start = floor_hour(start)
    return Report(start, end, False, worst_first(summarize_counts(summary.counted_by_job(conn, start, end))))


def count_known(conn: Connection[Any], from_hour: datetime, to_hour: datetime) -> int:
    """Return how many runs were counted that ended within these hours; 0 for a role that may not read all figures."""
    try:
        return summary.counted_runs(conn, from_hour, to_hour) if from_hour < to_hour else 0
    except NotPermitted:
        return 0


def floor_hour(instant: datetime) -> datetime:
    """Return the beginning of the hour."""
    return instant.replace(minute=0, second=0, microsecond=0)


def worst_first(found: Iterable[JobSummary]) -> list[JobSummary]:
    """Return the summaries in the order in which a person looks at them."""
    return sorted(found, key=lambda one: (*one.badness, one.job or "", one.task))


def name_of_job(row: Row) -> str | None:
    """Return the name of a job; of a deleted one its id, as `explain` takes it."""
    if row["job_id"] is None:
        return None
    return str(row["job"] if row["job"] is not None else f"{row['job_id']} (deleted)")


def summarize_rows(row: Row) -> JobSummary:
    """Return the summary of a job from the figures of its runs."""
    given = {field.name: row[field.name] for field in fields(JobSummary) if field.name != "job"}
    return JobSummary(job=name_of_job(row), **given)


def summarize_counts(found: Sequence[Row]) -> list[JobSummary]:
    """Return the summaries of all jobs from counted figures: a row for each job and state."""
    names = {"succeeded": "ok", **{name: name for name in ("dead", "missed", "skipped", "cancelled")}}
    grouped: dict[tuple[str | None, str], list[Row]] = {}
    for row in found:
        grouped.setdefault((name_of_job(row), row["task"]), []).append(row)
    summaries = []
    for (job, task), rows in grouped.items():
        counts: dict[str, Any] = {names[row["state"]]: int(row["runs"]) for row in rows if row["state"] in names}
        durations = sum_bins(row["durations"] for row in rows if row["state"] in ("succeeded", "dead"))
        late = count_above(sum_bins(row["lates"] for row in rows), rows[0]["max_lateness_s"])
        highest = max((n for n, count in enumerate(durations) if count), default=None)
        longest = None if highest is None else FIRST_S * 2**highest
        summaries.append(JobSummary(job, task, **counts, late=late, took_50_s=percentile(durations, 0.5),
                                    took_max_s=longest))  # fmt: skip
    return summaries


def sum_bins(found: Iterable[Sequence[int]]) -> list[int]:
    """Return the sums of counts by bin."""
    return [sum(count or 0 for count in column) for column in zip(*found, strict=True)]


def count_above(bins: Sequence[int], seconds: float) -> int:
    """Return how many values lie in bins that begin at this value or above."""
    return sum(count for n, count in enumerate(bins) if n > 0 and FIRST_S * 2 ** (n - 1) >= seconds)
