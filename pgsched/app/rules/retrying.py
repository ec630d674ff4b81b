"""When a task's failures are tried again: `no_retry`, `retry_on` and a back-off that code computes.

Invariant: the rule decides about exceptions of the handler only. A timeout and a crash are always tried again while
attempts are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgsched import log
from pgsched.app.declarations import Duration
from pgsched.app.signals import Discard, Kinds, Retry, check_wait, consists_of, format_error, wait_of
from pgsched.errors import TaskError

logger = log.get("task")
BackoffFunction = Callable[[int, BaseException], Duration]


@dataclass(frozen=True, slots=True)
class RetryRule:
    """Which exceptions of a task are tried again, and after how long.

    `no_retry`: exceptions after which the run is dead at once.
    `retry_on`: the only exceptions that are tried again; None: all but those of `no_retry`.
    `backoff`: returns the wait after this attempt and this exception; None: the run's own back-off.
    """

    no_retry: Kinds = ()
    retry_on: Kinds | None = None
    backoff: BackoffFunction | None = None

    def is_retried(self, error: BaseException, meant: BaseException) -> bool:
        """Check whether to try again after this exception. `meant`: the one that counts (`effective_error`)."""
        if isinstance(meant, Retry):
            return True
        if consists_of(error, (Discard, *self.no_retry)):
            return False
        return self.retry_on is None or consists_of(error, self.retry_on)

    def wait(self, attempt: int, error: BaseException, meant: BaseException) -> timedelta | None:
        """Return how long to wait after this attempt; None leaves it to the run's own back-off.

        A time that Retry gives comes first. An error of the task's own function is logged.
        """
        given = wait_of(meant) if isinstance(meant, Retry) else None
        if given is not None or self.backoff is None:
            return given
        try:
            return check_wait("backoff", self.backoff(attempt, error))
        except BaseException as problem:  # user code, as in format_error
            logger.error("the task's backoff function failed: the ordinary back-off is used", attempt=attempt,
                         error=format_error(problem))  # fmt: skip
            return None


ALWAYS = RetryRule()


def check_rule(task: str, no_retry: Any, retry_on: Any, backoff: Any) -> RetryRule:
    """Return a task's rule. Raises TaskError for what are no exception classes, and for two options that exclude."""
    kinds = check_kinds(task, "no_retry", no_retry)
    if retry_on is None:
        return RetryRule(kinds, None, backoff)
    if kinds:
        raise TaskError(f"task {task}: give either retry_on or no_retry: with retry_on all other exceptions are final")
    return RetryRule((), check_kinds(task, "retry_on", retry_on), backoff)


def check_kinds(task: str, option: str, given: Any) -> Kinds:
    """Return exception classes, given as one class or a tuple. Raises TaskError for anything else."""
    found = given if isinstance(given, tuple) else (given,)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TaskError(f"task {task}: {option}: expected exception classes, got {kind!r}")
    return found
