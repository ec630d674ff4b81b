"""Watch a node, or its children, again and again: a function is called now, and after each change."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pgsched.recipes.kazoo.exceptions import ConnectionClosedError, KazooException, NoNodeError
from pgsched.recipes.kazoo.states import KazooState, WatchedEvent, ZnodeStat

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.client import KazooClient

Function = Callable[..., Any]


class Watcher:
    """What DataWatch and ChildrenWatch have in common. One object watches for one function."""

    def __init__(self, client: KazooClient, path: str, func: Function | None) -> None:
        self._client = client
        self._path = path
        self._func: Function | None = None
        self._lock = threading.RLock()  # held while the function is called
        self._is_over = False
        if func is not None:
            self._begin(func)

    def __call__(self, func: Function) -> Function:
        """Watch for this function: the object as a decorator. Raises KazooException where it has one already."""
        if self._func is not None:
            raise KazooException(f"{type(self).__name__}: it watches for a function already: make another one")
        self._begin(func)
        return func

    def _begin(self, func: Function) -> None:
        self._func = func
        self._client.add_listener(self._hear)
        self._look(None)

    def _hear(self, state: str) -> bool:
        """Look again in a new session: the watches of a client that was stopped are gone."""
        if state == KazooState.CONNECTED and not self._is_over:
            self._client.handler.spawn(self._look, None)
        return self._is_over

    def _look(self, event: WatchedEvent | None) -> None:
        """Read, and call the function if something has changed. `event`: what has happened, if it is known."""
        with self._lock:
            if not self._is_over:
                with contextlib.suppress(ConnectionClosedError):
                    self._client.retry(self._read, event)

    def _read(self, event: WatchedEvent | None) -> None:
        raise NotImplementedError

    def _call(self, *values: Any) -> None:
        assert self._func is not None
        if self._func(*values) is False:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._client.remove_listener(self._hear)


class DataWatch(Watcher):
    """Calls a function with the data and the figures of a node now, and whenever it was made, set or deleted.

    The function gets (data, stat), or (data, stat, event) if it takes three arguments; None for all while there is no
    such node. It is called no more when it returns False, or the client is stopped.
    """

    def __init__(self, client: KazooClient, path: str, func: Function | None = None) -> None:
        self._seen: int | None = None  # the version at which the function was last called; 0: there was no node
        super().__init__(client, path, func)

    def _read(self, event: WatchedEvent | None) -> None:
        data: bytes | None
        stat: ZnodeStat | None
        while True:
            try:
                data, stat = self._client.get(self._path, watch=self._look)
                break
            except NoNodeError:
                data = None
                if (stat := self._client.exists(self._path, watch=self._look)) is None:
                    break
        version = 0 if stat is None else stat.mzxid + 1
        if version != self._seen:
            self._seen = version
            self._call(*(data, stat, event)[: 3 if takes_three(self._func) else 2])


class ChildrenWatch(Watcher):
    """Calls a function with the names of a node's children now, and whenever one was made or deleted.

    It ends when the node does not exist, when the function returns False, or when the client is stopped.
    `allow_session_lost`: False: it ends with the session, too. `send_event`: the function gets (children, event).
    """

    def __init__(
        self, client: KazooClient, path: str, func: Function | None = None, allow_session_lost: bool = True,
        send_event: bool = False,
    ) -> None:  # fmt: skip
        self._seen: list[str] | None = None
        self._survives = allow_session_lost
        self._send_event = send_event
        super().__init__(client, path, func)

    def _hear(self, state: str) -> bool:
        if state == KazooState.LOST and not self._survives:
            self._end()
        return super()._hear(state)

    def _read(self, event: WatchedEvent | None) -> None:
        try:
            children = self._client.get_children(self._path, watch=self._look)
        except NoNodeError:
            self._end()
            return
        if event is None and children == self._seen:
            return
        self._seen = children
        self._call(*((children, event) if self._send_event else (children,)))


def takes_three(func: Function | None) -> bool:
    """Check whether a function can be called with three arguments."""
    assert func is not None
    try:
        inspect.signature(func).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        return True
    return True
