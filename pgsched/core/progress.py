"""What an attempt says of how far it is, as a row has it: whatever JSON that is, it can be shown or is left out."""

from __future__ import annotations

from typing import Any


def progress_of(found: Any, attempt: int | None = None) -> dict[str, Any] | None:
    """How far an attempt (any, if none is given) says that it is: done, total and note. None where it says nothing that
    can be shown."""
    if not isinstance(found, dict) or (attempt is not None and found.get("attempt", attempt) != attempt):
        return None
    done, total = (number(found.get(name)) for name in ("done", "total"))
    return None if done is None else {"done": done, "total": total, "note": found.get("note") or ""}


def number(value: Any) -> float | None:
    """A number as it is; None for anything else."""
    return value if isinstance(value, int | float) else None
