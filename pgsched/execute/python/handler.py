"""The protocols of a registered task, as executors see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pgsched.app.placement import HandlerPlacement
from pgsched.app.rules.batch_options import Gathering
from pgsched.app.rules.retrying import RetryRule
from pgsched.app.run import Run

Call = Callable[[], Any]


class InlineHandler(Protocol):
    """The part of a registered task that an inline call needs."""

    @property
    def retry_rule(self) -> RetryRule:
        """Which exceptions are tried again, and after how long."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """The function to call."""
        ...

    @property
    def run_name(self) -> str | None:
        """The name of the parameter that gets the Run, or None."""
        ...

    @property
    def decode(self) -> Callable[[dict[str, Any]], dict[str, Any] | None] | None:
        """A function that decodes the arguments, and returns None for a misfit; None where nothing is checked."""
        ...


class Handler(InlineHandler, Protocol):
    """The part of a registered task that its executor needs."""

    @property
    def is_async(self) -> bool:
        """Whether the function is async."""
        ...

    @property
    def takes_run(self) -> bool:
        """Whether the handler is given the Run."""
        ...

    @property
    def capture(self) -> bool:
        """Whether the handler's output is captured."""
        ...

    @property
    def place(self) -> HandlerPlacement:
        """Where the handler runs: event loop, thread or child process, and its memory limit."""
        ...

    @property
    def inline_names(self) -> frozenset[str] | None:
        """The names of all arguments but the Run, where the handler may be called inline, else None.

        Inline calls need an async function that runs on the event loop, with a name for each argument.
        """
        ...

    @property
    def required(self) -> frozenset[str]:
        """The names among `inline_names` that have no default."""
        ...

    @property
    def gathering(self) -> Gathering | None:
        """How attempts are gathered for one call; None where the handler is not batched."""
        ...

    def prepare(self, args: Any, run: Run | None) -> Call:
        """Return the call with these JSON arguments; `run` is given where `takes_run` is true.

        Raises TaskError where the arguments do not fit.
        """
        ...
