"""A task: a registered function, which can be called here or enqueued as a run for a worker.

Invariant: calling a task calls its function here; `enqueue` makes a run. `enqueue` and `enqueue_async` differ only in
the line that uses the database.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from pgsched.app import arguments
from pgsched.app.batch_item import call_with_one_item
from pgsched.app.declarations import one_of, text
from pgsched.app.options import OptionKeywords, Options
from pgsched.app.placement import HandlerPlacement, check_capture, choose_placement
from pgsched.app.request import Calls, Keys, Request
from pgsched.app.rules.batch_options import Gathering, check_batch_options
from pgsched.app.rules.retrying import BackoffFunction, RetryRule, check_rule
from pgsched.app.rules.task_limit import TaskLimit, check_limit
from pgsched.app.rules.unique_keys import ALL, check_argument, check_literal, check_template
from pgsched.app.run import Run
from pgsched.app.run_handle import RunHandle
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.app.base import AppBase
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

    Sync = SyncConn | None
    Async = AsyncConn | None

P = ParamSpec("P")
R = TypeVar("R")
Rules = tuple[RetryRule, TaskLimit | None]


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
        extra: Any = "forbid",
        retry_on: Any = None,
        backoff: BackoffFunction | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
    ) -> None:
        update_wrapper(self, function)  # before the attributes below: the function may have some of the same name
        self.app = app
        self.name = text(200)("name", name)
        self.function = function
        self.defaults = defaults
        self.is_async = inspect.iscoroutinefunction(function)
        self.place: HandlerPlacement = choose_placement(self.name, run_in, memory_mb, is_async=self.is_async)
        self.rules: Rules = (
            check_rule(self.name, no_retry, retry_on, backoff),
            check_limit(self.name, concurrency, rate),
        )
        self.capture = check_capture(self.name, capture)
        self.gathering: Gathering | None = check_batch_options(self.name, batch, batch_wait, run_in, self.capture)
        if self.gathering is not None:
            arguments.check_batched(name, function)
        self.parameters = arguments.read_parameters(
            name,
            function if self.gathering is None else arguments.any_arguments,
            ignores_extra=one_of("forbid", "ignore")("extra", extra) == "ignore",
        )
        self.takes_run = self.parameters.run_name is not None  # an attribute, because it is read for every run
        if isinstance(defaults.expires, datetime):
            raise InputError("expires: of a task, give a length of time from when a run is due", "expires")
        self.values = self.checked(defaults, template=True)
        if defaults.unique_key is not None and self.gathering is None:
            check_template(self.parameters, defaults.unique_key)

    @property
    def inline_names(self) -> frozenset[str] | None:
        """Return the names of the arguments if a worker may call the handler inline, otherwise None."""
        only = not (self.capture or self.gathering)
        return self.parameters.names if only and self.place.run_in == "loop" else None

    @property
    def decode(self) -> arguments.Decode | None:
        """Return what decodes arguments by name for an inline call, or None if nothing is checked."""
        return arguments.find_decoder(self.parameters)

    @property
    def retry_rule(self) -> RetryRule:
        """Return which failures are tried again, and after how long."""
        return self.rules[0]

    @property
    def limit(self) -> TaskLimit | None:
        """Return the limit that the task declares, or None."""
        return self.rules[1]

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
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]: ...
    @overload
    def enqueue(self, /, *args: Any, connection: SyncConn, **kwargs: Any) -> RunHandle[R]: ...
    def enqueue(self, /, *args: Any, connection: Any = None, **kwargs: Any) -> RunHandle[R]:
        """Make a run with these arguments; return its handle, which is also its id.

        `connection`: enqueue in your own transaction, on a psycopg connection, or on an SQLAlchemy Connection or
        Session or a Django connection that holds one, or an alias of Django.

        Raises InputError, AlreadyEnqueued or QueueFull; TaskError where the arguments do not fit; LockTimeout where
        another transaction has the same key; DatabaseUnreachable (the run may exist all the same).
        """
        return Request(self, self.values, connection)._enqueue(args, kwargs)

    @overload
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]: ...
    @overload
    async def enqueue_async(self, /, *args: Any, connection: AsyncConn, **kwargs: Any) -> RunHandle[R]: ...
    async def enqueue_async(self, /, *args: Any, connection: Any = None, **kwargs: Any) -> RunHandle[R]:
        """Make a run like `enqueue`, without blocking the event loop."""
        return await Request(self, self.values, connection)._enqueue_async(args, kwargs)

    @overload
    def enqueue_many(self, calls: Calls, /, *, connection: Sync = None, idempotency_keys: Keys = None) -> int: ...
    @overload
    def enqueue_many(
        self, calls: Calls, /, *, connection: Sync = None, idempotency_keys: Keys = None, return_ids: Literal[True]
    ) -> list[RunHandle[R]]: ...
    @overload
    def enqueue_many(
        self, calls: Calls, /, *, connection: Sync = None, idempotency_keys: Keys = None, return_ids: bool
    ) -> Any: ...
    def enqueue_many(
        self, calls: Calls, /, *, connection: Any = None, idempotency_keys: Keys = None, return_ids: bool = False
    ) -> Any:
        """Make a run for each call, by one COPY: all or none; return how many were made.

        A call is a mapping of arguments by name, or a sequence of arguments by position. Where the task declares a
        unique key, each call has its own, and the runs are made one by one in one transaction.

        `idempotency_keys`: one for each call, in their order; then the runs are made one by one, too.
        `return_ids`: return the handle of each call's run, in their order. This takes an INSERT instead of a COPY.
        Raises what `enqueue` raises.
        """
        request = Request(self, self.values, connection)
        return request.enqueue_many(calls, idempotency_keys=idempotency_keys, return_ids=return_ids)

    @overload
    async def enqueue_many_async(
        self, calls: Calls, /, *, connection: Async = None, idempotency_keys: Keys = None
    ) -> int: ...
    @overload
    async def enqueue_many_async(
        self, calls: Calls, /, *, connection: Async = None, idempotency_keys: Keys = None, return_ids: Literal[True]
    ) -> list[RunHandle[R]]: ...
    @overload
    async def enqueue_many_async(
        self, calls: Calls, /, *, connection: Async = None, idempotency_keys: Keys = None, return_ids: bool
    ) -> Any: ...
    async def enqueue_many_async(
        self, calls: Calls, /, *, connection: Any = None, idempotency_keys: Keys = None, return_ids: bool = False
    ) -> Any:
        """Make runs like `enqueue_many`, without blocking the event loop."""
        request = Request(self, self.values, connection)
        return await request.enqueue_many_async(calls, idempotency_keys=idempotency_keys, return_ids=return_ids)

    def options(self, *, connection: Sync | Async = None, **options: Unpack[OptionKeywords]) -> Request[P, R]:
        """Return the task with other options, as in `task.options(delay=60, queue="mail").enqueue(...)`.

        The options are those of `Options`, and `connection`. Raises InputError for an unknown option or a wrong value.
        """
        given = Options.named(options, "connection")
        defaults = self.defaults
        if given.on_conflict in ("return", "reject", "keep_time"):
            defaults = replace(defaults, debounce_max=None)
        if given.at is not None:
            defaults = replace(defaults, delay=None)
        if given.unique_key is not None or given.unique_by:  # the call's key takes the place of the task's
            defaults = replace(defaults, unique_key=None, unique_by=None)
        literal = "unique_key" in options
        if literal and given.unique_key is not None and self.gathering is None:
            check_literal(self.parameters, text(500)("unique_key", given.unique_key))
        return Request(self, self.checked(replace(defaults, **options), template=not literal), connection)

    def checked(self, options: Options, *, template: bool) -> dict[str, Any]:
        """Return the values of options as the database takes them. `template`: the unique key is a template.

        Raises InputError for a wrong option.
        """
        values = options.checked()
        if template:
            values["unique_key"], values["unique_template"] = None, values["unique_key"]
        for name in values["unique_by"] or ():
            if name != ALL and self.gathering is None:
                check_argument(self.parameters, "unique_by", name)
        if values["unique_template"] is not None or values["unique_by"] is not None:
            values["defaults"] = json.dumps(arguments.encoded_defaults(self.parameters))
        if self.limit is not None:
            values["concurrency_key"] = self.limit.key(values["concurrency_key"])
        return values

    def prepare(self, args: Any, run: Run | None) -> Callable[[], Any]:
        """Return the call that an executor makes. Raises TaskError if the arguments do not fit."""
        if self.gathering is not None:
            return call_with_one_item(self.function, args, run)
        return arguments.prepare_call(self.parameters, self.function, args, run)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"
