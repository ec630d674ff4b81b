"""The calls that wait for runs: their runs, what is known of them, and when to look again.

Invariant: a call goes on when its last run has ended, or with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgsched.errors import PgschedError

States = dict[int, "str | None"]  # the state of each run that has ended; None: there is no such run
FIRST_POLL_S = 0.1  # behind a pooler
FIRST_LOCKED_S = 0.002  # while a run is locked, so that it cannot be marked


class Ticket:
    """One call that waits: its runs, and the states of those that have ended."""

    def __init__(self, ids: Iterable[int], ready: Callable[[], None]) -> None:
        self.left = dict.fromkeys(ids)
        self.unmarked = list(self.left)
        self.stale = True  # a run may have ended since the last look
        self.rest_until = self.look_by = self.rest_s = 0.0
        self.poll_s = FIRST_POLL_S
        self.locked_s = FIRST_LOCKED_S
        self.states: States = {}
        self.error: PgschedError | None = None
        self.dropped = False  # the call does not wait any more
        self._ready = ready

    def deliver(self, states: States) -> None:
        """Take the states of runs that have ended; the last one makes the call go on."""
        for run_id in states.keys() & self.left.keys():
            del self.left[run_id]
            self.states[run_id] = states[run_id]
        if not self.left:
            self._ready()

    def next_look_at(self) -> float:
        """Return when to look at the runs of this call, on the monotonic clock."""
        return self.rest_until if self.stale else self.look_by

    def fail(self, error: PgschedError) -> None:
        """Make the call go on with an error."""
        self.error = error
        self._ready()


def result_of(ticket: Ticket) -> States:
    """Return the states that a call has got. Raises the error that kept it from getting more."""
    if ticket.error is not None and ticket.left:
        raise ticket.error
    return dict(ticket.states)
