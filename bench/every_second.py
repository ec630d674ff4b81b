"""`every-second`: many jobs with the schedule `* * * * * *`; how long after each slot its handler starts.

The rule: one `pgsched worker` with default settings leads, ticks and runs. All slots of the measured seconds are asked
of the database: each must be a run that succeeded, any other is counted as missed; and as many handlers must have
started. Handlers compare the slot with the clock of this machine, which is the server's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.adapter import Failed, Seen, call, wait_for, workers
from bench.contestants import PGSCHED
from bench.report import Result, number, progress, quantile
from bench.server import Server, scalar

WARM_UP_S = 3
INSERT = """
INSERT INTO pgsched.jobs (name, schedule, task)
SELECT 'bench ' || i, '* * * * * *', 'slot' FROM generate_series(1, %s) AS i
"""
NOW = "SELECT extract(epoch FROM clock_timestamp())::bigint"
DONE = """
SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL AND state = 'succeeded'
AND scheduled_at >= to_timestamp(%s) AND scheduled_at < to_timestamp(%s)
"""
STATES = """
SELECT state, count(*) FROM pgsched.runs WHERE job_id IS NOT NULL
AND scheduled_at >= to_timestamp(%s) AND scheduled_at < to_timestamp(%s) GROUP BY state
"""


@dataclass(frozen=True)
class Slots:
    """The measured slots: how late their handlers started (ms), and what became of them."""

    jobs: int
    seconds: int
    late_ms: list[float]
    states: dict[str, int]

    @property
    def missed(self) -> int:
        """Slots that did not become a run that succeeded."""
        return self.jobs * self.seconds - self.states.get("succeeded", 0)


def every_second(server: Server, loads: list[tuple[int, int]]) -> Result:
    """Each load of (jobs, seconds)."""
    columns = ["", "slots", "missed", "p50", "p99", "max"]
    result = Result("every-second", "Jobs firing every second, one worker: slot to handler start", columns)
    figures: list[dict[str, Any]] = []
    for jobs, seconds in loads:
        with server.database("every-second") as dsn:
            call(PGSCHED, "setup", dsn)
            got = measure(dsn, jobs, seconds)
        progress(
            f"every-second, {jobs} jobs: p99 {quantile(got.late_ms, 0.99):.1f} ms, {got.missed} missed {got.states}"
        )
        result.rows.append(row(got))
        figures.append(
            {"jobs": jobs, "seconds": seconds, "missed": got.missed, "states": got.states, **latencies(got.late_ms)}
        )
    result.data = {"loads": figures}
    return result


def row(got: Slots) -> list[str]:
    """One line of the table."""
    late = [quantile(got.late_ms, 0.5), quantile(got.late_ms, 0.99), max(got.late_ms, default=0.0)]
    label = f"{got.jobs:,} jobs for {got.seconds} s"
    return [label, number(got.jobs * got.seconds), number(got.missed), *[number(one, 1, " ms") for one in late]]


def latencies(ms: list[float]) -> dict[str, Any]:
    """For programs."""
    return {"p50_ms": quantile(ms, 0.5), "p99_ms": quantile(ms, 0.99), "ms": [round(one, 2) for one in ms]}


def measure(dsn: str, jobs: int, seconds: int) -> Slots:
    """One load, in a database that has pgsched's schema; its jobs are deleted afterwards."""
    with workers(PGSCHED, dsn, 1, n=0) as started, psycopg.connect(dsn, autocommit=True) as look:
        wait_for(lambda: scalar(look, "SELECT count(*) FROM pgsched.leader WHERE term > 0"), started, 60, "a leader")
        look.execute(INSERT, [jobs])
        begin = int(str(scalar(look, NOW))) + WARM_UP_S
        time.sleep(WARM_UP_S + seconds + 0.5)
        end = begin + seconds
        settled(look, begin, end, jobs * seconds)
        late = late_ms(started[0].dump(), begin, end)
        states = {str(state): int(count) for state, count in look.execute(STATES, [begin, end]).fetchall()}
        if len(late) != states.get("succeeded", 0):
            raise Failed(f"every-second: {len(late)} handlers were started, the database has {states}")
        look.execute("DELETE FROM pgsched.jobs")
        # a killed worker's last runs would be unfinished until their leases end
        wait_for(lambda: not scalar(look, PGSCHED.unfinished), started, 120, "the last runs")
    return Slots(jobs, seconds, late or [float("nan")], states)


def settled(look: psycopg.Connection, begin: int, end: int, expected: int) -> None:
    """Wait for the last ones; no longer when nothing more comes."""
    before, patience = -1, 5.0
    while (done := int(str(scalar(look, DONE, [begin, end])))) < expected and patience > 0:
        patience = 5.0 if done > before else patience - 0.5
        before = done
        time.sleep(0.5)


def late_ms(seen: Seen, begin: int, end: int) -> list[float]:
    """How late the measured slots were."""
    return [late * 1000 for slot, late in seen.late if begin <= slot < end]
