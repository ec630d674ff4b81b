"""The exceptions of Kazoo, under its names; and how errors of pgsched become exceptions of Kazoo.

Each is an error of pgsched as well: `except PgschedError` catches all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgsched.errors import (
    DatabaseUnreachable,
    InputError,
    LeaseLost,
    NotFound,
    NotPermitted,
    PgschedError,
    WaitCancelled,
)
from pgsched.errors import (
    LockTimeout as StatementLockTimeout,
)


class KazooException(PgschedError):
    """Base of all exceptions of Kazoo."""


class ZookeeperError(KazooException):
    """Base of the errors of the database."""


class CancelledError(KazooException):
    """Another thread has cancelled the wait."""


class ConfigurationError(KazooException):
    """The client was made with a value that does not fit."""


class LockTimeout(KazooException, TimeoutError):
    """A lock or semaphore was not to be had in time."""


class RetryFailedError(KazooException):
    """A call failed as often as it may be repeated."""


class KazooTimeoutError(KazooException, TimeoutError):
    """`start` got no answer of the database in time."""


class SystemZookeeperError(ZookeeperError):
    """The database cannot be used: it takes no writes, its schema has another version, or it is full."""


class ConnectionLoss(ZookeeperError, DatabaseUnreachable):
    """The database did not answer. What was asked may have been done."""


class OperationTimeoutError(ZookeeperError):
    """Another transaction holds what the call needs, and did not end in time. Nothing was done."""


class UnimplementedError(ZookeeperError):
    """Kazoo has this, and pgsched has not."""


class BadArgumentsError(ZookeeperError, InputError, ValueError):
    """The database refuses a value: too long, too large, or not as others use it."""


class NoNodeError(ZookeeperError, NotFound):
    """There is no such node."""


class NoAuthError(ZookeeperError, NotPermitted):
    """The name belongs to another role."""


class BadVersionError(ZookeeperError):
    """The node has another version than the one that was given."""


class NoChildrenForEphemeralsError(ZookeeperError):
    """An ephemeral node has no children."""


class NodeExistsError(ZookeeperError):
    """There is such a node already."""


class NotEmptyError(ZookeeperError):
    """The node has children."""


class SessionExpiredError(ZookeeperError, LeaseLost):
    """The session has ended, or what hung on it was taken away: another process may hold it."""


class ConnectionClosedError(SessionExpiredError):
    """The client was not started, or was stopped."""


class NeverRaised(ZookeeperError):
    """Base of the exceptions that Kazoo has for ZooKeeper's own faults; here none of them is ever raised."""


class AuthFailedError(NeverRaised):
    """Never raised here: `start` says why the database refuses the login."""


class InvalidACLError(NeverRaised):
    """Never raised here: there are no access lists."""


class DataInconsistency(NeverRaised):
    """Never raised here."""


class MarshallingError(NeverRaised):
    """Never raised here."""


class RuntimeInconsistency(NeverRaised):
    """Never raised here."""


class SessionMovedError(NeverRaised):
    """Never raised here."""


ConnectionLossException = ConnectionLoss
NoNodeException = NoNodeError
BadVersionException = BadVersionError
NodeExistsException = NodeExistsError
NotEmptyException = NotEmptyError
NoChildrenForEphemeralsException = NoChildrenForEphemeralsError
SessionExpiredException = SessionExpiredError
NoAuthException = NoAuthError
BadArgumentsException = BadArgumentsError
UnimplementedException = UnimplementedError
OperationTimeoutException = OperationTimeoutError

NAMES: tuple[tuple[type[PgschedError], type[KazooException]], ...] = (
    (WaitCancelled, CancelledError),
    (DatabaseUnreachable, ConnectionLoss),
    (LeaseLost, SessionExpiredError),
    (NotPermitted, NoAuthError),
    (NotFound, NoNodeError),
    (InputError, BadArgumentsError),
    (StatementLockTimeout, OperationTimeoutError),
)


def in_kazoos_names(error: PgschedError) -> KazooException:
    """Return the exception of Kazoo that says the same."""
    if isinstance(error, KazooException):
        return error
    kind = next((mine for theirs, mine in NAMES if isinstance(error, theirs)), SystemZookeeperError)
    return kind(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of pgsched under the names of Kazoo."""
    try:
        yield
    except KazooException:
        raise
    except PgschedError as error:
        raise in_kazoos_names(error) from error
