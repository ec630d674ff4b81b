"""Repeat calls that failed because the database did not answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pgsched.recipes.kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    RetryFailedError,
    SessionExpiredError,
)

T = TypeVar("T")


class KazooRetry:
    """Repeats calls. Call it with a function and its arguments; it returns what the function returns.

    `max_tries`: how often the function is called at most; None or -1: without limit. `delay`: seconds before the first
    repetition; each further pause is `backoff` times as long, up to `max_delay`. `max_jitter`: by which part of it a
    pause is shortened at random, at most. `ignore_expire`: whether a session that has ended is a reason to repeat.
    `deadline`: seconds after which no further call is made; None: no limit. `interrupt`: a function; no further call is
    made when it returns True.
    """

    def __init__(  # noqa: PLR0913, PLR0917  as in Kazoo
        self,
        max_tries: int | None = 1,
        delay: float = 0.1,
        backoff: float = 2,
        max_jitter: float = 0.4,
        max_delay: float = 60.0,
        ignore_expire: bool = True,
        sleep_func: Callable[[float], Any] = time.sleep,
        deadline: float | None = None,
        interrupt: Callable[[], bool] | None = None,
    ) -> None:
        self._most = None if max_tries == -1 else max_tries
        self._pauses = (delay, backoff, min(max(max_jitter, 0.0), 1.0), max_delay)
        self._expected: tuple[type[Exception], ...] = (ConnectionLoss, OperationTimeoutError)
        if ignore_expire:
            self._expected += (SessionExpiredError,)
        self._sleep = sleep_func
        self._deadline_s = deadline
        self._interrupt = interrupt

    def copy(self) -> KazooRetry:
        """Return this object: it keeps nothing between calls."""
        return self

    def __call__(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `func`, again after ConnectionLoss, OperationTimeoutError and, as a rule, SessionExpiredError.

        Raises RetryFailedError when the last repetition has failed, too, and ConnectionClosedError at once.
        """
        delay, backoff, jitter, longest = self._pauses
        until = None if self._deadline_s is None else time.monotonic() + self._deadline_s
        tries = 0
        while True:
            try:
                return func(*args, **kwargs)
            except ConnectionClosedError:
                raise
            except self._expected as error:
                tries += 1
                pause = min(delay, longest) * (1 - jitter * random.random())
                if tries == self._most:
                    raise RetryFailedError(f"failed {tries} times: {error}") from error
                if self._interrupt is not None and self._interrupt():
                    raise RetryFailedError(f"interrupted: {error}") from error
                if until is not None and time.monotonic() + pause >= until:
                    raise RetryFailedError(f"failed until the deadline: {error}") from error
                self._sleep(pause)
                delay = min(delay * backoff, longest)
