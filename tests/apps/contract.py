"""An app with the same handlers in all three places: on the loop, in a thread, in a child process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pgsched import App, Discard, Retry, Snooze

app = App("contract")
PLACES = ("loop", "thread", "process")


class NoSuchCustomer(ValueError):
    pass


def everywhere(name: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a plain handler as `name.thread` and `name.process`, and an async one that does the same as
    `name.loop` and `name.process_async`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        async def as_async(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        as_async.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        as_async.__annotations__ = function.__annotations__
        app.task(name=f"{name}.thread", **options)(function)
        app.task(name=f"{name}.process", run_in="process", **options)(function)
        app.task(name=f"{name}.loop", **options)(as_async)
        app.task(name=f"{name}.process_async", run_in="process", **options)(as_async)
        return function

    return register


@everywhere("snoozes")
def snoozes() -> None:
    raise Snooze(after=90, message="the market is closed")


RAISED: dict[str, Callable[[], BaseException]] = {
    "its own": lambda: NoSuchCustomer("7"),
    "another": lambda: OSError("disk"),
    "a group of its own": lambda: ExceptionGroup("several", [NoSuchCustomer("7"), NoSuchCustomer("8")]),
    "a mixed group": lambda: ExceptionGroup("several", [NoSuchCustomer("7"), OSError("disk")]),
    "a group of discards": lambda: ExceptionGroup("several", [Discard()]),
    "a retry": lambda: Retry(after=timedelta(seconds=5)),
}


@everywhere("picky", no_retry=ValueError)
def picky(which: str) -> None:
    raise RAISED[which]()


@everywhere("pickier", no_retry=(ValueError, Exception))
def pickier(which: str) -> None:
    raise RAISED[which]()
