"""Read the progress that an attempt reported: any JSON is accepted, and what cannot be shown is left out."""

from __future__ import annotations

from typing import Any


def parse_progress(found: Any, attempt: int | None = None) -> dict[str, Any] | None:
    """Return the reported progress as `done`, `total` and `note`; None where there is nothing to show.

    With `attempt`, only a report of that attempt counts.
    """
    if not isinstance(found, dict) or (attempt is not None and found.get("attempt", attempt) != attempt):
        return None
    done, total = (number_or_none(found.get(name)) for name in ("done", "total"))
    return None if done is None else {"done": done, "total": total, "note": found.get("note") or ""}


def number_or_none(value: Any) -> float | None:
    """Return a number unchanged; None for any other value."""
    return value if isinstance(value, int | float) else None
