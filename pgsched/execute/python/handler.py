"""A registered task, as executors see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pgsched.app.batch_options import Gathering
from pgsched.app.placement import Place
from pgsched.app.run import Run
from pgsched.app.signals import Kinds

Call = Callable[[], Any]


class InlineHandler(Protocol):
    """A registered task, as much of it as is needed to call it inline."""

    @property
    def no_retry(self) -> Kinds: ...

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def run_name(self) -> str | None:
        """The parameter that gets the Run."""
        ...


class Handler(InlineHandler, Protocol):
    """A registered task, as much of it as its executor needs."""

    @property
    def is_async(self) -> bool: ...

    @property
    def takes_run(self) -> bool: ...

    @property
    def capture(self) -> bool: ...

    @property
    def place(self) -> Place: ...

    @property
    def inline_names(self) -> frozenset[str] | None:
        """The names of all its arguments but the Run, if it may be called inline: it is an async function, runs on the
        loop, and every argument has a name."""
        ...

    @property
    def required(self) -> frozenset[str]:
        """Those of them that have no default."""
        ...

    @property
    def gathering(self) -> Gathering | None: ...

    def prepare(self, args: Any, run: Run | None) -> Call:
        """The call with these JSON arguments; `run` where `takes_run`. Raises TaskError if they do not fit."""
        ...
