"""Transactions of Django's connections: `transaction.atomic()` blocks, told of by `on_commit`.

The blocks of `django.test.TestCase` (and so of pytest-django) are never committed. They do not count: an enqueue counts
when the outermost block of the program under test has ended.
"""

from __future__ import annotations

from typing import Any

from pgsched.testing.callers.base import CallerTransaction, Report

Savepoints = tuple[Any, ...]


class InAtomic(CallerTransaction):
    """Enqueues in an `atomic` block. `handle`: Django's connection of this thread."""

    def __init__(self, given: Any, report: Report) -> None:
        super().__init__(given)
        self._report = report
        self.hook = self._committed
        given.on_commit(self.hook)

    def _committed(self) -> None:
        was_open, self.state = self.state != "committed", "committed"
        if was_open:
            self._report(self)


class Atomics:
    """Follows the `atomic` blocks of Django's connections."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: dict[Any, dict[Savepoints, InAtomic]] = {}  # by connection, and by the savepoints they are in
        self._hooks: dict[Any, list[Any]] = {}  # the list of hooks that each connection had at the last look

    def follow(self, given: Any) -> CallerTransaction | None:
        """Return the caller's transaction; None outside `atomic`, where each statement commits by itself."""
        self.look()
        if not is_in_atomic(given):
            return None
        savepoints = tuple(given.savepoint_ids)
        one = self._open.get(given, {}).get(savepoints)
        if one is None:
            one = InAtomic(given, self._report)
            self._open.setdefault(given, {})[savepoints] = one
        return one

    def look(self) -> None:
        """Find out what has become of the enqueues: a rollback, also to a savepoint, drops the hook.

        While Django calls the hooks after a commit, they are not in its list, but will all be called. A rollback and a
        commit give the connection another list.
        """
        for given, followed in [*self._open.items()]:
            hooks, is_open = given.run_on_commit, is_in_atomic(given)
            if not is_open or hooks is not self._hooks.get(given):
                self._hooks[given] = hooks
                self._judge(given, [*followed.values()], is_open)
            self._open[given] = {savepoints: one for savepoints, one in followed.items() if one.state == "open"}
            if not self._open[given]:
                del self._open[given], self._hooks[given]

    def _judge(self, given: Any, followed: list[InAtomic], is_open: bool) -> None:
        left = {id(hook[1]) for hook in given.run_on_commit}
        for one in followed:
            if one.state == "open":
                if id(one.hook) in left:
                    one.state = "open" if is_open else "committed"
                elif not given.run_commit_hooks_on_set_autocommit_on:
                    one.state = "rolled back"


def own_connection(given: Any) -> Any:
    """Return this thread's connection for `django.db.connection`, which stands for the one of each thread."""
    from django.db import connections  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return connections[given.alias]


def is_in_atomic(given: Any) -> bool:
    """Check whether an `atomic` block of the program under test is open."""
    return any(not block._from_testcase for block in given.atomic_blocks)
