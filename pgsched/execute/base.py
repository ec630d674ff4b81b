"""The rule: an executor turns one claim into one outcome, and is the only one to know how its kind is run.

The worker runs `execute` in a task and cancels that task for a timeout, a cancel request, a lost claim or shutdown.
The executor then stops its work, softly first and hard after `kill_after`, leaves nothing behind and raises
CancelledError (`Stopped` where there is output to keep); which outcome that is, the worker decides. It raises nothing
else: whatever goes wrong in the user's work is an outcome. A second cancellation skips what is left of the soft part.
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
ITSELF = "CancelledError: the task cancelled itself"


class Stopped(asyncio.CancelledError):
    """The cancellation of `execute`, with what the work had printed until then."""

    def __init__(self, log_tail: str | None) -> None:
        super().__init__()
        self.log_tail = log_tail


class Executor(Protocol):
    """Runs one kind of work."""

    @property
    def abandoned(self) -> int:
        """How many handlers still run although nobody waits for them; only Python code can do that."""
        ...

    async def execute(self, claim: Claim) -> Outcome:
        """Run one attempt to its end."""
        ...

    async def close(self) -> None:
        """Let go of what is held between attempts."""
        ...


class Places(Protocol):
    """The places of a worker, for calls that each serve many attempts."""

    async def take_place(self, attempts: Sized) -> None:
        """Wait for a place and take it, for a call that serves these."""
        ...

    def begin(self, claims: Sequence[Claim]) -> None:
        """The call begins, for these."""
        ...

    def give_place(self) -> None:
        """Give it back."""
        ...


@runtime_checkable
class BatchExecutor(Executor, Protocol):
    """Makes many attempts for little more than the price of one: some inline, one after the other in a task of the
    worker (attempts/inline.py), and some by one call that serves them together. The others it executes."""

    @property
    def gathered(self) -> frozenset[str]:
        """The tasks of which one call serves many attempts."""
        ...

    def call_in(self, places: Places) -> None:
        """Have such calls take places of this worker."""
        ...

    def inline_handler(self, claim: Claim) -> InlineHandler | None:
        """What makes this attempt inline; None: it is to be executed."""
        ...

    def run_for(self, claim: Claim, control: Control) -> Run:
        """The Run of an attempt that is made inline."""
        ...


def cap_kill_after(claims: list[Claim], most_s: float) -> None:
    """Let none of these take longer to stop: `kill_after` is the producer's, the worker's time to stop is not."""
    for place, claim in enumerate(claims):
        if kill_after_s(claim) > most_s:
            claims[place] = claim._replace(kill_after=timedelta(seconds=most_s))


def kill_after_s(claim: Claim) -> float:
    """How long work that is told to stop may take before it is stopped hard."""
    return KILL_AFTER_S if claim.kill_after is None else claim.kill_after.total_seconds()
