"""A process exports a bounded number of series of each metric, however many tasks and queues there are."""

from __future__ import annotations

from pgsched.telemetry.catalogue import MOST_SERIES, OTHER
from pgsched.telemetry.metrics import Meter


def test_series_of_many_queues_and_tasks_are_bounded_and_all_are_counted() -> None:
    """A hundred queues with a hundred tasks each would be ten thousand histograms."""
    meter = Meter()
    for queue in range(100):
        for task in range(100):
            labels = f"q{queue}", "task", f"t{task}"
            meter.observe("pgsched_attempt_duration_seconds", [1.0], labels)
            meter.count("pgsched_attempts_total", (*labels, "failed" if task % 2 else "succeeded"))
    found = meter.snapshot()
    for name, value in (
        ("pgsched_attempts_total", lambda v: v),
        ("pgsched_attempt_duration_seconds", lambda v: sum(v[0])),
    ):
        series = {labels: value(v) for given, labels, v in found if given == name}
        assert len(series) <= MOST_SERIES + 2
        assert sum(series.values()) == 10_000
        assert series["q0", "task", "t1", *(("failed",) if name.endswith("total") else ())] == 1
    assert {labels[3] for name, labels, _ in found if len(labels) == 4 and labels[0] == OTHER} == {
        "failed",
        "succeeded",
    }
