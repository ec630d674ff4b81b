"""One run of a batch, as a batched handler sees it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pgsched.app.run import Run


class Item:
    """One run of a batch: `args` are the arguments that it was enqueued with, `run` describes the attempt.

    `item[name]` is the argument of that name. A handler settles an item by `done` or `fail`, or all items by the list
    that it returns. Only the first outcome of an item counts, and the run is settled at once. Both methods may be
    called from any thread.
    """

    __slots__ = ("_record", "args", "run")

    def __init__(self, args: Any, run: Run, say: Callable[[Any, BaseException | None], None]) -> None:
        self.args = args
        self.run = run
        self._record = say

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def done(self, result: Any = None) -> None:
        """Record success of this run, with a result: any JSON value."""
        self._record(result, None)

    def fail(self, error: BaseException) -> None:
        """Record failure of this run with this error. Retry, Snooze and Discard act as if they were raised."""
        self._record(None, error)

    def __repr__(self) -> str:
        return f"<Item run {self.run.id}>"


def call_with_one_item(function: Callable[..., Any], args: Any, run: Any) -> Callable[[], Any]:
    """Return a batched handler's call for one run, as tests make it; it returns or raises that run's outcome."""
    outcomes: list[tuple[Any, BaseException | None]] = []
    item = Item(args, run, lambda value, error: outcomes.append((value, error)))

    def outcome(value: Any) -> Any:
        one = value[0] if isinstance(value, list | tuple) and value else None
        result, error = outcomes[0] if outcomes else (one, one if isinstance(one, BaseException) else None)
        if error is not None:
            raise error
        return result

    async def awaited() -> Any:
        return outcome(await function([item]))

    return awaited if inspect.iscoroutinefunction(function) else lambda: outcome(function([item]))
