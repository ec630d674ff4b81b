"""Every error that pgsched raises on purpose, each with its exit code.

Invariant: the text of an error is one line: what happened, why, and what to do next. An exception that is not a
`PgschedError` is a bug, and may show a traceback.
"""

from __future__ import annotations

BUG = 70  # the exit code of a bug


class PgschedError(Exception):
    """Base of all errors raised on purpose. `exit_code` is the exit code of a command that ends with the error."""

    exit_code = 1


class InputError(PgschedError):
    """A value given by the user is wrong. `field` names it (a column, flag or argument)."""

    exit_code = 2

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ScheduleError(InputError):
    """A schedule or time zone is refused. The text is ``field: reason``.

    `field` is one of second, minute, hour, day of month, month, day of week, schedule, timezone; `reason` is
    the rest of the line.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}", field)
        self.reason = reason


# What may have been done where a call got no answer; the text of DatabaseUnreachable ends with it.
RUN_MADE = "the run may have been made: with an idempotency_key it is safe to repeat"
CHANGED = "the change may have been made"


class DatabaseUnreachable(PgschedError):
    """No server answered, or it refused the login."""

    exit_code = 3


class DatabaseReadOnly(PgschedError):
    """The server answered but takes no writes (a standby, or default_transaction_read_only)."""

    exit_code = 4


class SchemaTooOld(PgschedError):
    """The pgsched schema is missing or older than this program: run `pgsched migrate`."""

    exit_code = 5


class SchemaTooNew(PgschedError):
    """The pgsched schema was migrated by a newer program than this one: upgrade pgsched."""

    exit_code = 6


class NotPermitted(PgschedError):
    """The database role lacks a grant that this command needs."""

    exit_code = 7


class NotOwned(PgschedError):
    """A file of jobs would change what it did not declare: adopt it, or take it out of the file."""


class NotFound(PgschedError):
    """No job, run, lock or key with that name or id."""

    exit_code = 8


class ClaimLost(PgschedError):
    """The attempt does not own its run any more: another one does, or the run has ended. Let the handler end."""


class RunFailed(PgschedError):
    """A run that a program waited for has ended without success.

    `state`: dead, cancelled, missed or skipped. `error`: the error of a dead run's last attempt; of other runs why they
    ended. `traceback`: the traceback of that error, if there is one.
    """

    def __init__(self, run_id: int, state: str, error: str | None, traceback: str | None) -> None:
        super().__init__(f"run {run_id} is {state}" + (f": {error}" if error else ""))
        self.run_id, self.state, self.error, self.traceback = run_id, state, error, traceback


class RunGone(NotFound):
    """There is no run with that id: its row was pruned, or the transaction that made it was rolled back."""


class TimedOut(PgschedError):
    """An attempt was stopped because its time was over; `on_error` hooks get this error."""


class Crashed(PgschedError):
    """An attempt took its process down; `on_error` hooks get this error."""


class EmbeddedUnavailable(PgschedError):
    """The embedded server is not installed or could not start."""

    exit_code = 9


class TaskError(PgschedError):
    """A task is unknown, registered twice, or was given arguments that do not fit."""

    exit_code = 2


class MemoryReached(PgschedError):
    """The worker took more memory than --max-memory; it has drained and is to be started again."""

    exit_code = 10


class AlreadyEnqueued(PgschedError):
    """An enqueue with on_conflict="reject" met a run that has its unique key. `run_id` is that run's id."""

    exit_code = 11

    def __init__(self, message: str, run_id: int) -> None:
        super().__init__(message)
        self.run_id = run_id


class LockTimeout(PgschedError):
    """Another transaction holds a lock that a statement needs, and did not end in time. Nothing was done: try again.

    Raised for a deadlock with another transaction, too.
    """


class LeaseLost(PgschedError):
    """A lock, or what else hangs on a session, is not held any more: it was not renewed in time, or was taken away.

    Another process may hold it. Undo what was done under it, or let the transaction fail.
    """

    exit_code = 14


class WaitCancelled(PgschedError):
    """The wait for a lock or item was cancelled by `cancel` in another thread, or because the App was closed.

    Nothing is held, and nothing is in line.
    """


class WrongFleet(PgschedError):
    """The database belongs to another fleet than PGSCHED_FLEET names, or than this process was connected to before."""

    exit_code = 13


class QueueFull(PgschedError):
    """The queue has its max_depth of runs, and refuses more."""

    exit_code = 12
