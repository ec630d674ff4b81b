"""The slot of a run, as texts and intervals: `{slot:%Y-%m-%d}` in commands and requests, and the slot in its zone.

Invariant: only tokens of this very form are replaced. Every other brace is text: awk, JSON, other templates. A token
has a directive, and no `$` before it: `${slot:-x}` is the shell's.

A token is written with strftime, in the time zone of the slot, and only with the directives that are listed here. They
are those of Python's strftime (docs.python.org, datetime, "Format codes") that depend on no locale's layout and no
platform. Names of days and months are English. The database refuses the same tokens in the same words:
`pgsched.slot_token_error`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pgsched.errors import InputError

BEGIN = "{slot:"
KNOWN = "aAbBdfGHIjmMpSuUVwWyYzZ%"
MOST_TOKENS = 1000  # in one run
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
_NAME = re.compile(r"%([aAbBp%])")
_TOKEN = re.compile(r"(?<!\$)\{slot:([^{}%]*%[^{}]*)\}")
_FORMAT = re.compile(rf"(?:[^%]++|%[{KNOWN}])*+")  # possessive: a long one takes no memory


class SlotTerms(NamedTuple):
    """What a run knows of its slot beside the instant. `zone`: None is UTC."""

    interval_start: datetime | None
    zone: str | None


class Interval(NamedTuple):
    """The time between two slots; both are instants in UTC."""

    start: datetime
    end: datetime


def local_slot(slot: datetime, zone: str | None) -> datetime:
    """Return the slot in its time zone. Raises ScheduleError for a zone that the tz database does not know."""
    if zone is None:
        return slot.astimezone(UTC)
    from pgsched.core.schedule import zones  # late: few runs need it

    return slot.astimezone(zones.zone(zone))


def has_token(value: Any) -> bool:
    """Check whether a JSON value holds a text with a token, or with its beginning."""
    found = False
    stack = [value]
    while stack and not found:
        one = stack.pop()
        if isinstance(one, str):
            found = BEGIN in one
        elif isinstance(one, list):
            stack += one
        elif isinstance(one, dict):
            stack += one.values()
    return found


def fill(field: str, value: Any, write: Callable[[str], str]) -> Any:
    """Return a JSON value with each token replaced in its texts; the keys of objects stay as they are.

    `write`: returns the text for a format. Raises InputError for a format that is not known; `field` is named there.
    """
    if isinstance(value, str):
        return _TOKEN.sub(lambda token: write(checked(field, token[1])), value) if BEGIN in value else value
    if isinstance(value, list):
        return [fill(field, one, write) for one in value]
    if isinstance(value, dict):
        return {key: fill(field, one, write) for key, one in value.items()}
    return value


def checked(field: str, form: str) -> str:
    """Return a format. Raises InputError for one that is not known."""
    if not _FORMAT.fullmatch(form):
        raise InputError(f"{field}: {{slot:{form[:60]}}}: after %, one of these is known: {' '.join(KNOWN)}", field)
    return form


class SlotWriter:
    """Writes one slot by formats, at most MOST_TOKENS times. Raises InputError beyond that."""

    def __init__(self, local: datetime) -> None:
        self._local = local
        self._left = MOST_TOKENS
        self._known: dict[str, str] = {}

    def write(self, form: str) -> str:
        """Return the slot in this format."""
        self._left -= 1
        if self._left < 0:
            raise InputError(f"args: more than {MOST_TOKENS:,} tokens that begin with {BEGIN}", "args")
        if form not in self._known:
            self._known[form] = self._local.strftime(_NAME.sub(self._english, form))
        return self._known[form]

    def _english(self, found: re.Match[str]) -> str:
        """Return the name that a directive means: strftime would take that of the process's locale."""
        day, month = DAYS[self._local.weekday()], MONTHS[self._local.month - 1]
        half = "AM" if self._local.hour < 12 else "PM"
        return {"a": day[:3], "A": day, "b": month[:3], "B": month, "p": half}.get(found[1], "%%")
