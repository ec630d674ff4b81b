"""One run of a batch, as a batched handler sees it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pgsched.app.run import Run


class Item:
    """One run of a batch. `args` is what it was enqueued with, `run` says which attempt it is.

    A handler says what becomes of an item by `done` or `fail`, or of all together by the list that it returns; the
    first word counts, and the run is settled at once. Both may be called from any thread.
    """

    __slots__ = ("_say", "args", "run")

    def __init__(self, args: Any, run: Run, say: Callable[[Any, BaseException | None], None]) -> None:
        self.args = args
        self.run = run
        self._say = say

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def done(self, result: Any = None) -> None:
        """This run has succeeded, with that result: any JSON value."""
        self._say(result, None)

    def fail(self, error: BaseException) -> None:
        """This run has failed; Retry, Snooze and Discard mean what they mean when they are raised."""
        self._say(None, error)

    def __repr__(self) -> str:
        return f"<Item run {self.run.id}>"


def alone(function: Callable[..., Any], args: Any, run: Any) -> Callable[[], Any]:
    """The call of a batched handler for one run, as a test makes it: it returns or raises what becomes of that run."""
    said: list[tuple[Any, BaseException | None]] = []
    item = Item(args, run, lambda value, error: said.append((value, error)))

    def outcome(value: Any) -> Any:
        one = value[0] if isinstance(value, list | tuple) and value else None
        result, error = said[0] if said else (one, one if isinstance(one, BaseException) else None)
        if error is not None:
            raise error
        return result

    async def awaited() -> Any:
        return outcome(await function([item]))

    return awaited if inspect.iscoroutinefunction(function) else lambda: outcome(function([item]))
