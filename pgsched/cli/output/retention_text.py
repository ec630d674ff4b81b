"""How long things are kept, as options say it and as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from pgsched.cli.commands.limits import span
from pgsched.errors import InputError

NOTHING = "none"
TIMES = ("keep_minutes", "keep_hours", "keep_audit")
UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))
DAYS = {"1 hour": 1 / 24, "1 day": 1, "10 years": 3650, "100 years": 36_500, "1000 years": 365_000}


def kept(given: Iterable[str] | None) -> dict[str, str] | None:
    """`7d`, `dead=90d` as the column `keep`; outcomes are checked by the database. None: nothing was said."""
    found: dict[str, str] = {}
    for text in given or ():
        outcome, sign, time = text.rpartition("=")
        outcome = outcome if sign else "any"
        if outcome in found:
            raise InputError(f"keep: {outcome} is given twice", "keep")
        found[outcome] = f"{span('keep', time).total_seconds():.15g} seconds"
    return found or None


def said(keep: Mapping[str, Any] | None) -> str:
    """`dead 90 days, any other 7 days`."""
    if not keep:
        return "-"
    named = [f"{outcome} {readable(time)}" for outcome, time in keep.items() if outcome != "any"]
    rest = [("all " if not named else "any other ") + readable(keep["any"])] if "any" in keep else []
    return ", ".join(named + rest)


def said_of_all(keep: Mapping[str, Any]) -> str:
    """What holds where nothing else is said; of what is not named, the default."""
    return said({"any": "7 days", **keep})


def within(option: str, text: str | None, least: str, most: str) -> timedelta | None:
    """How long figures are kept. Raises InputError."""
    found = span(option, text) if text else None
    if found is not None and not DAYS[least] <= found / timedelta(days=1) <= DAYS[most]:
        raise InputError(f"{option}: {text} is not between {least} and {most}", option)
    return found


def span_text(value: timedelta) -> str:
    """A time as options and forms take it: `90s`, `10m`."""
    ms = round(value.total_seconds() * 1000)
    size, unit = next((size, unit) for size, unit in UNITS if ms % size == 0)
    return f"{ms // size}{unit}"


def for_programs(found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON has them: times as the options take them, as those in `keep` are text, too."""
    return {name: span_text(value) if name in TIMES else value for name, value in found.items()}


def readable(time: str) -> str:
    """`604800 seconds` as `7 days`; what people wrote stays as they wrote it."""
    number, _, unit = time.partition(" ")
    if unit != "seconds" or not number.isdigit():
        return time
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if int(number) % size == 0 and int(number):
            count = int(number) // size
            return f"{count} {name}{'' if count == 1 else 's'}"
    return time
