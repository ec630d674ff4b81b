"""Turns: after a millisecond of handlers that never wait the event loop goes round, so that answers are read and
outcomes written. One turn is for all places, and not for each one.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Coroutine
from typing import Any

from pgsched.app.run import Run
from pgsched.core.model import Claim, Outcome
from pgsched.worker.attempts.attempt import Running

TURN_S = 0.001
Begun = Outcome | Coroutine[Any, Any, Any] | None  # what an attempt has come to; None: it has not begun
# An attempt, the context that it was begun in, when, and what its handler may have steered it by already.
Last = tuple[Claim, Begun, contextvars.Context, float, Running | None]


class Turns:
    """When the turn of all places is over."""

    def __init__(self) -> None:
        self.ends_at = 0.0
        self._ended = False

    def end(self) -> None:
        """The next turn begins when the loop has been round."""
        if not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._ended = False
        self.ends_at = time.monotonic() + TURN_S


class Turn:
    """What becomes of the attempts that one place makes in a turn, one after the other."""

    made = 0
    waits = False  # the last one does
    claim: Claim
    clean: contextvars.Context
    run: Run | None = None  # what the handler of the last one is told, and through which it steers it
    running: Running | None = None
    last: Last | None = None

    def __init__(self) -> None:
        self.began = self.now = time.monotonic()
        self.done: list[Claim] = []  # succeeded and left nothing to keep: settled together


def is_changed(clean: contextvars.Context) -> bool:
    """Does the current context differ from this one? Its values are compared, and their comparison may fail."""
    try:
        return contextvars.copy_context() != clean
    except Exception:
        return True
