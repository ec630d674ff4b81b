"""Parse texts that people type: ages, instants, lengths of time, rates, dates, retention and JSON arguments.

Most functions take the name of the option or field. They raise InputError with that name for a text that does not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from pgsched.config import MAX_PAYLOAD_BYTES
from pgsched.core.schedule import time_words
from pgsched.errors import InputError

RATE = re.compile(r"(\d{1,9})/(\d{0,9})(ms|s|min|m|h|d)")
SECONDS = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)
NONE = "none"  # removes a setting
UNIT_SIZES_MS = (
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "m"),
    (1000, "s"),
    (1, "ms"),
)  # milliseconds in each unit
# The settings of retention that are lengths of time.
RETENTION_TIMES = ("keep_minutes", "keep_hours", "keep_audit")
# As PostgreSQL compares intervals: a month has 30 days.
DAYS = {"1 hour": 1 / 24, "1 day": 1, "10 years": 3600, "100 years": 36_000, "1000 years": 360_000}
# In characters. This leaves room for an allowed payload with much white space; longer text is refused unparsed.
LONGEST = 4 * MAX_PAYLOAD_BYTES
TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}", re.ASCII)


def parse_age_or_instant(
    option: str, text: str | None, tz: tzinfo = UTC, *, ahead: bool = False
) -> datetime | timedelta | None:
    """Parse an age such as `2h` to a timedelta, and any other time of core/schedule/time_words.py to an instant.

    `tz`: the zone of wall clocks. `ahead`: the next such instant is meant, and `2h` is one in the future.
    """
    if text is None:
        return None
    try:
        now = datetime.now(UTC)
        instant = time_words.parse_time(text, now, tz, ahead=ahead)
        age = None if ahead else time_words.parse_age(text)
    except OverflowError:
        raise InputError(f'{option}: "{text}" is not an instant between 1970 and 9000', option) from None
    if instant is None:
        raise InputError(time_words.explain_unknown(option, text), option)
    return instant if age is None else age


def parse_instant(option: str, text: str | None, *, ahead: bool = False) -> datetime | None:
    """Parse an instant, wall clocks in UTC; None where there is no text. Raises InputError for an age.

    `ahead`: the next such instant is meant, and `2h` is one in the future.
    """
    found = parse_age_or_instant(option, text, ahead=ahead)
    if isinstance(found, timedelta):
        raise InputError(f"{option}: is not an instant", option)
    return found


def parse_bounded_instant(option: str, text: str | None, tz: tzinfo = UTC, *, ahead: bool = False) -> datetime:
    """Parse a time to an instant, and an age to the instant that long ago; None: now.

    Raises InputError outside the bounds of a job's instants, the years 1970 to 8999.
    """
    when = parse_age_or_instant(option, text, tz, ahead=ahead)
    found = when if isinstance(when, datetime) else datetime.now(UTC) - (when or timedelta(0))
    if not 1970 <= found.year < 9000:
        raise InputError(f'{option}: "{text}" is not an instant between 1970 and 9000', option)
    return found


def parse_duration(option: str, text: str) -> timedelta:
    """Parse a length of time, longer than zero: `90s`, `1h 30m`, `10 minutes`. Raises InputError."""
    found = read_length(text)
    if not found:
        raise InputError(f'{option}: "{text}" is not a time such as 90s, 10m, 1h or 2d', option)
    return found


def parse_option_duration(option: str, text: str) -> timedelta:
    """Parse a length of time as options of an enqueue take it: as `parse_duration`, zero, or a number of seconds."""
    if SECONDS.fullmatch(text):
        return timedelta(seconds=float(text))
    found = read_length(text)
    return parse_duration(option, text) if found is None else found


def refuse_time_of_day(column: str, value: Any) -> None:
    """Raise InputError for a length of time that is written as a time of the day, such as `06:00`."""
    if (problem := time_of_day_problem(value)) is not None:
        raise InputError(f"{column}: {problem}", column)


def time_of_day_problem(value: Any) -> str | None:
    """Return what is wrong with a length of time that is written as a time of the day; None for any other value."""
    if not isinstance(value, str) or not TIME_OF_DAY.fullmatch(value.strip()):
        return None
    return f"\"{value.strip()}\" is a time of the day: give a length of time after the slot, such as '4 hours'"


def read_length(text: str) -> timedelta | None:
    """Return a length of time; None for any other text, and for one that is longer than timedelta holds."""
    try:
        return time_words.parse_length(" ".join(text.lower().split()))
    except OverflowError:
        return None


def format_duration_option(value: timedelta) -> str:
    """Format a length of time as options and forms take it: `90s`, `10m`."""
    ms = round(value.total_seconds() * 1000)
    size, unit = next((size, unit) for size, unit in UNIT_SIZES_MS if ms % size == 0)
    return f"{ms // size}{unit}"


def parse_rate(text: str) -> tuple[int, timedelta]:
    """Parse a rate to a count and its period: `100/m` or `5/10s`."""
    found = RATE.fullmatch(text)
    if found is None or not int(found[1]) or found[2] == "0":
        raise InputError(f'rate: "{text}" is not N/PERIOD, such as 100/m or 5/10s', "rate")
    return int(found[1]), parse_duration("rate", (found[2] or "1") + found[3].replace("min", "m"))


def parse_whole_number(option: str, text: str, least: int) -> int | None:
    """Parse a whole number of at least `least`; None for `none`."""
    if text == NONE:
        return None
    if not text.isdecimal() or not least <= int(text) <= 1_000_000_000:
        raise InputError(f'{option}: "{text}" is neither a whole number from {least} on nor none', option)
    return int(text)


def limit_columns(column: str, concurrency: str | None, rate: str | None, burst: str | None) -> dict[str, Any]:
    """Return the columns that --concurrency, --rate and --burst set; None restores the default.

    `column`: the name of the column for `concurrency`.
    """
    found: dict[str, Any] = {}
    if concurrency is not None:
        found[column] = parse_whole_number("concurrency", concurrency, 0)
    if rate == NONE:
        found |= {"rate": None, "rate_period": None, "rate_burst": None}
    elif rate is not None:
        found["rate"], found["rate_period"] = parse_rate(rate)
    if burst is not None and rate != NONE:
        found["rate_burst"] = parse_whole_number("burst", burst, 1)
    return found


def parse_dates(text: str) -> tuple[date, date]:
    """Parse a date or a range of dates: `2026-12-25` or `2026-12-24..2026-12-26`."""
    first, dots, last = text.partition("..")
    try:
        found = date.fromisoformat(first), date.fromisoformat(last if dots else first)
    except ValueError:
        raise InputError(f'dates: "{text}" is not DATE or DATE..DATE, such as 2026-12-25', "dates") from None
    if found[1] < found[0]:
        raise InputError(f"dates: {last} is earlier than {first}", "dates")
    return found


def parse_keep(given: Iterable[str] | None) -> dict[str, str] | None:
    """Parse retention times such as `7d` and `dead=90d` to the column `keep`; None where none is given.

    The database checks the outcomes.
    """
    found: dict[str, str] = {}
    for text in given or ():
        outcome, sign, time = text.rpartition("=")
        outcome = outcome if sign else "any"
        if outcome in found:
            raise InputError(f"keep: {outcome} is given twice", "keep")
        found[outcome] = f"{parse_duration('keep', time).total_seconds():.15g} seconds"
    return found or None


def parse_bounded_duration(option: str, text: str | None, least: str, most: str) -> timedelta | None:
    """Parse how long figures are kept. Raises InputError unless the time lies between `least` and `most`."""
    found = parse_duration(option, text) if text else None
    if found is not None and not DAYS[least] <= found / timedelta(days=1) <= DAYS[most]:
        raise InputError(f"{option}: {text} is not between {least} and {most}", option)
    return found


def retention_as_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return retention settings for JSON: times as text, in the form that the options take.

    The times in `keep` are text already.
    """
    return {name: format_duration_option(value) if name in RETENTION_TIMES else value for name, value in found.items()}


def json_or_text(text: str) -> Any:
    """Return the value of a text that is JSON, else the text. NaN and Infinity are text."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def json_arguments(text: str) -> Any:
    """Parse the arguments of a run from JSON. Raises InputError."""
    if len(text) > LONGEST:
        raise InputError(f"args: {len(text)} characters; at most {MAX_PAYLOAD_BYTES} bytes of JSON are allowed", "args")
    try:
        value = json.loads(text)
    except RecursionError:
        raise InputError("args: is nested too deeply for JSON", "args") from None
    except ValueError as error:
        raise InputError(f"args: is not JSON: {error}", "args") from None
    if value is None:
        raise InputError("args: must not be null", "args")
    return value
