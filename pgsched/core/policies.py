"""The values that a column may have, each set of them once.

Invariant: the checks of the schema, of declarations, of forms and of the API allow exactly these
(tests/unit/core/test_policy_values.py).
"""

from __future__ import annotations

from enum import IntEnum

# What becomes of a due slot while earlier runs of its job are not finished.
OVERLAP = ("allow", "skip", "buffer_one", "buffer_all", "replace", "terminate")
# Which late slots run.
CATCH_UP = ("latest", "skip", "earliest", "all")
# How the wait between attempts grows.
BACKOFF = ("exponential", "linear", "fixed")
# What becomes of a run when one that it waits for does not succeed.
ON_FAILURE = ("cancel", "run_anyway", "wait")
# What a second enqueue with the same unique key does.
ON_CONFLICT = ("return", "reject", "replace", "keep_time")


# What becomes of an enqueue into a queue that is full.
ON_FULL = ("reject", "shed_oldest")
# What a pause can be of.
PAUSED = ("all", "queue", "task")


class Phase(IntEnum):
    """Where a run is in its life, as the indexes have it: `runs.phase` follows from `runs.state`."""

    WAITING = 0  # for dependencies, limits or a pause
    SCHEDULED = 1  # for an instant
    CLAIMABLE = 2  # queued, or claimed and running
    ENDED_WELL = 3
    ENDED_BADLY = 4
