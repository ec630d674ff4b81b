"""The protocols between a worker and its executors: how one claim becomes one outcome.

Invariant: only an executor knows how its kind of work is run.

The worker runs `execute` in a task, and cancels that task for a timeout, a cancel request, a lost claim or shutdown. On
cancellation the executor:

- stops its work, softly first, and by force after `kill_after`,
- leaves no process or connection behind,
- raises CancelledError (`AttemptCancelled` where there is output to keep). The worker decides which outcome this is.

`execute` raises nothing else: each error in the user's work becomes an outcome. A second cancellation skips the rest of
the soft stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Sized
from datetime import timedelta
from typing import Protocol, runtime_checkable

from pgsched.app.control import Control
from pgsched.app.run import Run
from pgsched.core.model import Claim, Outcome
from pgsched.execute.python.handler import InlineHandler

KILL_AFTER_S = 10.0
CANCELLED_ITSELF = "CancelledError: the task cancelled itself"


class AttemptCancelled(asyncio.CancelledError):
    """The cancellation of `execute`, with the work's output up to then."""

    def __init__(self, log_tail: str | None) -> None:
        super().__init__()
        self.log_tail = log_tail


class Executor(Protocol):
    """The part of a worker that runs one kind of work."""

    @property
    def abandoned(self) -> int:
        """How many handlers still run although the worker no longer waits for them; only Python handlers can."""
        ...

    async def execute(self, claim: Claim) -> Outcome:
        """Run one attempt to its end."""
        ...

    async def close(self) -> None:
        """Release what the executor keeps between attempts."""
        ...


class Places(Protocol):
    """The places of a worker, for calls that each serve many attempts."""

    async def take_place(self, attempts: Sized) -> None:
        """Wait for a place and take it, for a call that serves these attempts."""
        ...

    def begin(self, claims: Sequence[Claim]) -> None:
        """Mark the start of the call that serves these claims."""
        ...

    def give_place(self) -> None:
        """Give the place back."""
        ...


@runtime_checkable
class BatchExecutor(Executor, Protocol):
    """An executor that makes many attempts for little more than the cost of one.

    - Some attempts run inline, one after the other in one task of the worker (worker/attempts/inline.py).
    - Some are served together, by one call of a batched handler.
    - The other attempts go through `execute`.
    """

    @property
    def batched_tasks(self) -> frozenset[str]:
        """The names of the tasks whose handler serves many attempts in one call."""
        ...

    def call_in(self, places: Places) -> None:
        """Make the calls of batched handlers take their places from this worker."""
        ...

    def inline_handler(self, claim: Claim) -> InlineHandler | None:
        """Return the handler that makes this attempt inline, or None where the attempt needs `execute`."""
        ...

    def run_for(self, claim: Claim, control: Control) -> Run:
        """Return the Run of an attempt that is made inline."""
        ...


def cap_kill_after(claims: list[Claim], most_s: float) -> None:
    """Lower `kill_after` of these claims, in place, to at most `most_s` seconds.

    The producer chooses `kill_after`, but the worker chooses how long its own stop may take.
    """
    for place, claim in enumerate(claims):
        if get_kill_after_s(claim) > most_s:
            claims[place] = claim._replace(kill_after=timedelta(seconds=most_s))


def set_default_timeout(claims: list[Claim], default_s: float | None) -> None:
    """Give those of these claims that have no timeout this one, in seconds, in place; None: no timeout."""
    if default_s is None:
        return
    for place, claim in enumerate(claims):
        if claim.timeout is None:
            claims[place] = claim._replace(timeout=timedelta(seconds=default_s))


def get_kill_after_s(claim: Claim) -> float:
    """Return how many seconds work may take to stop softly, before it is stopped by force."""
    return KILL_AFTER_S if claim.kill_after is None else claim.kill_after.total_seconds()
