"""Tuning of Python's garbage collection, for short commands and for processes that last.

Invariant: Python never searches imported objects for garbage, nor the objects of a command that ends soon. That search
took a quarter of the time of `pgsched status`.
"""

from __future__ import annotations

import gc

MORE_THAN_A_COMMAND_MAKES = 200_000
LASTING = 20_000  # each run or request makes a few dozen objects that are freed at once


def tune_for_command() -> None:
    """Put the first search off: it is not known yet for how long this process lasts."""
    gc.set_threshold(MORE_THAN_A_COMMAND_MAKES)


def tune_for_long_run() -> None:
    """Search from now on, though less often than usual: the process lasts, and has imported all it needs."""
    gc.freeze()
    gc.set_threshold(LASTING)


def skip_last_collection() -> None:
    """End the process without a further search, if it was only a command.

    In a process that lasts, objects that others' code has left (a file that was not closed) are finalized as usual.
    """
    if gc.get_threshold()[0] == MORE_THAN_A_COMMAND_MAKES:
        gc.freeze()
