"""The client: what stands for Kazoo's connection to ZooKeeper. It has one session, on which all recipes hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from pgsched import log
from pgsched.config import check_dsn, find_dsn
from pgsched.db.connection.forks import tell_of_forks
from pgsched.db.enqueuer import Enqueuer
from pgsched.errors import PgschedError
from pgsched.recipes.kazoo import barriers, counters, locks, parties, partitioner, queues, watchers
from pgsched.recipes.kazoo.exceptions import (
    ConfigurationError,
    ConnectionClosedError,
    KazooTimeoutError,
    in_kazoos_names,
    translated,
)
from pgsched.recipes.kazoo.following import SessionFollower
from pgsched.recipes.kazoo.handler import Handler, call_logged
from pgsched.recipes.kazoo.parts import Parts
from pgsched.recipes.kazoo.retry import KazooRetry
from pgsched.recipes.kazoo.states import KazooState, KeeperState, Listener
from pgsched.recipes.kazoo.tree import Tree
from pgsched.recipes.kazoo.watching import NodeWatches
from pgsched.recipes.lock import Lock as Grant
from pgsched.recipes.values import check_ttl

P = ParamSpec("P")
R = TypeVar("R")

logger = log.get("kazoo")

POOL_SIZE = 4
ABSENT = {
    "hosts": "give the database: KazooClient(dsn=...)",
    "client_id": "a session cannot be taken over by another process",
    "handler": "there are threads only",
    "default_acl": "there are no access lists; roles of the database may use names (pgsched.grant_names)",
    "auth_data": "the DSN has the login",
    "sasl_options": "the DSN has the login",
    "read_only": "a standby renews no session",
    "randomize_hosts": "the DSN has the hosts",
    "connection_retry": "the client connects again until it is stopped",
    **dict.fromkeys(
        ("keyfile", "keyfile_password", "certfile", "ca", "use_ssl", "verify_certs", "check_hostname"),
        "the DSN has the settings for TLS (sslmode, sslrootcert, ...)",
    ),
}


class Recipe(Generic[P, R]):
    """A recipe as an attribute of clients: `client.Lock(path)` is `Lock(client, path)`."""

    def __init__(self, make: Callable[Concatenate[Any, P], R]) -> None:
        self._make = make

    def __get__(self, client: KazooClient, _: type[KazooClient] | None = None) -> Callable[P, R]:
        """Return the recipe's class with the client as its first argument."""
        return partial(self._make, client)


class KazooClient(Tree):
    """A client with a session in the database.

    `dsn`: the database; left out: as for all programs of pgsched (PGSCHED_DSN ...). `timeout`: seconds for which the
    session outlives a process that has died or is cut off, from 1 to 86,400. `command_retry`: a KazooRetry for `retry`,
    or a dict of its arguments. Raises ConfigurationError for what Kazoo has and pgsched has not.
    """

    Lock = Recipe(locks.Lock)
    ReadLock = Recipe(locks.ReadLock)
    WriteLock = Recipe(locks.WriteLock)
    Semaphore = Recipe(locks.Semaphore)
    Election = Recipe(locks.Election)
    Barrier = Recipe(barriers.Barrier)
    DoubleBarrier = Recipe(barriers.DoubleBarrier)
    Counter = Recipe(counters.Counter)
    Party = Recipe(parties.Party)
    ShallowParty = Recipe(parties.ShallowParty)
    SetPartitioner = Recipe(partitioner.SetPartitioner)
    Queue = Recipe(queues.Queue)
    LockingQueue = Recipe(queues.LockingQueue)
    ChildrenWatch = Recipe(watchers.ChildrenWatch)
    DataWatch = Recipe(watchers.DataWatch)
    chroot = ""

    def __init__(
        self,
        dsn: str | None = None,
        timeout: float = 10.0,
        *,
        command_retry: KazooRetry | dict[str, Any] | None = None,
        logger: Any = logger,
        **others: Any,
    ) -> None:
        refuse_absent(others)
        if dsn is not None and "=" not in dsn and "://" not in dsn:
            refuse_absent({"hosts": dsn})
        given = None if dsn is None else check_dsn("KazooClient(dsn=...)", dsn)
        with translated():
            ttl_s = check_ttl(timeout)
        self.logger = logger
        self.handler = Handler()
        self.state: str = KazooState.LOST
        self.retry = retry_of(command_retry, lambda: self._follower is None)
        self._parts = Parts(Enqueuer(lambda: find_dsn(given), pool_size=POOL_SIZE), ttl_s)
        self.node_watches = NodeWatches(self._parts.watches, self.read_state, self.handler)
        self._follower: SessionFollower | None = None
        self._listeners: list[Listener] = []
        self._waiting: set[Grant] = set()
        self._lock = threading.RLock()
        tell_of_forks(self)

    # ---- the session

    @property
    def connected(self) -> bool:
        """Whether the session is open, and the database answers."""
        return self.state == KazooState.CONNECTED

    @property
    def client_state(self) -> str:
        """The finer state: one of KeeperState."""
        if self._follower is None:
            return KeeperState.CLOSED
        return KeeperState.CONNECTED if self.connected else KeeperState.CONNECTING

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The id and the secret token of the session; None while there is none."""
        session = None if self._follower is None else self._follower.session
        return None if session is None else (session.id, session.token.bytes)

    @property
    def parts(self) -> Parts:
        """What the recipes stand on. Raises ConnectionClosedError unless the client is started."""
        if self._follower is None:
            raise ConnectionClosedError("the client is not started, or was stopped: call start()")
        return self._parts

    def start(self, timeout: float = 15) -> None:
        """Open the session; do nothing where it is open.

        Raises KazooTimeoutError where the database does not answer within `timeout` seconds, and the error that says
        why where it refuses the client.
        """
        self.start_async()
        follower = self._follower
        if follower is None or self.connected:
            return
        follower.settled.wait(timeout)
        if self.connected or follower.session is not None:
            return
        error = follower.error
        self.stop()
        if error is not None and follower.settled.is_set():
            raise in_kazoos_names(error) from error
        raise KazooTimeoutError(f"no session within {timeout:g} s: {error or 'the database does not answer'}")

    def start_async(self) -> threading.Event:
        """Begin to open the session; return an event that is set when it is open, or cannot be opened."""
        with self._lock:
            if self._follower is None:
                self._follower = SessionFollower(self._parts.keeper, self._parts.ttl_s, self._change_state)
                self._follower.start()
            return self._follower.settled

    def stop(self) -> None:
        """End the session, and with it all that hangs on it. Calls that wait raise ConnectionClosedError."""
        with self._lock:
            follower, self._follower = self._follower, None
        if follower is None:
            return
        for grant in list(self._waiting):
            grant.cancel()
        follower.stop()
        self._parts.close()
        self.node_watches.close()
        self._change_state(KazooState.LOST)
        self.handler.stop()

    def restart(self) -> None:
        """End the session, and open another one."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Close the connections to the database. Call `stop` before."""
        self.stop()
        self._parts.database.close()

    def add_listener(self, listener: Listener) -> None:
        """Call a function with each new state, one of KazooState, until it returns True or is removed.

        It must not block: while it does, no other state is reported. Start a thread for what takes long
        (`handler.spawn`). Raises ConfigurationError where it cannot be called.
        """
        if not callable(listener):
            raise ConfigurationError("listener: expected a function")
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Call this function no more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    # ---- for the recipes

    def begin_wait(self, grant: Grant) -> None:
        """Let `stop` cancel this wait. Raises ConnectionClosedError unless the client is started."""
        self._waiting.add(grant)
        try:
            _ = self.parts
        except ConnectionClosedError:
            self.end_wait(grant)
            raise

    def end_wait(self, grant: Grant) -> None:
        """Note that this wait is over."""
        self._waiting.discard(grant)

    def perform(self, call: Callable[[], R]) -> R:
        """Make a call, and raise its errors under Kazoo's names. Raises ConnectionClosedError unless started."""
        _ = self.parts
        try:
            with translated():
                return call()
        except PgschedError:
            _ = self.parts  # the client was stopped meanwhile
            raise

    def before_fork(self) -> None:
        """Do nothing: the parent goes on with its session."""

    def forget_parent(self) -> None:
        """Begin anew in a child process, as a client that is not started."""
        self._lock = threading.RLock()
        self._follower, self.state, self._waiting = None, KazooState.LOST, set()
        self.handler.forget_parent()
        self.node_watches.forget_parent()

    def _change_state(self, state: str) -> None:
        with self._lock:
            if self.state == state:
                return
            self.state = state
            listeners = list(self._listeners)
        for listener in listeners:
            call_logged(partial(self._tell, listener, state))

    def _tell(self, listener: Listener, state: str) -> None:
        if listener(state) is True:
            self.remove_listener(listener)


def refuse_absent(others: dict[str, Any]) -> None:
    """Raise ConfigurationError for an argument of Kazoo's client that has no meaning here, TypeError for others."""
    for name in others:
        if name not in ABSENT:
            raise TypeError(f"KazooClient() got an unexpected keyword argument {name!r}")
        raise ConfigurationError(f"{name}: pgsched has no such thing: {ABSENT[name]}")


def retry_of(given: KazooRetry | dict[str, Any] | None, is_stopped: Callable[[], bool]) -> KazooRetry:
    """Return what `client.retry` is: by default, it repeats without limit until the client is stopped."""
    if isinstance(given, KazooRetry):
        return given
    return KazooRetry(**({"max_tries": None, "interrupt": is_stopped} | (given or {})))
