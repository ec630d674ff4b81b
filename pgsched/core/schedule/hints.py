"""Guess the schedule that a refused text was to be, for the end of the error: `; did you mean 0 9 * * 1?`.

Invariant: a text is refused with or without a hint, and each schedule in a hint is one that the grammar accepts.

Two slips have hints: plain English (`every monday at 9am`), and a time zone behind the schedule. A word that is not
known here means that there is no hint. The database gives the same hints in the same words: `pgsched.schedule_hint` in
`migrations/1004_arrive/21_hints.sql`; always change both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

FILLERS = frozenset(["a", "an", "and", "at", "each", "every", "in", "of", "on", "o'clock", "run", "runs", "the"])
UNITS = {
    word: unit
    for unit, words in {
        "second": "s sec secs second seconds",
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours hourly",
        "day": "d day days daily everyday",
        "week": "week weeks weekly",
        "month": "month months monthly",
    }.items()
    for word in words.split()
}
DAYS = {
    "sun": "0", "mon": "1", "tue": "2", "tues": "2", "wed": "3", "thu": "4", "thurs": "4", "fri": "5", "sat": "6",
    "sunday": "0", "monday": "1", "tuesday": "2", "wednesday": "3", "thursday": "4", "friday": "5", "saturday": "6",
    "sundays": "0", "mondays": "1", "tuesdays": "2", "wednesdays": "3", "thursdays": "4", "fridays": "5",
    "saturdays": "6", "weekday": "1-5", "weekdays": "1-5", "weekend": "0,6", "weekends": "0,6",
}  # fmt: skip
CLOCKS = {"noon": (12, 0), "midnight": (0, 0)}
DATES = {"first": "1", "last": "L"}
_NUMBER = re.compile(r"[0-9]{1,3}")
_TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?(am|pm)?")
_ORDINAL = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th)")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z][A-Za-z0-9_+-]+)+|utc|gmt|UTC|GMT")


@dataclass(slots=True)
class Sentence:
    """What the words of a text say so far.

    `times`: (hour, minute) each. `number`: a number that may be an hour, or the count of the next unit.
    `days`: days of the week, `dates`: days of the month, both as cron writes them.
    """

    times: list[tuple[int, int]] = field(default_factory=list)
    number: int | None = None
    unit: str | None = None
    count: int | None = None
    days: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)

    def add(self, word: str) -> bool:
        """Take the next word, in small letters; return False for a word that is not understood."""
        if word in FILLERS:
            return True
        if word in UNITS:
            return self._add_unit(UNITS[word])
        if self.number is not None:
            number, self.number = self.number, None
            if word in ("am", "pm"):
                return self._add_time(number, 0, word)
            if not self._add_time(number, 0, ""):
                return False
        return self._add_day(word) or self._add_clock(word)

    def _add_day(self, word: str) -> bool:
        """Take a word for a day of the week or of the month; return False for any other word."""
        found = _ORDINAL.fullmatch(word)
        if word in DAYS:
            self.days.append(DAYS[word])
        elif word in DATES or (found and 1 <= int(found[1]) <= 31):
            self.dates.append(DATES.get(word) or str(int(word[:-2])))
        else:
            return False
        return True

    def _add_clock(self, word: str) -> bool:
        """Take a word for a time of the day, or a number; return False for any other word."""
        if word in CLOCKS:
            self.times.append(CLOCKS[word])
        elif _NUMBER.fullmatch(word):
            self.number = int(word)
        elif found := _TIME.fullmatch(word):
            return self._add_time(int(found[1]), int(found[2] or 0), found[3] or "")
        else:
            return False
        return True

    def _add_unit(self, unit: str) -> bool:
        if self.dates and unit == "day" and self.number is None:  # the first day of the month
            return True
        if self.unit is not None:
            return False
        self.unit, self.count, self.number = unit, self.number, None
        return self.count != 0

    def _add_time(self, hour: int, minute: int, half: str) -> bool:
        if half:
            if not 1 <= hour <= 12:
                return False
            hour = hour % 12 + (12 if half == "pm" else 0)
        self.times.append((hour, minute))
        return hour <= 23 and minute <= 59

    def schedule(self) -> str | None:
        """Return the schedule that the words mean; None where they mean none, or several."""
        if self.number is not None and not self._add_time(self.number, 0, ""):
            return None
        if len({minute for _, minute in self.times}) > 1:
            return None
        hours = ",".join(map(str, sorted({hour for hour, _ in self.times})))
        clock = f"{self.times[0][1]} {hours}" if self.times else "0 0"
        if self.dates or self.unit == "month":
            plain = not self.days and self.count is None and self.unit in (None, "month")
            return f"{clock} {','.join(self.dates) or '1'} * *" if plain else None
        if self.days or self.unit == "week":
            plain = self.count is None and self.unit in (None, "week")
            return f"{clock} * * {','.join(self.days) or '0'}" if plain else None
        if self.unit is None or (self.unit == "day" and (self.count or 1) == 1):
            return f"{clock} * * *" if self.times or self.unit else None
        return None if self.times else repeated(self.unit, self.count or 1)


def repeated(unit: str, count: int) -> str:
    """Return the schedule for every `count` days, hours, minutes or seconds."""
    if unit == "minute" and 60 % count == 0 and count < 60:
        return "* * * * *" if count == 1 else f"*/{count} * * * *"
    if unit == "hour" and 24 % count == 0 and count < 24:
        return "0 * * * *" if count == 1 else f"0 */{count} * * *"
    return f"@every {count}{unit[0]}"


def find_hint(expression: str, is_accepted: Callable[[str], bool]) -> str:
    """Return the end of the message about a refused expression; empty where nothing can be guessed.

    `expression`: printable ASCII. `is_accepted`: whether the grammar takes a text.
    """
    words = re.split(r"[ \t,]+", expression.strip(" \t,"))
    zone = words.pop() if _ZONE.fullmatch(words[-1]) else None
    if not words or (zone is not None and _ZONE.fullmatch(words[-1])):
        return ""
    meant = None
    if zone is not None:
        cron = expression.rstrip(" \t,").removesuffix(zone).strip(" \t")
        meant = " ".join(cron.split()) if is_accepted(cron) else None
    meant = meant or read_english(words)
    if meant is None:
        return ""
    column = "" if zone is None else f" with timezone {zone.upper() if len(zone) == 3 else zone}"
    return f"; did you mean {meant}{column}?"


def read_english(words: list[str]) -> str | None:
    """Return the schedule that these words mean, None where that is not clear."""
    sentence = Sentence()
    return sentence.schedule() if all(sentence.add(word.lower()) for word in words) else None
