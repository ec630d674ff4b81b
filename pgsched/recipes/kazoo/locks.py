"""Kazoo's locks, semaphores and elections, on those of pgsched.

Invariant: an object has one grant at a time. What was lost is never given back without an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from pgsched.errors import DatabaseUnreachable
from pgsched.recipes.contending import Mode
from pgsched.recipes.kazoo.exceptions import (
    CancelledError,
    ConnectionLoss,
    LockTimeout,
    UnimplementedError,
    translated,
)
from pgsched.recipes.kazoo.paths import identifier_text, name_of
from pgsched.recipes.lock import Lock as Grant
from pgsched.recipes.sessions.session import left_s, now

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import SyncConn
    from pgsched.recipes.kazoo.client import KazooClient

Self = TypeVar("Self", bound="Contender")

PAUSE_S = 0.5  # before a call is repeated that got no answer
MOST_CONTENDERS = 10_000


class Contender:
    """What locks and semaphores have in common: the line, the grant, and what is shown of it.

    `cancelled`: `cancel` was called, and no wait has ended because of it yet.
    """

    mode: Mode = "exclusive"

    def __init__(self, client: KazooClient, path: str, identifier: Any, capacity: int | None = None) -> None:
        self.client = client
        self.path = path
        self.cancelled = False
        self._name = name_of(path)
        self._note = identifier_text(identifier)
        self._capacity = capacity
        self._waiting: Grant | None = None
        self._grant: Grant | None = None

    @property
    def is_acquired(self) -> bool:
        """Whether it is held: granted, and not lost."""
        return self._grant is not None and self._grant.is_held

    @property
    def lost(self) -> bool:
        """Whether it was granted, and is lost: another process may hold it."""
        return self._grant is not None and self._grant.lost

    @property
    def fence(self) -> int:
        """The number of the grant, higher than that of every grant before. Raises BadArgumentsError without one."""
        with translated():
            return (self._grant or self._make_grant()).fence

    def assert_held(self, connection: SyncConn) -> None:
        """Raise SessionExpiredError in your transaction unless this grant is held; it stays so until its end."""
        with translated():
            (self._grant or self._make_grant()).assert_held(connection)

    def cancel(self) -> None:
        """Let the `acquire` that waits in another thread raise CancelledError; where none waits, the next one."""
        self.cancelled = True
        if (waiting := self._waiting) is not None:
            waiting.cancel()

    def release(self) -> bool:
        """Give it back; return False where nothing is held.

        Where the database does not answer, it is given back as soon as it does. Raises SessionExpiredError where it was
        lost before: undo what was done under it.
        """
        grant, self._grant = self._grant, None
        if grant is None:
            return False
        try:
            with translated():
                grant.release()
        except ConnectionLoss:
            pass
        finally:
            self._given_back()
        return True

    def _given_back(self) -> None:
        """Let other threads use this object."""

    def _make_grant(self) -> Grant:
        return Grant(
            self.client.parts.keeper, self._name, ttl=self.client.parts.ttl_s, mode=self.mode, capacity=self._capacity,
            note=self._note or None,
        )  # fmt: skip

    def _contend(self, blocking: bool, timeout: float | None) -> bool:
        """Get in line and wait; return whether it is granted. Raises LockTimeout and CancelledError."""
        grant = self._make_grant()
        self._waiting = grant
        self.client.begin_wait(grant)
        try:
            if self.cancelled:
                grant.cancel()
            with translated():
                granted = wait_for(grant, blocking, timeout)
        except CancelledError:
            self.cancelled = False
            _ = self.client.parts  # the client may have been stopped
            raise
        finally:
            self._waiting = None
            self.client.end_wait(grant)
        if granted:
            self._grant = grant
        return granted

    def _line(self, *, only_holders: bool) -> list[str]:
        with translated():
            line = self._make_grant().line(MOST_CONTENDERS)
        return [one.note or "" for one in line if one.fence is not None or not only_holders]

    def __enter__(self: Self) -> Self:
        """Acquire it."""
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give it back. Raises SessionExpiredError where it was lost, unless the block has raised an error."""
        try:
            self.release()
        except Exception:
            if error is None:
                raise

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Wait until it is granted."""
        raise NotImplementedError


class Lock(Contender):
    """A lock, which one contender holds at a time; it is the same as WriteLock.

    It is not re-entrant: another `acquire` of an object that holds it waits until it is given back. `identifier`: what
    others read of it in `contenders()`.
    """

    def __init__(
        self, client: KazooClient, path: str, identifier: Any = None, extra_lock_patterns: Sequence[str] = ()
    ) -> None:
        if extra_lock_patterns:
            raise UnimplementedError("extra_lock_patterns: programs of other libraries do not share these locks")
        super().__init__(client, path, identifier)
        self._busy = threading.Lock()  # held from the beginning of an acquire to the end of its release

    def acquire(self, blocking: bool = True, timeout: float | None = None, ephemeral: bool = True) -> bool:
        """Acquire it; return whether it is held.

        `blocking`: False: return False at once where others hold it. `timeout`: seconds; None: no limit.

        Raises LockTimeout when the time is over, CancelledError after `cancel`, and ConnectionLoss where the database
        does not answer in time. Where this object holds it already, it returns False when the time is over.
        """
        if not ephemeral:
            raise UnimplementedError("ephemeral=False: a lock ends with its session; no other session could free it")
        until = None if timeout is None else now() + timeout
        if not take_turn(self._busy, blocking, timeout):
            return False
        granted = False
        try:
            granted = self._contend(blocking, left_s(until))
        finally:
            if not granted:
                self._busy.release()
        return granted

    def contenders(self) -> list[str]:
        """Return the identifiers of the holders and of those who wait, in their order; "" for one without."""
        return self._line(only_holders=False)

    def _given_back(self) -> None:
        self._busy.release()


class WriteLock(Lock):
    """The lock that excludes all read locks and write locks of the same path."""


class ReadLock(Lock):
    """The lock that several hold at a time, but none while another holds the write lock of the same path."""

    mode = "shared"


class Semaphore(Contender):
    """A semaphore, which up to `max_leases` contenders hold at a time; all give the same number while it is in use."""

    def __init__(self, client: KazooClient, path: str, identifier: Any = None, max_leases: int = 1) -> None:
        super().__init__(client, path, identifier, max_leases)
        self.max_leases = max_leases
        self._acquiring = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire it; return whether it is held. An object that holds it already returns True.

        Raises LockTimeout when `timeout` seconds are over, CancelledError after `cancel`, and ValueError where others
        use it with another number of leases.
        """
        self.cancelled = False
        until = None if timeout is None else now() + timeout
        if not take_turn(self._acquiring, blocking, timeout):
            if not blocking:
                return False
            raise LockTimeout(f'another thread acquires "{self._name}" with this object, and has it not yet')
        try:
            return self.is_acquired or self._contend(blocking, left_s(until))
        finally:
            self._acquiring.release()

    def lease_holders(self) -> list[str]:
        """Return the identifiers of those who hold it; "" for one without."""
        return self._line(only_holders=True)


class Election:
    """An election: one contender at a time leads. `lock`: the lock that the leader holds."""

    def __init__(self, client: KazooClient, path: str, identifier: Any = None) -> None:
        self.lock = Lock(client, path, identifier)

    def run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Wait to be elected, call `func`, and resign when it returns or raises; return at once after `cancel`.

        Raises ValueError where `func` cannot be called, and SessionExpiredError where the lead was lost meanwhile.
        """
        if not callable(func):
            raise ValueError("func: expected a function")  # noqa: TRY004  as in Kazoo
        try:
            self.lock.acquire()
        except CancelledError:
            return
        try:
            func(*args, **kwargs)
        except BaseException as error:
            self.lock.__exit__(type(error), error, None)
            raise
        self.lock.release()

    def cancel(self) -> None:
        """Take no part any more. A leader is not interrupted."""
        self.lock.cancel()

    def contenders(self) -> list[str]:
        """Return the identifiers of the leader and of those who wait, in their order; "" for one without."""
        return self.lock.contenders()


def take_turn(turn: threading.Lock, blocking: bool, timeout: float | None) -> bool:
    """Wait until no other thread acquires with the same object; return whether it is this thread's turn."""
    return turn.acquire(blocking, -1 if timeout is None or not blocking else timeout)


def wait_for(grant: Grant, blocking: bool, timeout: float | None) -> bool:
    """Wait for a grant, also while the database does not answer; return whether it is granted.

    `blocking`: False: do not wait. `timeout`: seconds; None: no limit. Raises LockTimeout when the time is over.
    """
    until = None if timeout is None else now() + timeout
    while True:
        try:
            if not blocking:
                return grant.try_acquire()
            grant.acquire(left_s(until))
        except TimeoutError as error:
            raise LockTimeout(str(error)) from error
        except DatabaseUnreachable:
            if not blocking or (until is not None and until <= now() + PAUSE_S):
                raise
            time.sleep(PAUSE_S)
        else:
            return True
