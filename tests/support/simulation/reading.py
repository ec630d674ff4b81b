"""Read a sentence that describes a schedule as a person would, and return the times and days that it names.

Invariant: no word is ignored: a word that the reader does not know is an error.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from tests.support.simulation.oracle import OnDay, is_last, is_nearest, is_weekday

MONTHS = [date(2026, n, 1).strftime("%B") for n in range(1, 13)]
WEEKDAYS = [date(2026, 2, n).strftime("%A") for n in range(1, 8)]  # 1 February 2026 is a Sunday
ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
UNITS = {"second": 1, "minute": 60, "hour": 3600}
MONTH, WEEKDAY = "|".join(MONTHS), "|".join(WEEKDAYS)
TIME = r"\d\d:\d\d(?::\d\d)?"
STEP = r"Every(?: (\d+))? (second|minute|hour)s?"


def read(sentence: str) -> tuple[set[int], OnDay]:
    """Return the seconds of a day, and a predicate for the days."""
    found = re.search(rf",? every day|,? every (?={WEEKDAY})| on ", sentence)
    clock = sentence[: found.start()] if found else sentence
    return times(clock), days(sentence[found.start() :].lstrip(", ") if found else "every day")


def times(text: str) -> set[int]:
    if re.fullmatch(rf"At {TIME}(?:(?:,| and) {TIME})*", text):
        return {seconds(time) for time in re.findall(TIME, text)}
    if found := re.fullmatch(rf"{STEP} from ({TIME}) through ({TIME})", text):
        return {*range(seconds(found[3]), seconds(found[4]) + 1, int(found[1] or 1) * UNITS[found[2]])}
    if found := re.fullmatch(
        rf"{STEP}(?: (?:at|from) minute (\d+))?(?:(?: at| and) second (\d+))?(?: of every hour)?", text
    ):
        start = int(found[3] or 0) * 60 + int(found[4] or 0)
        return {*range(start, 86_400, int(found[1] or 1) * UNITS[found[2]])}
    if found := re.fullmatch(rf"{STEP} from second (\d+) of every minute", text):
        return {*range(int(found[3]), 86_400, int(found[1]))}
    sets = {"hour": {*range(24)}, "minute": {*range(60)}, "second": {0}}
    for part in text.split(" of "):
        unit, numbers = column(part)
        sets[unit] = numbers
    return {h * 3600 + m * 60 + s for h in sets["hour"] for m in sets["minute"] for s in sets["second"]}


def seconds(time: str) -> int:
    return sum(int(part) * size for part, size in zip(time.split(":"), (3600, 60, 1), strict=False))


def column(text: str) -> tuple[str, set[int]]:
    found = re.match(r"(?:At |Every \d+ |[Ee]very \d+(?:st|nd|rd|th) |[Ee]very )?(second|minute|hour)s?", text)
    assert found, text
    unit, rest = found[1], text[found.end() :]
    if not rest:
        return unit, {*range(24 if unit == "hour" else 60)}
    if found := re.fullmatch(
        rf"[Ee]very (?:(\d+)\w* )?{unit}s? from (?:{unit} )?(\d+) through (?:{unit} )?(\d+)", text
    ):
        return unit, {*range(int(found[2]), int(found[3]) + 1, int(found[1] or 1))}
    return unit, listed(rest)


def listed(text: str) -> set[int]:
    numbers: set[int] = set()
    for item in re.split(r", | and ", text.strip()):
        low, _, high = item.partition(" through ")
        numbers |= {*range(int(low), int(high or low) + 1)}
    return numbers


def days(text: str) -> OnDay:
    text, months = month_limit(text)
    if text == "every day":
        return lambda d: d.month in months
    if found := re.fullmatch(rf"on (\d+) ({MONTH})", text):
        return lambda d: (d.day, MONTHS[d.month - 1]) == (int(found[1]), found[2])
    clauses = [clause(part) for part in text.split(" or on ")]
    return lambda d: d.month in months and any(one(d) for one in clauses)


def month_limit(text: str) -> tuple[str, set[int]]:
    if found := re.search(rf",? from ({MONTH}) through ({MONTH})$", text):
        return text[: found.start()], {*range(MONTHS.index(found[1]) + 1, MONTHS.index(found[2]) + 2)}
    if found := re.search(rf"(,? in| of)((?:(?:,| and)? (?:{MONTH}))+)$", text):
        kept = " of the month" if found[1] == " of" else ""
        return text[: found.start()] + kept, {MONTHS.index(name) + 1 for name in re.findall(MONTH, found[2])}
    return text, {*range(1, 13)}


def clause(text: str) -> OnDay:
    monthday, condition, weekday = text.partition(" if that is ")
    if condition:
        first, second = by_monthday(monthday), by_weekday(weekday)
        return lambda d: first(d) and second(d)
    return by_weekday(text) if re.search(WEEKDAY, text) else by_monthday(text)


def by_monthday(text: str) -> OnDay:
    tests: list[OnDay] = []

    def take(found: re.Match[str]) -> str:
        nearest, _, step, start, end, low, high, one = found.groups()
        if nearest:
            tests.append(lambda d: is_nearest(d, int(nearest)))
            assert (int(nearest) > 28) == ("shorter" in found[0]), found[0]
        elif found[0] == "the last weekday":
            tests.append(lambda d: is_nearest(d, 31))
        elif found[0] == "the last day":
            tests.append(is_last)
        elif step:
            tests.append(lambda d: d.day in range(int(start), int(end) + 1, int(step)))
        else:
            tests.append(lambda d: d.day in range(int(low or one), int(high or one) + 1))
        return ""

    nearest = r"the weekday nearest to day (\d+)( \(or to the last day, in a shorter month\))?"
    step = r"every (\d+)(?:st|nd|rd|th) day from day (\d+) through day (\d+)"
    left = re.sub(rf"{nearest}|the last weekday|the last day|{step}|(\d+) through (\d+)|(\d+)", take, text)
    assert {*re.findall(r"\w+|[^\w ]", left)} <= {"on", "day", "days", "and", ",", "of", "the", "every", "month"}, text
    return lambda d: any(one(d) for one in tests)


def by_weekday(text: str) -> OnDay:
    tests: list[OnDay] = []

    def take(found: re.Match[str]) -> str:
        nth, named, low, high, one = found.groups()
        if nth == "last":
            tests.append(lambda d: (d + timedelta(days=7)).month != d.month and WEEKDAYS[d.isoweekday() % 7] == named)
        elif nth:
            tests.append(lambda d: (d.day + 6) // 7 == ORDINALS[nth] and WEEKDAYS[d.isoweekday() % 7] == named)
        else:
            start, end = WEEKDAYS.index(low or one), WEEKDAYS.index(high or one)
            numbers = {n % 7 for n in range(start, (end if end >= start else end + 7) + 1)}
            tests.append(lambda d: is_weekday(d, numbers))
        return ""

    nth = rf"the (last|{'|'.join(ORDINALS)}) ({WEEKDAY})"
    left = re.sub(rf"{nth}|({WEEKDAY}) through ({WEEKDAY})|({WEEKDAY})", take, text)
    known = {"on", "every", "day", "from", "a", "and", "or", ",", "of", "the", "month"}
    assert {*re.findall(r"\w+|[^\w ]", left)} <= known, text
    return lambda d: any(one(d) for one in tests)
