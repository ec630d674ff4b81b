"""Classify database failures: sqlstates to reactions, the wait before the next try, and the errors to raise."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

import psycopg

from pgsched.errors import (
    DatabaseReadOnly,
    DatabaseUnreachable,
    InputError,
    LeaseLost,
    LockTimeout,
    NotPermitted,
    PgschedError,
    QueueFull,
    SchemaTooOld,
    WrongFleet,
)
from pgsched.log import redact

LONGEST_BACK_OFF_S = 5.0
UNFORESEEN = 10  # tries before an unknown error is taken for permanent: about 20 s
WRONG_FLEET = "PS409"  # raised by pgsched.assert_fleet
# Refusals of a login. libpq does not pass on their sqlstate.
LOGIN_REFUSED = re.compile(
    r"authentication failed|no password supplied|(database|role) .* does not exist|no pg_hba.conf entry|permitted to"
)
LOCKED_ADVICE = (
    "another transaction holds what this needs (a row, or a run's unique key) and has not ended:"
    " nothing was done, try again, or end it (`pgsched doctor` names the session that is in the way)"
)
DEADLOCK_DETECTED = "40P01"
DEADLOCK_ADVICE = (
    "this transaction and another one waited for each other, and PostgreSQL ended this one: nothing was done, try again"
)
IN_USE_ADVICE = "make one call at a time on a connection"
LEASE_LOST = "PS410"  # raised where a session has ended, or a lock is not held any more
QUEUE_FULL = "PS429"  # raised where a queue has its max_depth of runs
# Parts of the messages with which libpq refuses a standby, because of target_session_attrs.
STANDBY = ("server is in hot standby mode", "session is read-only", "session is not read-write")


class Reaction(Enum):
    """What to do about a database error."""

    RECONNECT = "the connection is gone: reconnect with back-off and repeat the idempotent call"
    LOST = "the session was ended for being idle: leadership or claim is lost, never repeat"
    RETRY = "a conflict with another transaction: roll back and repeat a bounded number of times"
    STANDBY = "this server takes no writes: reconnect"
    BACK_OFF = "the server is out of a resource: wait long, report unhealthy"
    CONFIGURATION = "a grant or a migration is missing: end the process"
    VALUE = "it is the fault of a value that was sent: to repeat it is in vain"
    BUG = f"anything else, which may pass or not: reconnect, repeat it {UNFORESEEN} times, then end the process"


def first_line(error: BaseException) -> str:
    """Return the first line of the error's text, or the name of its type if it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def classify(error: BaseException) -> Reaction:
    """Return the reaction to any exception that a database call raised."""
    if isinstance(error, DatabaseUnreachable):
        return Reaction.RECONNECT
    if isinstance(error, DatabaseReadOnly):
        return Reaction.STANDBY
    if isinstance(error, PgschedError):
        return Reaction.CONFIGURATION
    if notifications_full(error):
        return Reaction.BACK_OFF
    code = getattr(error, "sqlstate", None)
    if code is None:  # a failed connection, or a value that psycopg (or Python) cannot send
        unsendable = not isinstance(error, psycopg.Error) or isinstance(error, UNSENDABLE)
        return Reaction.VALUE if unsendable else Reaction.RECONNECT
    return REACTIONS.get(code) or REACTIONS.get(code[:2]) or Reaction.BUG


def notifications_full(error: BaseException) -> bool:
    """Check whether the server's notification queue is full; its sqlstate is also that of too large values."""
    return isinstance(error, psycopg.Error) and error.sqlstate == "54000" and error.diag.source_file == "async.c"


UNSENDABLE = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)


REACTIONS = {
    "57P01": Reaction.RECONNECT,
    "57P02": Reaction.RECONNECT,
    "57P03": Reaction.RECONNECT,
    "08": Reaction.RECONNECT,
    "25P04": Reaction.RECONNECT,  # transaction_timeout, set by an administrator: the session has ended
    "57P05": Reaction.LOST,
    "25P03": Reaction.LOST,
    "40": Reaction.RETRY,
    "55P03": Reaction.RETRY,
    "57014": Reaction.RETRY,
    "25006": Reaction.STANDBY,
    "53": Reaction.BACK_OFF,
    WRONG_FLEET: Reaction.CONFIGURATION,
    LEASE_LOST: Reaction.VALUE,
    "42501": Reaction.CONFIGURATION,
    "42P01": Reaction.CONFIGURATION,
    "42703": Reaction.CONFIGURATION,
    "42883": Reaction.CONFIGURATION,
    "3F000": Reaction.CONFIGURATION,
    "28": Reaction.CONFIGURATION,
    "3D000": Reaction.CONFIGURATION,
    # Data exceptions, violated constraints, limits of the server, and errors raised by triggers.
    "22": Reaction.VALUE,
    "23": Reaction.VALUE,
    "44": Reaction.VALUE,
    "54": Reaction.VALUE,
    "P0": Reaction.VALUE,
}


def back_off_s(failures: int, first_s: float) -> float:
    """Return the seconds to wait after `failures` failures in a row.

    `first_s` doubles each time up to LONGEST_BACK_OFF_S. Jitter only shortens the wait, so that a fleet does not come
    back all at once.
    """
    return min(LONGEST_BACK_OFF_S, first_s * 2.0 ** min(failures, 10)) * (0.5 + random.random() / 2)


def unreachable(reason: str) -> DatabaseUnreachable:
    """Return the error that says whether the server answered, and what to check."""
    if "local user with ID" in reason:
        return DatabaseUnreachable(
            f"cannot reach the database: {reason}: name the database's user in the DSN, user=..."
        )
    if LOGIN_REFUSED.search(reason):
        return DatabaseUnreachable(f"the server refused the connection: {reason}; check user, password and database")
    return DatabaseUnreachable(f"cannot reach the database: {reason}; check the DSN and that the server is running")


REFUSALS: dict[str, Callable[[str], PgschedError]] = {
    QUEUE_FULL: QueueFull,
    LEASE_LOST: LeaseLost,
    WRONG_FLEET: lambda why: WrongFleet(f"{why}; point the DSN at the right one, or set PGSCHED_FLEET to its fleet"),
    "55P03": lambda why: LockTimeout(f"{LOCKED_ADVICE}: {why}"),
    DEADLOCK_DETECTED: lambda why: LockTimeout(f"{DEADLOCK_ADVICE}: {why}"),
}


def describe_refusal(code: str, reason: str) -> PgschedError:
    """Return the error for what the server refused, by its sqlstate."""
    if code.startswith(("08", "57P", "53", "28", "3D")):
        return unreachable(reason)
    return REFUSALS[code](reason) if code in REFUSALS else PgschedError(f"the database refused the statement: {reason}")


def explain_error(error: psycopg.Error) -> PgschedError:
    """Return the same failure as one line that says what, why and what to do, with its own exit code."""
    reason = redact(first_line(error))
    code = error.sqlstate
    options = code is None and ("startup parameter" in reason or "command-line options" in reason)
    if options:
        reason = f"dsn: {reason}: a pooler takes no options of a DSN (or PGOPTIONS): leave them out, or go round it"
    if options or (code is None and isinstance(error, UNSENDABLE)):
        return InputError(reason)  # raised by the driver before sending: NUL in a text, a number too large, any object
    # These errors have no sqlstate, and one line for each host.
    standby = code is None and any(words in str(error) for words in STANDBY)
    if code == "25006" or standby:
        return DatabaseReadOnly(f"the database takes no writes ({reason}): point the DSN at the primary server")
    if code == "42501":
        return NotPermitted(f"the database role lacks a grant: {reason}; ask the owner of schema pgsched for it")
    if code in ("42P01", "42703", "42883", "3F000"):
        return SchemaTooOld(f"the database has no (or an older) pgsched schema: {reason}; run `pgsched migrate`")
    if code is None:
        in_use = isinstance(error, psycopg.InterfaceError)  # asyncpg: another operation is in progress
        return (
            PgschedError(f"the connection cannot be used now: {reason}; {IN_USE_ADVICE}")
            if in_use
            else unreachable(reason)
        )
    if code.startswith(("22", "23")):
        return InputError(reason, error.diag.column_name)
    return describe_refusal(code, reason)


@contextmanager
def raise_explained() -> Iterator[None]:
    """Raise the database's refusal as an error that says which field, why and what to do."""
    try:
        yield
    except psycopg.Error as error:
        raise explain_error(error) from error
