"""Write lengths of time as schedules and columns."""

from __future__ import annotations

from datetime import timedelta

UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def every(length: timedelta) -> str | None:
    """Return the schedule `@every` of a length, `@every 1h30m`; None for one that is no whole number of seconds."""
    seconds, rest = divmod(length, timedelta(seconds=1))
    if rest or seconds < 1:
        return None
    text = ""
    for size, unit in UNITS:
        count, seconds = divmod(seconds, size)
        text += f"{count}{unit}" if count else ""
    return f"@every {text}"
