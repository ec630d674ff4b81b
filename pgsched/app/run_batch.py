"""Batches: runs that are made together, with a callback when all have ended.

Invariant: a batch is a graph of runs that wait for nothing, and of its callback, a run that waits for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pgsched.app.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgsched.app.base import AppBase
    from pgsched.app.request import Request
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn
from pgsched.app.task import Task


class Batch(Graph):
    """Runs made together: `batch.add(task, ...)`, then `batch.enqueue()`, or a `with` block around the calls of `add`.

    `counts` and `ids` cover these runs without the callback. `callback` is the callback's node once the batch is
    enqueued, None before that or without a callback.
    """

    def __init__(
        self,
        app: AppBase,
        callback: Task[..., Any] | Request[..., Any] | None = None,
        args: Mapping[str, Any] | None = None,
        on_failure: Literal["cancel", "run_anyway", "wait"] = "run_anyway",
        connection: SyncConn | AsyncConn | None = None,
    ) -> None:
        super().__init__(app, connection)
        self.callback: Node | None = None
        self._callback = callback
        self._callback_args = dict(args or {})
        self._on_failure = on_failure
        if callback is not None:
            self._values(callback, (), self._callback_args)  # raises here what is wrong with the callback's arguments

    def _begin(self) -> list[Any]:
        new = super()._begin()
        if self._callback is not None and self.callback is None:
            self.callback = self.add(
                self._callback, after=list(self._nodes), on_failure=self._on_failure, **self._callback_args
            )
        return new

    def _end(self, ids: list[int]) -> list[int]:
        ids_with_callback = super()._end(ids)
        self._ids = ids_with_callback[:-1] if self.callback is not None else ids_with_callback
        return list(self._ids)
