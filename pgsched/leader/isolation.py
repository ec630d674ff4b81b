"""The rule: what one piece of work cannot do now (a locked row, an unforeseen value, a file that this host cannot read)
must not stop the others."""

from __future__ import annotations

from collections.abc import Callable

from pgsched.db.connect import DatabaseError, Reaction, classify

Tell = Callable[[str], object]


def isolated(work: Callable[[], int], on_conflict: Tell, on_bug: Tell) -> int:
    """What `work` did, or 0 when it could not; which of the two it was is told. Raises what no other work survives."""
    try:
        return work()
    except OSError as error:
        on_bug(str(error))
        return 0
    except DatabaseError as error:
        reaction = classify(error)
        if reaction not in (Reaction.RETRY, Reaction.VALUE, Reaction.BUG):
            raise
        (on_conflict if reaction is Reaction.RETRY else on_bug)(str(error).strip())
        return 0
