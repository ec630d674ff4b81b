"""Read time spans of systemd: `1h 30min`, `50`, `infinity`.

The units are those of systemd.time(7), "Parsing time spans"; a number without a unit is of seconds.
"""

from __future__ import annotations

import re
from datetime import timedelta

ITEM = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-zA-Zµμ]*)")
SECONDS = {
    **dict.fromkeys(("usec", "us", "µs", "μs"), 1e-6),
    **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("", "seconds", "second", "sec", "s"), 1.0),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60.0),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600.0),
    **dict.fromkeys(("days", "day", "d"), 86_400.0),
    **dict.fromkeys(("weeks", "week", "w"), 604_800.0),
    **dict.fromkeys(("months", "month", "M"), 2_629_800.0),
    **dict.fromkeys(("years", "year", "y"), 31_557_600.0),
}
LONGEST_S = 10 * 360 * 86_400.0  # what a column takes


def parse_span(text: str) -> timedelta | None:
    """Return a time span; None for `infinity`, and for one of more than ten years.

    Raises ValueError where systemd would not accept it.
    """
    if text.strip() == "infinity":
        return None
    total, at = 0.0, 0
    while at < len(text.rstrip()):
        match = ITEM.match(text, at)
        if match is None or match[2] not in SECONDS:
            raise ValueError(f"{text!r:.60} is no time span of systemd")
        total += float(match[1]) * SECONDS[match[2]]
        at = match.end()
    if at == 0:
        raise ValueError("an empty text is no time span")
    return None if total > LONGEST_S else timedelta(seconds=total)
