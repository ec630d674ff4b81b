"""Graphs of runs that wait for each other.

Invariant: a graph is made as a whole or not at all. A run is added after the runs that it waits for, so no run can wait
for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pgsched.app.options import AFTER, KEYS, OPTIONS
from pgsched.app.request import Request
from pgsched.app.task import Task
from pgsched.db.queries.runs.dependencies import RunCounts, count_runs, count_runs_async
from pgsched.db.queries.runs.new_graphs import NewRun, enqueue_graph, enqueue_graph_async
from pgsched.errors import RUN_MADE, InputError, PgschedError
from pgsched.telemetry import tracing

if TYPE_CHECKING:
    from types import TracebackType

    from pgsched.app.base import AppBase
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn


class Node:
    """A run of a graph. It has an `id` once the graph is enqueued."""

    __slots__ = ("_graph", "_id", "_place")

    def __init__(self, graph: Graph, place: int) -> None:
        self._graph = graph
        self._place = place
        self._id: int | None = None

    @property
    def id(self) -> int:
        """Return the run's id. Raises PgschedError before the graph is enqueued."""
        if self._id is None:
            raise PgschedError("this run has no id yet: its graph is enqueued at the end of the `with` block")
        return self._id

    def __repr__(self) -> str:
        return f"<Node {self._place if self._id is None else self._id}>"


class Graph:
    """Runs that wait for each other: made by `app.graph()`, filled by `add`, and enqueued in one transaction.

    The runs are enqueued at the end of the `with` (or `async with`) block, or by `enqueue`. After an exception in the
    block, nothing is enqueued.
    """

    def __init__(self, app: AppBase, connection: SyncConn | AsyncConn | None = None) -> None:
        self._app = app
        self._connection = connection
        self._new: list[NewRun] = []
        self._nodes: list[Node] = []
        self._ids: list[int] | None = None

    def add(
        self,
        task: Task[..., Any] | Request[..., Any],
        /,
        *args: Any,
        after: Iterable[Any] = (),
        after_any: Iterable[Any] = (),
        on_failure: str = "cancel",
        **kwargs: Any,
    ) -> Node:
        """Add a run of a task, or of `task.options(...)`, with these arguments; return its node.

        `after`: nodes of this graph, runs or their ids. All have to succeed before this run starts.
        `after_any`: one of these has to succeed.
        `on_failure`: what the run does when they do not succeed: "cancel", "run_anyway" (start when they have ended),
          or "wait" until they are retried.

        Raises InputError or TaskError for a wrong argument, PgschedError if the graph is enqueued already.
        """
        if self._ids is not None:
            raise PgschedError("the graph has been enqueued: a run can be added to it by task.options(after=[node])")
        values = self._values(task, args, kwargs)
        parents = {**self._parents("after_any", after_any, True), **self._parents("after", after, False)}
        for name in AFTER:
            parents |= dict.fromkeys(values.pop(name) or (), name == "after_any")
        failing = values.pop("on_failure") or OPTIONS["on_failure"]("on_failure", on_failure)
        self._new.append(NewRun(values, parents, failing))
        self._nodes.append(Node(self, len(self._nodes)))
        return self._nodes[-1]

    def enqueue(self) -> list[int]:
        """Enqueue all runs in one transaction; return their ids in the order in which they were added.

        Raises QueueFull, DatabaseUnreachable, and PgschedError if the graph is enqueued already.
        """
        new = self._begin()
        with tracing.start_send_span([run.values for run in new], batch=True) as sent:
            ids = self._app.database.send(self._connection, lambda mine: enqueue_graph(mine, new), maybe=RUN_MADE)
            sent.note_runs(len(ids))
        return self._end(ids)

    async def enqueue_async(self) -> list[int]:
        """Enqueue all runs like `enqueue`, without blocking the event loop."""
        new = self._begin()
        with tracing.start_send_span([run.values for run in new], batch=True) as sent:
            ids = await self._app.database.send_async(
                self._connection,
                lambda mine: enqueue_graph_async(mine, new),
                lambda mine: enqueue_graph(mine, new),
                maybe=RUN_MADE,
            )
            sent.note_runs(len(ids))
        return self._end(ids)

    @property
    def ids(self) -> list[int]:
        """Return the runs' ids in the order in which they were added. Raises PgschedError before they are enqueued."""
        if self._ids is None:
            raise PgschedError("ids, counts: nothing has been enqueued yet")
        return list(self._ids)

    def known(self, runs: Iterable[Any]) -> Graph:
        """Let this graph stand for runs that were enqueued elsewhere, to count them; return the graph."""
        self._ids = OPTIONS["after"]("runs", runs) or []
        return self

    def counts(self) -> RunCounts:
        """Return how many of the runs have ended, and how many of these did not succeed."""
        ids = self.ids
        return self._app.database.send(None, lambda mine: count_runs(mine, ids))

    async def counts_async(self) -> RunCounts:
        """Return the same as `counts`, without blocking the event loop."""
        ids = self.ids
        return await self._app.database.send_async(None, lambda mine: count_runs_async(mine, ids))

    def __len__(self) -> int:
        return len(self._nodes)

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        if kind is None and self._ids is None:
            self.enqueue()

    async def __aenter__(self) -> Graph:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        if kind is None and self._ids is None:
            await self.enqueue_async()

    def _values(self, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if isinstance(task, Task):
            task = task.options()
        if not isinstance(task, Request):
            raise InputError(f"task: expected a task or task.options(...), got {type(task).__name__}", "task")
        values = task.values(args, kwargs)
        for key in (*KEYS, "unique_template", "unique_by"):
            if values[key] is not None:
                name = "unique_key" if key == "unique_template" else key
                raise InputError(
                    f"{name}: finds a run that there is already; a graph makes new ones: give"
                    f" task.options({name}=None) to make one without it",
                    name,
                )
        return values

    def _parents(self, name: str, given: Iterable[Any], any_of: bool) -> dict[int, bool]:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise InputError(f"{name}: expected a list of nodes, runs or their ids, got {type(given).__name__}", name)
        return {self._parent(name, one): any_of for one in given}

    def _parent(self, name: str, one: Any) -> int:
        if isinstance(one, Node) and one._id is None:
            if one._graph is not self:
                raise InputError(f"{name}: {one!r} belongs to another graph, which is not enqueued yet", name)
            return -one._place - 1
        return int(OPTIONS[name](name, [one])[0])

    def _begin(self) -> list[NewRun]:
        if self._ids is not None:
            raise PgschedError("the graph has been enqueued already")
        return self._new

    def _end(self, ids: list[int]) -> list[int]:
        self._ids = ids
        for node, run_id in zip(self._nodes, ids, strict=True):
            node._id = run_id
        return list(ids)
