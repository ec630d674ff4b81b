"""Counters of the leader's duties, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pgsched.telemetry.metrics import Meter, Sample


class LeaderMeter:
    """Counts of the leader's duties, kept in `meter`. `term`: that of this process, None while it does not lead."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.term: int | None = None

    def record_tick(self, seconds: float, jobs: int, slots: int) -> None:
        """Note a tick: the seconds it took, and how many jobs and slots it decided."""
        if jobs:
            self.meter.observe("pgsched_tick_duration_seconds", [seconds])
            self.meter.observe("pgsched_tick_slots", [slots])
            self.meter.count("pgsched_slots_decided_total", (), slots)

    def record_reaped(self, runs: Sequence[dict[str, Any]]) -> None:
        """Count the runs that were taken back, by their new state."""
        for state, count in Counter(run["state"] for run in runs).items():
            self.meter.count("pgsched_runs_reaped_total", (state,), count)

    def record_pruned(self, count: int) -> None:
        """Count the runs that were removed."""
        if count:
            self.meter.count("pgsched_runs_pruned_total", (), count)

    def samples(self) -> Iterator[Sample]:
        """Yield whether this process leads, and its term; a source of a Meter."""
        yield "pgsched_leader", (), int(self.term is not None)
        if self.term is not None:
            yield "pgsched_leader_term", (), self.term
