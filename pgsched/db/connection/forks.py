"""Tell pools of connections that the process forks.

Invariant: a child process uses and closes none of its parent's connections: both would read and write one socket.

A pool is told twice: before the fork, in the parent, and after it, in the child. Some programs fork outside of Python
(uWSGI); there only the child is told.

A connection that another thread is just opening is known to nobody. The child has a copy of its socket and cannot close
it, and the server would not see the parent's end. So the thread closes it and opens another one (`open_unshared`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet


class Forks(Protocol):
    """What is told of forks."""

    def before_fork(self) -> None:
        """Close idle connections, and end the threads that wait to close them."""

    def forget_parent(self) -> None:
        """Begin anew in a child process, without the connections and locks of the parent."""


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closable)
MOST_OPENED = 5  # should the process fork all the time


def open_unshared(opening: Callable[[], C], keep: Callable[[C], None]) -> C:
    """Return what `opening` opens, once no child process has a copy of it.

    `keep`: puts it where `forget_parent` finds it, in place of the one before.
    """
    for _ in range(MOST_OPENED - 1):
        before = None if _under_way else _newest[0]
        opened = opening()
        keep(opened)
        if _newest[0] is before:
            return opened
        opened.close()
    opened = opening()
    keep(opened)
    return opened


_newest = [object()]  # another one for each fork
_under_way: set[int] = set()  # the threads that fork now
_known: WeakSet[Forks] = WeakSet()


def tell_of_forks(one: Forks) -> None:
    """Call the two methods of `one` at each fork, as long as it exists."""
    _known.add(one)


def _before() -> None:
    _under_way.add(threading.get_ident())
    _newest[0] = object()
    for one in list(_known):
        one.before_fork()


def _in_parent() -> None:
    _under_way.discard(threading.get_ident())


def _in_child() -> None:
    _under_way.clear()
    for one in list(_known):
        one.forget_parent()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
