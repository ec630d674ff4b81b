"""Describe a schedule as an English sentence.

Invariant: the sentence says exactly what the schedule says, with more words where needed.

The sentence is made from the canonical form, so two spellings of one schedule read the same. Times are wall clocks of
the zone. The preview, not the sentence, shows what happens to each slot when clocks change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from pgsched.core.schedule import grammar
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.core.units import DAY, HOUR, MINUTE, format_duration

FEW, SOME = 4, 6
MONTHS = ["January", "February", "March", "April", "May", "June",
          "July", "August", "September", "October", "November", "December"]  # fmt: skip
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
ORDINALS = ("first", "second", "third", "fourth", "fifth")
# Zones differ from UTC by whole quarters of an hour, so these mean the same instants in every zone.
SAME_EVERYWHERE = ("Every 3 minutes", "Every 5 minutes", "Every 15 minutes")
# Values of the day-of-month field, grouped by the weekdays that each is combined with.
Days = dict[tuple[str, ...], list[str]]


def describe(schedule: Schedule | str, timezone: str | None = None) -> str:
    """Describe a schedule in plain English, with its zone where one is known and matters."""
    if isinstance(schedule, str):
        schedule = parse(schedule, timezone or "UTC")
    else:
        timezone = timezone or schedule.timezone
    read = grammar.parse_expression(schedule.expression)
    if isinstance(read, grammar.Interval):
        return _interval(read)
    crons = [cron for _, cron in read.parts] if isinstance(read, grammar.Several) else [read]
    first, *others = map(_sentence, crons)
    sentence = "; ".join([first, *(other[:1].lower() + other[1:] for other in others)])
    if timezone is None or all(map(_same_in_all_zones, crons)):
        return sentence
    return f"{sentence}{',' if not others else '; all in'} {timezone}{'' if timezone == 'UTC' else ' time'}"


def _sentence(cron: grammar.Cron) -> str:
    """Describe one expression, without its zone."""
    clock, whole_day = _clock(cron)
    days = _days(cron)
    if days == "every day" and whole_day:
        return clock
    comma = days.startswith("every") and not (clock.startswith("At") and " of " not in clock)
    return f"{clock}{',' if comma else ''} {days}"


def _same_in_all_zones(cron: grammar.Cron) -> bool:
    """Check whether the expression means the same instants in every zone."""
    clock, whole_day = _clock(cron)
    return whole_day and _days(cron) == "every day" and (clock in SAME_EVERYWHERE or len(cron.minutes) == 60)


def _interval(interval: grammar.Interval) -> str:
    length = format_duration(interval.length)
    if interval.repeats:
        single = length if length.count(" ") > 1 else length.removeprefix("1 ")
        return f"Every {single}, counted from the job's start"
    return f"{length} after the last run ended"


def _clock(cron: grammar.Cron) -> tuple[str, bool]:
    """Return the times of a day as words, and whether they cover the whole day."""
    hours, minutes, seconds = sorted(cron.hours), sorted(cron.minutes), sorted(cron.seconds)
    times = [h * HOUR + m * MINUTE + s for h in hours for m in minutes for s in seconds]
    step = _step(times)
    if len(times) > FEW and step:
        if step * len(times) == DAY and step <= HOUR:
            return _round_the_clock(step, times[0]), True
        return f"Every {_every(step)} from {_time(times, 0)} through {_time(times, -1)}", False
    if len(times) <= SOME:
        return f"At {_listing([_time(times, n) for n in range(len(times))])}", False
    return _nested(cron), len(hours) == 24


def _step(numbers: Sequence[int]) -> int | None:
    """Return the distance between neighbours if it is always the same; None if not."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    return step if all(b - a == step for a, b in pairwise(numbers)) else None


def _round_the_clock(step: int, start: int) -> str:
    """Describe times that cover the whole day in equal steps."""
    minute, second = divmod(start, MINUTE)
    every = f"Every {_every(step)}"
    if step < MINUTE:
        return f"{every} from second {second} of every minute" if second else every
    if step == MINUTE:
        return f"{every} at second {second}" if second else every
    at_second = f" and second {second}" if second else ""
    if step == HOUR:
        return f"{every} at minute {minute}{at_second}"
    if not start:
        return every
    return f"{every} from minute {minute}{at_second} of every hour"


def _every(step: int) -> str:
    size, unit = next(
        (size, unit) for size, unit in ((HOUR, "hour"), (MINUTE, "minute"), (1, "second")) if step % size == 0
    )
    return unit if step == size else f"{step // size} {unit}s"


def _time(times: Sequence[int], at: int) -> str:
    time = times[at]
    text = f"{time // HOUR:02}:{time // MINUTE % 60:02}"
    return f"{text}:{time % 60:02}" if any(one % 60 for one in times) else text


def _nested(cron: grammar.Cron) -> str:
    """Describe times without one common step: the seconds of some minutes of some hours."""
    hours = _inner(cron.hours, grammar.HOUR, "{:02}")
    if cron.seconds == {0}:
        return f"{_outer(cron.minutes, grammar.MINUTE)} of {hours}"
    minutes = _inner(cron.minutes, grammar.MINUTE, "{}")
    within = minutes if (minutes, hours) == ("every minute", "every hour") else f"{minutes} of {hours}"
    return f"{_outer(cron.seconds, grammar.SECOND)} of {within}"


def _outer(numbers: Iterable[int], field: grammar.Field) -> str:
    found, unit = sorted(numbers), field.name
    step = _step(found)
    if len(found) == len(field.full()):
        return f"Every {unit}"
    if step and len(found) > (2 if step == 1 else 3):
        return f"Every {unit if step == 1 else f'{step} {unit}s'} from {unit} {found[0]} through {unit} {found[-1]}"
    return f"At {_numbered(unit, found, str)}"


def _inner(numbers: Iterable[int], field: grammar.Field, form: str) -> str:
    found, unit = sorted(numbers), field.name
    step = _step(found)
    if len(found) == len(field.full()):
        return f"every {unit}"
    if step and len(found) > (2 if step == 1 else 3):
        every = unit if step == 1 else f"{_nth(step)} {unit}"
        return f"every {every} from {form.format(found[0])} through {form.format(found[-1])}"
    return _numbered(unit, found, form.format)


def _numbered(unit: str, numbers: Sequence[int], text: Callable[[int], str]) -> str:
    return f"{unit}{'' if len(numbers) == 1 else 's'} {_runs(numbers, text)}"


def _runs(numbers: Sequence[int], text: Callable[[int], str]) -> str:
    """List numbers; three or more in a row become `a through b`."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    items: list[str] = []
    for group in groups:
        items += [f"{text(group[0])} through {text(group[-1])}"] if len(group) > 2 else map(text, group)
    return _listing(items)


def _listing(items: Sequence[str], word: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def _nth(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _days(cron: grammar.Cron) -> str:
    """Describe the days; `every day` when there is no limit."""
    months = [] if cron.months == "*" else [int(month) for month in cron.months.split(",")]
    inside = _months(months)
    if ("*", "*") in cron.days:
        return f"every day{inside}"
    monthdays = [day for day, weekday in cron.days if weekday == "*"]
    weekdays = [weekday for day, weekday in cron.days if day == "*"]
    both: Days = {}
    for day in dict.fromkeys(day for day, weekday in cron.days if "*" not in (day, weekday)):
        others = tuple(weekday for one, weekday in cron.days if one == day)
        both.setdefault(others, []).append(day)
    if not monthdays and not both:
        return _on_weekdays(_join(weekdays), months)
    clauses = [_on_monthdays(monthdays, months if not weekdays else None)] if monthdays else []
    clauses += [f"on {_weekday_list(_join(weekdays), 'the month')}"] if weekdays else []
    clauses += [
        f"{_on_monthdays(days, None)} if that is {_weekday_list(_join(others), 'the month', 'or', 'a ')}"
        for others, days in both.items()
    ]
    within = inside if weekdays or both else ""
    return " or ".join(clauses) + (f",{within}" if within else "")


def _join(texts: Iterable[str]) -> list[str]:
    return ",".join(texts).split(",")


def _months(months: Sequence[int]) -> str:
    if not months:
        return ""
    if len(months) > 2 and _step(months) == 1:
        return f" from {MONTHS[months[0] - 1]} through {MONTHS[months[-1] - 1]}"
    return f" in {_listing([MONTHS[month - 1] for month in months])}"


def _of(months: Sequence[int], word: str) -> str:
    inside = _months(months)
    if not months:
        return word
    return f"every month{inside}" if inside.startswith(" from") else inside.removeprefix(" in ")


def _on_monthdays(texts: list[str], months: Sequence[int] | None) -> str:
    items = _join(texts)
    plain = sorted(int(item) for item in items if item.isdigit())
    if len(items) == len(plain) == 1 and months is not None and len(months) == 1:
        return f"on {plain[0]} {MONTHS[months[0] - 1]}"
    step = _step(plain)
    nouns = []
    if step and step > 1 and len(plain) > 3:
        nouns = [f"every {_nth(step)} day from day {plain[0]} through day {plain[-1]}"]
    elif plain:
        nouns = [_numbered("day", plain, str)]
    nouns += [_special_day(item) for item in items if not item.isdigit()]
    return f"on {_listing(nouns)} of {_of(months or [], 'the month')}"


def _special_day(item: str) -> str:
    if item == "l":
        return "the last day"
    number = int(item[:-1])
    if number == 31:
        return "the last weekday"
    return f"the weekday nearest to day {number}" + (" (or to the last day, in a shorter month)" if number > 28 else "")


def _on_weekdays(items: list[str], months: Sequence[int]) -> str:
    """Describe days of the week without days of the month, in some months or all."""
    plain = [item for item in items if item.isdigit()]
    if not plain:
        return f"on {_weekday_list(items, _of(months, 'every month'))}"
    if len(plain) < len(items):
        inside = _months(months)
        return f"on {_weekday_list(items, 'the month')}" + (f",{inside}" if inside else "")
    named = _weekday_names(plain, "and")
    if " through " in named:
        return f"every day from {named}{',' if months else ''}{_months(months)}"
    return f"every {named}{_months(months)}"


def _weekday_list(items: list[str], month: str, word: str = "and", article: str = "") -> str:
    plain = [item for item in items if item.isdigit()]
    special = [_special_weekday(item) for item in items if not item.isdigit()]
    named = _weekday_names(plain, word) if plain else ""
    nouns = [f"{'a day from ' if ' through ' in named else article}{named}"] if named else []
    if special:
        nouns.append(f"{_listing(special, word)} of {month}")
    return f" {word} ".join(nouns)


def _special_weekday(item: str) -> str:
    if item.startswith("l"):
        return f"the last {WEEKDAYS[int(item[1:])]}"
    weekday, _, number = item.partition("#")
    return f"the {ORDINALS[int(number) - 1]} {WEEKDAYS[int(weekday)]}"


def _weekday_names(items: Sequence[str], word: str) -> str:
    """List weekdays: `Monday`, `Monday and Friday`, `Friday through Sunday`.

    A list of consecutive days begins with the first day of that sequence, also across the end of the week.
    """
    days = {int(item) for item in items}
    firsts = [day for day in days if (day - 1) % 7 not in days]
    if len(days) > 2 and len(firsts) == 1:
        return f"{WEEKDAYS[firsts[0]]} through {WEEKDAYS[(firsts[0] + len(days) - 1) % 7]}"
    return _listing([WEEKDAYS[day] for day in sorted(days, key=lambda day: (day - 1) % 7)], word)
