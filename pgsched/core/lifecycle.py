"""The states of a run: in which states it may begin, and which changes of state are allowed.

Invariant: no statement makes another change (tests/integration/db/queries/runs/test_lifecycle.py plays them), and
docs/concepts/overview.md shows exactly these.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgsched.core.model import State

OPEN_STATES = (State.WAITING, State.SCHEDULED, State.QUEUED, State.RUNNING)
ENDED_STATES = (State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED, State.MISSED)
# A slot that does not run is recorded as skipped or missed at once.
FIRST_STATES = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED, State.SKIPPED, State.MISSED})
# An ended run starts again when a person retries it, or a backfill asks for its slot.
AGAIN = frozenset({State.QUEUED, State.WAITING})
CHANGES: Mapping[State, frozenset[State]] = {
    State.WAITING: frozenset({State.QUEUED, State.SCHEDULED, State.CANCELLED, State.SKIPPED, State.MISSED}),
    State.SCHEDULED: frozenset({State.QUEUED, State.WAITING, State.CANCELLED, State.MISSED}),
    State.QUEUED: frozenset({State.RUNNING, State.WAITING, State.SCHEDULED, State.CANCELLED, State.MISSED}),
    State.RUNNING: frozenset(
        {State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SCHEDULED, State.QUEUED, State.WAITING}
    ),
    **dict.fromkeys(ENDED_STATES, AGAIN),
}
