"""Tell pools of connections that the process forks.

Invariant: a child process uses and closes none of its parent's connections: both would read and write one socket.

A pool is told twice: before the fork, in the parent, and after it, in the child. Some programs fork outside of Python
(uWSGI); there only the child is told.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forks(Protocol):
    """What is told of forks."""

    def before_fork(self) -> None:
        """Close idle connections, and end the threads that wait to close them."""

    def forget_parent(self) -> None:
        """Begin anew in a child process, without the connections and locks of the parent."""


_known: WeakSet[Forks] = WeakSet()


def tell_of_forks(one: Forks) -> None:
    """Call the two methods of `one` at each fork, as long as it exists."""
    _known.add(one)


def _before() -> None:
    for one in list(_known):
        one.before_fork()


def _in_child() -> None:
    for one in list(_known):
        one.forget_parent()


os.register_at_fork(before=_before, after_in_child=_in_child)
