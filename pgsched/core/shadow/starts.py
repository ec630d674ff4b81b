"""A start of work that another scheduler's log tells of."""

from __future__ import annotations

from typing import NamedTuple


class Start(NamedTuple):
    """One start.

    `what`: the command or the name, as the log has it.
    `at_s`: when, in seconds since 1970.
    `due_s`: the time for which it was planned, where the log says that; None: it does not.
    `cut`: the log has only the beginning of the command.
    """

    what: str
    at_s: float
    due_s: float | None = None
    cut: bool = False
