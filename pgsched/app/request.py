"""A request to enqueue runs of a task: the task, with the options of the runs and the connection to use.

Invariant: the methods with `_async` differ from the others only in the line that uses the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

from pgsched.app import arguments
from pgsched.app.arguments import Encoded
from pgsched.app.options import AFTER, KEYS, OPTIONS
from pgsched.app.run_handle import RunHandle
from pgsched.core.units import format_count
from pgsched.errors import InputError
from pgsched.telemetry import tracing

if TYPE_CHECKING:
    from pgsched.app.task import Task
    from pgsched.core.model import RunId

P = ParamSpec("P")
R = TypeVar("R")
Call = Mapping[str, Any] | Sequence[Any]
Calls = Iterable[Call]
Keys = Iterable[str] | None
CHECK_KEY = OPTIONS["idempotency_key"]


def has_own_keys(values: dict[str, Any]) -> bool:
    """Check whether each run has a key of its own: a unique key of its arguments, or an idempotency key."""
    return any(values.get(name) is not None for name in ("unique_template", "unique_by", "idempotency_keys"))


def check_keys(keys: Any, calls: int) -> list[str]:
    """Return the idempotency keys of this many calls. Raises InputError unless each call has one.

    A set is refused: its order changes with each process, and so would the key of a call.
    """
    if isinstance(keys, str | bytes | set | frozenset | Mapping) or not isinstance(keys, Iterable):
        kind = type(keys).__name__
        raise InputError(
            f"idempotency_keys: expected a list of texts, one for each call, got {kind}", "idempotency_keys"
        )
    found = [CHECK_KEY(f"idempotency_keys[{number}]", key) for number, key in enumerate(keys)]
    if len(found) != calls:
        counts = f"{format_count(len(found), 'key')} for {format_count(calls, 'call')}"
        raise InputError(f"idempotency_keys: {counts}: give one for each call", "idempotency_keys")
    return found


def check_order(calls: Calls, keys: Keys) -> Calls:
    """Return the calls. Raises InputError for a set of calls where each call is to have its own key."""
    if keys is not None and isinstance(calls, set | frozenset):
        kind = type(calls).__name__
        raise InputError(f"calls: expected a list of calls, got {kind}: a set has no order, and keys need one", "calls")
    return calls


class Request(Generic[P, R]):
    """A task with the options of the runs to be made; `task.options(...)` returns it."""

    def __init__(self, task: Task[P, R], values: dict[str, Any], connection: Any) -> None:
        self._task = task
        self._values = values
        self._connection = connection

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Make a run with these arguments; return its handle, or that of the run with the same key (see `how`).

        Raises what `Task.enqueue` raises.
        """
        return self._enqueue(args, kwargs)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Make a run like `enqueue`, without blocking the event loop."""
        return await self._enqueue_async(args, kwargs)

    @overload
    def enqueue_many(self, calls: Calls, /, *, idempotency_keys: Keys = None) -> int: ...
    @overload
    def enqueue_many(
        self, calls: Calls, /, *, idempotency_keys: Keys = None, return_ids: Literal[True]
    ) -> list[RunHandle[R]]: ...
    @overload
    def enqueue_many(self, calls: Calls, /, *, idempotency_keys: Keys = None, return_ids: bool) -> Any: ...
    def enqueue_many(self, calls: Calls, /, *, idempotency_keys: Keys = None, return_ids: bool = False) -> Any:
        """Make a run for each call, with these options; see `Task.enqueue_many`.

        `unique_by` gives each call a unique key of its own, `idempotency_keys` an idempotency key. Raises InputError
        for options that name one run, or for runs to wait for.
        """
        encoded = Encoded(self._task.parameters, check_order(calls, idempotency_keys))
        values = self._values_of_many(len(encoded), idempotency_keys)
        database, one_by_one = self._task.app.database, has_own_keys(values)
        with tracing.start_send_span([values], batch=True) as sent:
            if not (return_ids or one_by_one):
                count = database.enqueue_many(self._connection, encoded, values)
                sent.note_runs(count)
                return count
            ids = database.enqueue_many_ids(self._connection, encoded, values)
            sent.note_runs(len(ids))
        return self._handles(ids) if return_ids else sum(run_id.created for run_id in ids)

    @overload
    async def enqueue_many_async(self, calls: Calls, /, *, idempotency_keys: Keys = None) -> int: ...
    @overload
    async def enqueue_many_async(
        self, calls: Calls, /, *, idempotency_keys: Keys = None, return_ids: Literal[True]
    ) -> list[RunHandle[R]]: ...
    @overload
    async def enqueue_many_async(self, calls: Calls, /, *, idempotency_keys: Keys = None, return_ids: bool) -> Any: ...
    async def enqueue_many_async(
        self, calls: Calls, /, *, idempotency_keys: Keys = None, return_ids: bool = False
    ) -> Any:
        """Make runs like `enqueue_many`, without blocking the event loop."""
        encoded = Encoded(self._task.parameters, check_order(calls, idempotency_keys))
        values = self._values_of_many(len(encoded), idempotency_keys)
        database, one_by_one = self._task.app.database, has_own_keys(values)
        with tracing.start_send_span([values], batch=True) as sent:
            if not (return_ids or one_by_one):
                count = await database.enqueue_many_async(self._connection, encoded, values)
                sent.note_runs(count)
                return count
            ids = await database.enqueue_many_ids_async(self._connection, encoded, values)
            sent.note_runs(len(ids))
        return self._handles(ids) if return_ids else sum(run_id.created for run_id in ids)

    def _handles(self, ids: Iterable[RunId]) -> list[RunHandle[R]]:
        return [RunHandle(run_id, self._task.app, run_id.how) for run_id in ids]

    def _values_of_many(self, calls: int, keys: Keys) -> dict[str, Any]:
        for key in KEYS:
            if self._values[key] is not None:
                instead = "unique_by" if key == "unique_key" else "idempotency_keys, one for each call"
                raise InputError(
                    f"{key}: names one run; enqueue_many makes many. Enqueue them one by one or give {instead}", key
                )
        for key in AFTER:
            if self._values[key] is not None:
                raise InputError(f"{key}: enqueue_many makes runs that wait for nothing; see app.graph()", key)
        values = {**self._values, "task": self._task.name}
        return values if keys is None else {**values, "idempotency_keys": check_keys(keys, calls)}

    def _enqueue(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunHandle[R]:
        values = self.values(args, kwargs)
        with tracing.start_send_span([values]) as sent:
            found = self._task.app.database.enqueue(self._connection, values)
            sent.note_runs(found)
        return RunHandle(found, self._task.app, found.how)

    async def _enqueue_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunHandle[R]:
        values = self.values(args, kwargs)
        with tracing.start_send_span([values]) as sent:
            found = await self._task.app.database.enqueue_async(self._connection, values)
            sent.note_runs(found)
        return RunHandle(found, self._task.app, found.how)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the run that these arguments make, as the database takes it. Raises InputError or TaskError."""
        task, values = self._task, self._values
        return {**values, "task": task.name, "args": arguments.encode(task.parameters, args, kwargs)}
