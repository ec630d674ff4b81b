"""When Python looks for garbage.

The rule: never among what was imported, nor in a command that ends before there is any: that took a quarter of the time
of `pgsched status`.
"""

from __future__ import annotations

import gc

MORE_THAN_A_COMMAND_MAKES = 200_000
LASTING = 20_000  # each run, or request, makes a few dozen objects that are gone at once


def begin() -> None:
    """A process of which nobody knows yet for how long it lasts."""
    gc.set_threshold(MORE_THAN_A_COMMAND_MAKES)


def last() -> None:
    """It will last: it has imported what it needs, and looks for garbage from now on, though less often than usual."""
    gc.freeze()
    gc.set_threshold(LASTING)


def end() -> None:
    """It ends. Where there has been a command only, Python need not look through everything once more; what others'
    code has left in one that lasts (a file that was not closed) is finalized as ever."""
    if gc.get_threshold()[0] == MORE_THAN_A_COMMAND_MAKES:
        gc.freeze()
