"""`every-second`: many jobs with the schedule `* * * * * *`; how long after each slot its handler starts.

Invariant: one `pgsched worker` with default settings leads, ticks and runs. The database is asked for all slots of the
measured seconds. Each must be a run that succeeded; any other slot counts as missed. As many handlers must have
started. Latencies are medians over the rounds; missed slots are the sum. Handlers compare the slot with the clock of
this machine, which is also the server's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.adapter import Failed, Seen, call, unfinished, wait_for, workers
from bench.contestants import PGSCHED
from bench.report import Result, log_step, number, quantile
from bench.rounds import each, middle
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
    """The measured slots: how late their handlers started (ms), and the states of their runs."""

    jobs: int
    seconds: int
    late_ms: list[float]
    states: dict[str, int]

    @property
    def missed(self) -> int:
        """Return how many slots did not become a run that succeeded."""
        return self.jobs * self.seconds - self.states.get("succeeded", 0)


def every_second(server: Server, loads: list[tuple[int, int]], rounds: int) -> Result:
    """Measure each load of (jobs, seconds), `rounds` times."""
    columns = ["", "slots", "missed", "p50", "p99", "max", "p50s", "p99s"]
    result = Result("every-second", "Jobs firing every second, one worker: slot to handler start", columns)
    figures: list[dict[str, Any]] = []
    for jobs, seconds in loads:
        got = [one_round(server, jobs, seconds) for _ in range(rounds)]
        result.rows.append(row(got))
        figures.append(data(got))
    result.data = {"loads": figures}
    return result


def one_round(server: Server, jobs: int, seconds: int) -> Slots:
    """Measure one load in a fresh database."""
    with server.database("every-second") as dsn:
        call(PGSCHED, "setup", dsn)
        got = measure(dsn, jobs, seconds)
    log_step(
        f"every-second, {jobs} jobs: p50 {P50(got):.1f} ms, p99 {P99(got):.1f} ms, {got.missed} missed {got.states}"
    )
    return got


def late_by(share: float) -> Callable[[Slots], float]:
    """Return a function for a quantile of the lateness."""
    return lambda got: quantile(got.late_ms, share)


P50, P99 = late_by(0.5), late_by(0.99)


def row(got: Sequence[Slots]) -> list[str]:
    """Return one row of the table."""
    slots, missed = (
        number(sum(values)) for values in zip(*((one.jobs * one.seconds, one.missed) for one in got), strict=True)
    )
    late = [middle(got, P50), middle(got, P99), max(max(one.late_ms) for one in got)]
    label = f"{got[0].jobs:,} jobs for {got[0].seconds} s"
    return [label, slots, missed, *[number(one, 1, " ms") for one in late], each(got, P50, 1), each(got, P99, 1)]


def data(got: Sequence[Slots]) -> dict[str, Any]:
    """Return the figures for programs and for the plot: medians, states by round, and all latencies."""
    return {
        "jobs": got[0].jobs,
        "seconds": got[0].seconds,
        "missed": sum(one.missed for one in got),
        "states": [one.states for one in got],
        "p50_ms": middle(got, P50),
        "p99_ms": middle(got, P99),
        "ms": [round(late, 2) for one in got for late in one.late_ms],
    }


def measure(dsn: str, jobs: int, seconds: int) -> Slots:
    """Measure one load in a database that has pgsched's schema; delete its jobs afterwards."""
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
        # Otherwise the killed worker's last runs would be unfinished until their leases end.
        wait_for(lambda: not unfinished(look, PGSCHED), started, 120, "the last runs")
    return Slots(jobs, seconds, late or [float("nan")], states)


def settled(look: psycopg.Connection, begin: int, end: int, expected: int) -> None:
    """Wait until all slots have succeeded; stop waiting when no more follow."""
    before, patience = -1, 5.0
    while (done := int(str(scalar(look, DONE, [begin, end])))) < expected and patience > 0:
        patience = 5.0 if done > before else patience - 0.5
        before = done
        time.sleep(0.5)


def late_ms(seen: Seen, begin: int, end: int) -> list[float]:
    """Return how late the measured slots were, in ms."""
    return [late * 1000 for slot, late in seen.late if begin <= slot < end]
