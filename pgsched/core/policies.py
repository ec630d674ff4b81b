"""The allowed values of each policy column: one tuple for each set of values.

Invariant: the checks of the schema, of declarations, of forms and of the API allow exactly these values
(tests/unit/core/test_policy_values.py).
"""

from __future__ import annotations

from enum import IntEnum

# What happens to a due slot while earlier runs of its job are not finished.
OVERLAP = ("allow", "skip", "buffer_one", "buffer_all", "replace", "terminate")
# Which late slots run.
CATCH_UP = ("latest", "skip", "earliest", "all")
# How the wait between attempts grows.
BACKOFF = ("exponential", "linear", "fixed")
# What happens to a run when a run that it waits for does not succeed.
ON_FAILURE = ("cancel", "run_anyway", "wait")
# What a second enqueue with the same unique key does.
ON_CONFLICT = ("return", "reject", "replace", "keep_time")


# What happens to an enqueue into a full queue.
ON_FULL = ("reject", "shed_oldest")
# What can be paused: everything, a queue or a task.
PAUSED = ("all", "queue", "task")


class Phase(IntEnum):
    """The coarse state of a run that the indexes use: `runs.phase` follows from `runs.state`."""

    WAITING = 0  # for other runs, the overlap policy or limits
    SCHEDULED = 1  # until an instant
    CLAIMABLE = 2  # queued, or claimed and running
    ENDED_WELL = 3
    ENDED_BADLY = 4
