"""The time zone of a command: times are read and shown in the zone of --tz or PGSCHED_TZ.

Invariant: one zone holds for the whole command. JSON always holds UTC. Without --tz, wall clocks are read in UTC, and
by `explain` and `backfill` in the zone of the job.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from pgsched.core.input_values import parse_age_or_instant, parse_bounded_instant
from pgsched.errors import InputError, ScheduleError

VARIABLE = "PGSCHED_TZ"
SHOWN = "%Y-%m-%d %H:%M:%S %Z"
UTC_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", re.ASCII)
_chosen: dict[str, tzinfo] = {}  # the zone of this command, if one was given


def choose_zone(name: str | None) -> None:
    """Set the zone of this command; None: no zone was given. Raises InputError for an unknown zone."""
    _chosen.clear()
    if name is not None:
        from pgsched.core.schedule import zones

        try:
            _chosen["zone"] = zones.zone(name)
        except ScheduleError as error:
            raise InputError(f"tz: {error.reason}", "tz") from None


def choose_zone_of_option(_context: Any, _parameter: Any, value: str | None) -> str | None:
    """Set the zone as the value of the option --tz is read."""
    choose_zone(value or None)
    return value


def chosen_zone() -> tzinfo:
    """Return the zone of this command: UTC if none was given."""
    return _chosen.get("zone", UTC)


def to_zone(instant: datetime) -> datetime:
    """Return the instant as it is shown."""
    return instant.astimezone(_chosen["zone"]) if _chosen else instant


def localize(text: str) -> str:
    """Return a sentence with each `2026-05-01 02:00:00 UTC` in it shown in the zone of the command."""
    if not _chosen:
        return text
    return UTC_INSTANT.sub(lambda found: f"{to_zone(datetime.fromisoformat(found[1] + 'Z')):{SHOWN}}", text)


def read_moment(option: str, text: str | None) -> datetime | timedelta | None:
    """Return the past instant, or the age, that an option gives. Raises InputError."""
    return parse_age_or_instant(option, text, chosen_zone())


def read_instant(option: str, text: str | None, *, ahead: bool = False) -> datetime | None:
    """Return the instant that an option gives: the last such one, or with `ahead` the next. Raises InputError."""
    return None if text is None else parse_bounded_instant(option, text, chosen_zone(), ahead=ahead)


def fix_zone(option: str, text: str) -> str:
    """Return the text of a time that another module reads: as an instant where a zone was given, else unchanged."""
    if not _chosen:
        return text
    return parse_bounded_instant(option, text, _chosen["zone"]).isoformat()
