"""A task: a registered function, which can be called here or enqueued as a run for a worker.

Invariant: calling a task calls its function here; `enqueue` makes a run. `enqueue` and `enqueue_async` differ only in
the line that uses the database.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from pgsched.app import arguments
from pgsched.app.arguments import Encoded, Parameters
from pgsched.app.batch_item import call_with_one_item
from pgsched.app.batch_options import Gathering, check_batch_options
from pgsched.app.declarations import text
from pgsched.app.options import AFTER, KEYS, OPTIONS, OptionKeywords, Options
from pgsched.app.placement import HandlerPlacement, check_capture, choose_placement
from pgsched.app.run import Run
from pgsched.core.model import RunId
from pgsched.errors import InputError, TaskError
from pgsched.telemetry import tracing

if TYPE_CHECKING:
    from pgsched.adapters.sqlalchemy import AsyncSqlalchemyHandle, SqlalchemyHandle
    from pgsched.app.base import AppBase
    from pgsched.db.connection.connect import AsyncConnection, Connection

    Sync = Connection[Any] | SqlalchemyHandle
    Async = AsyncConnection[Any] | AsyncSqlalchemyHandle

P = ParamSpec("P")
R = TypeVar("R")
Call = Mapping[str, Any] | Sequence[Any]


class Task(Generic[P, R]):
    """A registered function, with the default options of its runs.

    `task(...)` calls the function. `task.enqueue(...)` makes a run. `task.options(...)` changes the options of a run.
    """

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
        update_wrapper(self, function)  # before the attributes below: the function may have some of the same name
        self.app = app
        self.name = text(200)("name", name)
        self.function = function
        self.defaults = defaults
        self.values = defaults.checked()
        self.is_async = inspect.iscoroutinefunction(function)
        self.place: HandlerPlacement = choose_placement(self.name, run_in, memory_mb, is_async=self.is_async)
        self.no_retry = check_no_retry(self.name, no_retry)
        self.capture = check_capture(self.name, capture)
        self.gathering: Gathering | None = check_batch_options(self.name, batch, batch_wait, run_in, self.capture)
        if self.gathering is not None:
            arguments.check_batched(name, function)
        self.parameters = arguments.read_parameters(
            name, function if self.gathering is None else arguments.any_arguments
        )
        self.takes_run = self.parameters.run_name is not None  # an attribute, because it is read for every run

    @property
    def inline_names(self) -> frozenset[str] | None:
        """Return the names of the arguments if a worker may call the handler inline, otherwise None."""
        only = not (self.capture or self.gathering)
        return self.parameters.names if only and self.place.run_in == "loop" else None

    @property
    def run_name(self) -> str | None:
        """Return the name of the parameter that gets the Run, or None."""
        return self.parameters.run_name

    @property
    def required(self) -> frozenset[str]:
        """Return the names of the arguments that have no default."""
        return self.parameters.required

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, run: Run, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> R:
        """Call the function itself, in this process."""
        return self.function(*args, **kwargs)

    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId: ...
    @overload
    def enqueue(self, /, *args: Any, connection: Sync, **kwargs: Any) -> RunId: ...
    def enqueue(self, /, *args: Any, connection: Any = None, **kwargs: Any) -> RunId:
        """Make a run with these arguments; return its id.

        `connection`: enqueue in your own transaction, on a psycopg connection, or on an SQLAlchemy Connection or
        Session or a Django connection that holds one.

        Raises InputError, TaskError (the arguments do not fit), AlreadyEnqueued, QueueFull, LockTimeout (another
        transaction has the same key), or DatabaseUnreachable (the run may exist all the same).
        """
        return Request(self, self.values, connection)._enqueue(args, kwargs)

    @overload
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId: ...
    @overload
    async def enqueue_async(self, /, *args: Any, connection: Async, **kwargs: Any) -> RunId: ...
    async def enqueue_async(self, /, *args: Any, connection: Any = None, **kwargs: Any) -> RunId:
        """Make a run like `enqueue`, without blocking the event loop."""
        return await Request(self, self.values, connection)._enqueue_async(args, kwargs)

    def enqueue_many(self, calls: Iterable[Call], /, *, connection: Sync | None = None) -> int:
        """Make a run for each call, by one COPY: all or none; return how many.

        A call is a mapping of arguments by name, or a sequence of arguments by position. The runs' ids are not
        returned. Raises what `enqueue` raises.
        """
        return Request(self, self.values, connection).enqueue_many(calls)

    async def enqueue_many_async(self, calls: Iterable[Call], /, *, connection: Async | None = None) -> int:
        """Make runs like `enqueue_many`, without blocking the event loop."""
        return await Request(self, self.values, connection).enqueue_many_async(calls)

    def options(self, *, connection: Sync | Async | None = None, **options: Unpack[OptionKeywords]) -> Request[P]:
        """Return the task with other options, as in `task.options(delay=60, queue="mail").enqueue(...)`.

        The options are those of `Options`, and `connection`. Raises InputError for an unknown option or a wrong value.
        """
        Options.named(options, "connection")
        return Request(self, replace(self.defaults, **options).checked(), connection)

    def prepare(self, args: Any, run: Run | None) -> Callable[[], Any]:
        """Return the call that an executor makes. Raises TaskError if the arguments do not fit."""
        if self.gathering is not None:
            return call_with_one_item(self.function, args, run)
        return arguments.prepare_call(self.parameters, self.function, args, run)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def check_no_retry(task: str, given: Any) -> tuple[type[BaseException], ...]:
    """Return exception classes, given as one class or a tuple. Raises TaskError for anything else."""
    found = given if isinstance(given, tuple) else (given,)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TaskError(f"task {task}: no_retry: expected exception classes, got {kind!r}")
    return found


def split_dependencies(
    parameters: Parameters, values: dict[str, Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Move `after`, `after_any` and `on_failure` from a call's arguments to its options; return options and arguments.

    A handler with a parameter `after` or `after_any`, or with `**kwargs`, gets these arguments itself.
    """
    named = parameters.signature.parameters.values()
    parameter_names = {p.name for p in named}
    if parameter_names & {*AFTER}:
        return values, kwargs
    if any(p.kind is p.VAR_KEYWORD for p in named):
        refuse_runs(parameters.task, kwargs)
        return values, kwargs
    dependencies = {
        name: kwargs[name] for name in (*AFTER, "on_failure") if name in kwargs and name not in parameter_names
    }
    checked = {name: None if value is None else OPTIONS[name](name, value) for name, value in dependencies.items()}
    return {**values, **checked}, {name: value for name, value in kwargs.items() if name not in dependencies}


def refuse_runs(task: str, kwargs: dict[str, Any]) -> None:
    """Raise InputError if `after` holds runs, for a handler that takes any name.

    The handler would get `after` as an argument, and the run would start without waiting.
    """
    for name in AFTER:
        given = kwargs.get(name)
        if isinstance(given, list | tuple | set) and any(isinstance(one, RunId) for one in given):
            raise InputError(f"{name}: an argument of task {task}, which takes any; say options({name}=...)", name)


class Request(Generic[P]):
    """A task with the options of the runs to be made; `task.options(...)` returns it."""

    def __init__(self, task: Task[P, Any], values: dict[str, Any], connection: Any) -> None:
        self._task = task
        self._values = values
        self._connection = connection

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId:
        """Make a run with these arguments; return its id, or that of the run with the same key (see `RunId.how`).

        Raises what `Task.enqueue` raises.
        """
        return self._enqueue(args, kwargs)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> RunId:
        """Make a run like `enqueue`, without blocking the event loop."""
        return await self._enqueue_async(args, kwargs)

    def enqueue_many(self, calls: Iterable[Call], /) -> int:
        """Make a run for each call, with these options; see `Task.enqueue_many`.

        Raises InputError for options that name one run, or for runs to wait for.
        """
        encoded, values = Encoded(self._task.parameters, calls), self._values_of_many()
        with tracing.start_send_span([values], batch=True) as sent:
            count = self._task.app.database.enqueue_many(self._connection, encoded, values)
            sent.note_runs(count)
        return count

    async def enqueue_many_async(self, calls: Iterable[Call], /) -> int:
        """Make runs like `enqueue_many`, without blocking the event loop."""
        encoded, values = Encoded(self._task.parameters, calls), self._values_of_many()
        with tracing.start_send_span([values], batch=True) as sent:
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
        with tracing.start_send_span([values]) as sent:
            found = self._task.app.database.enqueue(self._connection, values)
            sent.note_runs(found)
        return found

    async def _enqueue_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunId:
        values = self.values(args, kwargs)
        with tracing.start_send_span([values]) as sent:
            found = await self._task.app.database.enqueue_async(self._connection, values)
            sent.note_runs(found)
        return found

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the run that these arguments make, as the database takes it. Raises InputError or TaskError."""
        task, values = self._task, self._values
        if "after" in kwargs or "after_any" in kwargs:
            values, kwargs = split_dependencies(task.parameters, values, kwargs)
        return {**values, "task": task.name, "args": arguments.encode(task.parameters, args, kwargs)}
