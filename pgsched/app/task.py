"""The rule: a task is one registered function; calling it runs it here, enqueueing it makes a run for some worker.

`enqueue` and `enqueue_async` differ in the one line that speaks to the database.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from pgsched.app import arguments
from pgsched.app.arguments import Encoded, Parameters
from pgsched.app.batch_item import alone
from pgsched.app.batch_options import Gathering, gathering
from pgsched.app.declarations import text
from pgsched.app.options import AFTER, KEYS, OPTIONS, Given, Options
from pgsched.app.placement import Place, captured, place
from pgsched.app.run import Run
from pgsched.core.model import RunId
from pgsched.errors import InputError, TaskError
from pgsched.telemetry import tracing

if TYPE_CHECKING:
    from pgsched.adapters.sqlalchemy import AsyncHeld, Held
    from pgsched.app.base import AppBase
    from pgsched.db.connection.connect import AsyncConnection, Connection

    Sync = Connection[Any] | Held
    Async = AsyncConnection[Any] | AsyncHeld

P = ParamSpec("P")
R = TypeVar("R")
Call = Mapping[str, Any] | Sequence[Any]


class Task(Generic[P, R]):
    """A registered function. `options(...)` says how a run of it is queued."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        app: AppBase,
        function: Callable[..., R],
        name: str,
        defaults: Options,
        run_in: str | None = None,
        memory_mb: int | None = None,
        no_retry: Any = (),
        capture: bool = False,
        batch: int | None = None,
        batch_wait: float | None = None,
    ) -> None:
        update_wrapper(self, function)  # first: the function may have attributes of the same names
        self.app = app
        self.name = text(200)("name", name)
        self.function = function
        self.defaults = defaults
        self.values = defaults.checked()
        self.is_async = inspect.iscoroutinefunction(function)
        self.place: Place = place(self.name, run_in, memory_mb, is_async=self.is_async)
        self.no_retry = exceptions(self.name, no_retry)
        self.capture = captured(self.name, capture)
        self.gathering: Gathering | None = gathering(self.name, batch, batch_wait, run_in, self.capture)
        if self.gathering is not None:
            arguments.check_batched(name, function)
        self.parameters = arguments.read(name, function if self.gathering is None else arguments.anything)
        self.takes_run = self.parameters.run_name is not None  # no property: it is asked for every run

    @property
    def inline_names(self) -> frozenset[str] | None:
        """The names of its arguments, where a worker may call it inline."""
        only = not (self.capture or self.gathering)
        return self.parameters.plain if only and self.place.run_in == "loop" else None

    @property
    def run_name(self) -> str | None:
        """The parameter that gets the Run."""
        return self.parameters.run_name

    @property
    def required(self) -> frozenset[str]:
        """The names of the arguments that have no default."""
        return self.parameters.required

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, run: Run, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> R:
        """Call the function itself, here and now."""
        return self.function(*args, **kwargs)

    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId: ...
    @overload
    def enqueue(self, /, *args: Any, connection: Sync, **kwargs: Any) -> RunId: ...
    def enqueue(self, /, *args: Any, connection: Any = None, **kwargs: Any) -> RunId:
        """Make a run with these arguments; returns its id. On `connection`, in the caller's own transaction: one of
        psycopg, or a Connection or Session of SQLAlchemy that holds one. Raises InputError, TaskError,
        AlreadyEnqueued, DatabaseUnreachable."""
        return Request(self, self.values, connection)._enqueue(args, kwargs)

    @overload
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId: ...
    @overload
    async def enqueue_async(self, /, *args: Any, connection: Async, **kwargs: Any) -> RunId: ...
    async def enqueue_async(self, /, *args: Any, connection: Any = None, **kwargs: Any) -> RunId:
        """The asyncio form of `enqueue`."""
        return await Request(self, self.values, connection)._enqueue_async(args, kwargs)

    def enqueue_many(self, calls: Iterable[Call], /, *, connection: Sync | None = None) -> int:
        """Make a run for each call: a mapping of arguments by name, or a sequence of them by place. Returns how many.

        All or none are made, by one COPY; their ids are not told. Raises what `enqueue` does.
        """
        return Request(self, self.values, connection).enqueue_many(calls)

    async def enqueue_many_async(self, calls: Iterable[Call], /, *, connection: Async | None = None) -> int:
        """The asyncio form of `enqueue_many`."""
        return await Request(self, self.values, connection).enqueue_many_async(calls)

    def options(self, *, connection: Sync | Async | None = None, **options: Unpack[Given]) -> Request[P]:
        """The task with other options, those of `Options`: `task.options(delay=60, queue="mail").enqueue(...)`."""
        Options.named(options, "connection")
        return Request(self, replace(self.defaults, **options).checked(), connection)

    def prepare(self, args: Any, run: Run | None) -> Callable[[], Any]:
        """The call that an executor makes. TaskError if the arguments do not fit."""
        if self.gathering is not None:
            return alone(self.function, args, run)
        return arguments.prepare(self.parameters, self.function, args, run)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def exceptions(task: str, given: Any) -> tuple[type[BaseException], ...]:
    """Exception classes, given one by one or as a tuple. TaskError if that is not what they are."""
    found = given if isinstance(given, tuple) else (given,)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TaskError(f"task {task}: no_retry: expected exception classes, got {kind!r}")
    return found


def held_back(
    parameters: Parameters, values: dict[str, Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `enqueue(..., after=[run])` says of the run, and not to a handler; one that has such a parameter gets it."""
    named = parameters.given.parameters.values()
    taken = {p.name for p in named}
    if taken & {*AFTER}:
        return values, kwargs
    if any(p.kind is p.VAR_KEYWORD for p in named):
        refuse_runs(parameters.task, kwargs)
        return values, kwargs
    said = {name: kwargs[name] for name in (*AFTER, "on_failure") if name in kwargs and name not in taken}
    checked = {name: None if value is None else OPTIONS[name](name, value) for name, value in said.items()}
    return {**values, **checked}, {name: value for name, value in kwargs.items() if name not in said}


def refuse_runs(task: str, kwargs: dict[str, Any]) -> None:
    """A handler that takes any name gets `after` too; a run that is to wait must not start because of that."""
    for name in AFTER:
        given = kwargs.get(name)
        if isinstance(given, list | tuple | set) and any(isinstance(one, RunId) for one in given):
            raise InputError(f"{name}: an argument of task {task}, which takes any; say options({name}=...)", name)


class Request(Generic[P]):
    """A task with the options of the runs to come."""

    def __init__(self, task: Task[P, Any], values: dict[str, Any], connection: Any) -> None:
        self._task = task
        self._values = values
        self._connection = connection

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId:
        """Make a run with these arguments; returns its id, or that of the run that has the same key (`RunId.how`)."""
        return self._enqueue(args, kwargs)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId:
        """The asyncio form of `enqueue`."""
        return await self._enqueue_async(args, kwargs)

    def enqueue_many(self, calls: Iterable[Call], /) -> int:
        """Make a run for each call, with these options; see `Task.enqueue_many`."""
        encoded, values = Encoded(self._task.parameters, calls), self._values_of_many()
        with tracing.sending([values], batch=True) as sent:
            count = self._task.app.database.enqueue_many(self._connection, encoded, values)
            sent.note_runs(count)
        return count

    async def enqueue_many_async(self, calls: Iterable[Call], /) -> int:
        """The asyncio form of `enqueue_many`."""
        encoded, values = Encoded(self._task.parameters, calls), self._values_of_many()
        with tracing.sending([values], batch=True) as sent:
            count = await self._task.app.database.enqueue_many_async(self._connection, encoded, values)
            sent.note_runs(count)
        return count

    def _values_of_many(self) -> dict[str, Any]:
        for key in KEYS:
            if self._values[key] is not None:
                raise InputError(f"{key}: names one run; enqueue_many makes many. Enqueue them one by one", key)
        for key in AFTER:
            if self._values[key] is not None:
                raise InputError(f"{key}: enqueue_many makes runs that wait for nothing; see app.graph()", key)
        return {**self._values, "task": self._task.name}

    def _enqueue(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunId:
        values = self.values(args, kwargs)
        with tracing.sending([values]) as sent:
            found = self._task.app.database.enqueue(self._connection, values)
            sent.note_runs(found)
        return found

    async def _enqueue_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunId:
        values = self.values(args, kwargs)
        with tracing.sending([values]) as sent:
            found = await self._task.app.database.enqueue_async(self._connection, values)
            sent.note_runs(found)
        return found

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The run that these arguments make, as the database takes it."""
        task, values = self._task, self._values
        if "after" in kwargs or "after_any" in kwargs:
            values, kwargs = held_back(task.parameters, values, kwargs)
        return {**values, "task": task.name, "args": arguments.encode(task.parameters, args, kwargs)}
