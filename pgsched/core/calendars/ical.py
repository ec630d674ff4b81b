"""Read the events of an iCalendar file as times of a calendar.

Invariant: a file is hostile until checked. Its size, its events and what they repeat to are bounded. An event that is
not understood gives a remark that names its line, and no time.

What a file means is taken from RFC 5545 (https://www.rfc-editor.org/rfc/rfc5545). Lines are folded (3.1). DTEND is not
part of the event, and an event with a date and no end lasts that day (3.6.1). RRULE repeats it (3.3.10).

Understood are all-day and timed events, and rules with FREQ, INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY, BYDAY and
WKST, with EXDATE. A rule that repeats each week or day becomes one time. All others become one time for each
repetition, up to a horizon. Cancelled events are left out. Free (TRANSP) or busy does not matter: calendars of holidays
say free.

A rule repeats the wall clock of DTSTART in the zone of DTSTART (3.3.10, 3.8.5.3). Each repetition is then converted to
the zone of the calendar.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from pgsched.core.calendars.ical_rules import FIRST, LAST, Budget, NotUnderstood, Repetition, read_rule, repetitions
from pgsched.core.calendars.times import CalendarTime
from pgsched.errors import InputError

MOST_BYTES = 5_000_000
MOST_TIMES = 5000  # as pgsched.calendar_times_most
LONGEST_REASON = 200
DAY = timedelta(days=1)
PROPERTY = re.compile(
    r"([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+=(?:\"[^\"]*\"|[^;:\",]*)(?:,(?:\"[^\"]*\"|[^;:\",]*))*)*):(.*)", re.DOTALL
)
PARAMETER = re.compile(r";([A-Za-z0-9-]+)=(\"[^\"]*\"|[^;:\"]*)")
DATE = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
MOMENT = re.compile(r"(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})(Z?)", re.ASCII)
DURATION = re.compile(r"P(?:(\d{1,4})W|(?:(\d{1,5})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,6})M)?(?:(\d{1,7})S)?)?)", re.ASCII)
UNREAD = ("RDATE", "EXRULE", "RECURRENCE-ID")
OUTSIDE = "it lies outside the years 1970 to 8999"
NEEDS_ZONE = "give the time zone of the calendar (--timezone)"


@dataclass(frozen=True, slots=True)
class ReadCalendar:
    """What a file has: `times`, and remarks on events that are not understood, each with its line."""

    times: list[CalendarTime]
    remarks: list[str]


@dataclass(slots=True)
class Event:
    """A VEVENT. `line`: where it begins. `properties`: by name, each as (parameters, value), the first of each name."""

    line: int
    properties: dict[str, tuple[dict[str, str], str]] = field(default_factory=dict)
    excluded: list[tuple[dict[str, str], str]] = field(default_factory=list)

    def text(self, name: str) -> str | None:
        """Return the value of a property; None without it."""
        return self.properties[name][1] if name in self.properties else None


def read_ical(text: str, today: date, years: int = 10, zone: ZoneInfo | None = None) -> ReadCalendar:
    """Return the times of the events in a file. Raises InputError where it is no iCalendar file.

    `today`: repetitions begin at most a year before it, and end `years` after it
    `zone`: the zone in which the calendar is meant: wall clocks of other zones are converted to it. None: they are
    taken as they stand, and instants in UTC are not understood
    """
    if len(text) > MOST_BYTES:
        raise InputError(f"file: more than {MOST_BYTES:,} characters", "file")
    times: dict[CalendarTime, None] = {}
    remarks: list[str] = []
    span, budget = (add_years(today, -1), add_years(today, years)), Budget()
    for event in events(text):
        if (event.text("STATUS") or "").upper() == "CANCELLED":
            continue
        try:
            times |= dict.fromkeys(times_of_event(event, span, zone, budget))
        except NotUnderstood as problem:
            remarks.append(f"line {event.line}: {problem}")
        except OverflowError:  # beyond the years that Python knows
            remarks.append(f"line {event.line}: {OUTSIDE}")
        if budget.periods < 0:
            raise InputError(f"file: line {event.line}: the rules of this file repeat too often", "file")
        if len(times) > MOST_TIMES:
            raise InputError(f"file: more than {MOST_TIMES} times", "file")
    return ReadCalendar(list(times), remarks)


def events(text: str) -> Iterator[Event]:
    """Yield the events of a file. Raises InputError where it is no iCalendar file, or ends within an event."""
    lines = unfold(text)
    number, first = next(lines, (1, ""))
    if first.strip().upper() != "BEGIN:VCALENDAR":
        raise InputError(f"file: line {number}: expected BEGIN:VCALENDAR", "file")
    for number, line in lines:
        if line.strip().upper() == "BEGIN:VEVENT":
            yield read_event(number, lines)


def read_event(number: int, lines: Iterator[tuple[int, str]]) -> Event:
    """Return the event that begins before these lines, and read to its end. Raises InputError where it has none."""
    event, inner = Event(number), 0  # components within the event, such as VALARM
    for _, line in lines:
        name, parameters, value = read_property(line)
        if name == "END" and not inner:
            return event
        inner += (name == "BEGIN") - (name == "END")
        if not inner and name == "EXDATE":
            event.excluded.append((parameters, value))
        elif not inner and name:
            event.properties.setdefault(name, (parameters, value))
    raise InputError(f"file: the event of line {number} has no end", "file")


def unfold(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; a line that begins with a space or a tab continues the one before it."""
    number, pending = 0, ""
    begun = 1
    for number, line in enumerate(text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if line[:1] in (" ", "\t") and pending:
            pending += line[1:]
            continue
        if pending.strip():
            yield begun, pending
        begun, pending = number, line
    if pending.strip():
        yield begun, pending


def read_property(line: str) -> tuple[str, dict[str, str], str]:
    """Return the name, the parameters and the value of a line; a line that has none is a property without a name."""
    found = PROPERTY.fullmatch(line)
    if found is None:
        return "", {}, line
    parameters = {name.upper(): value.strip('"') for name, value in PARAMETER.findall(found[2])}
    return found[1].upper(), parameters, found[3].strip()


def times_of_event(
    event: Event, span: tuple[date, date], zone: ZoneInfo | None, budget: Budget
) -> Iterator[CalendarTime]:
    """Yield the times of one event. Raises NotUnderstood, and OverflowError for years that Python does not know."""
    for name in UNREAD:
        if name in event.properties:
            raise NotUnderstood(f"{name} is not understood")
    if "DTSTART" not in event.properties:
        raise NotUnderstood("it has no DTSTART")
    own = zone_of_event(*event.properties["DTSTART"], zone)
    begins = read_moment(*event.properties["DTSTART"], own)
    ends = read_end(event, begins, own)
    reason = read_reason(event.text("SUMMARY"))
    convert = zone is not None and str(own) != str(zone) and isinstance(begins, datetime)
    if (text := event.text("RRULE")) is None:
        yield from times_between(*(converted(begins, ends, own, zone) if convert else (begins, ends)), reason)
        return
    rule = read_rule(text, lambda value: last_day(value, begins, own))
    excluded = {day_of(read_moment(parameters, one, own))
                for parameters, value in event.excluded for one in value.split(",")}  # fmt: skip
    if not (convert or excluded) and (found := times_of_simple_rule(rule, begins, ends, reason, span[0])) is not None:
        yield from found
        return
    first = day_of(begins)
    for day in repetitions(rule, first, span, budget):
        if day not in excluded:
            moved = begins + (day - first), ends + (day - first)
            yield from times_between(*(converted(*moved, own, zone) if convert else moved), reason)


def zone_of_event(parameters: Mapping[str, str], value: str, zone: ZoneInfo | None) -> tzinfo | None:
    """Return the zone of DTSTART, in which its rule repeats; None: it stands for the wall clock of each reader.

    `zone`: that of the calendar. Raises NotUnderstood for an unknown one; without `zone`, that is None.
    """
    if value.endswith("Z"):
        if zone is None:
            raise NotUnderstood(f"its times are in UTC: {NEEDS_ZONE}")
        return UTC
    name = parameters.get("TZID")
    if zone is not None:
        return zone if name is None else zone_named(name)
    try:
        return None if name is None else zone_named(name)
    except NotUnderstood:
        return None


def converted(begins: date, ends: date, own: tzinfo | None, zone: ZoneInfo | None) -> tuple[datetime, datetime]:
    """Return wall clocks of one zone as those of another.

    Where clocks are set back in between, so that the end would not lie after the beginning, the length is kept.
    """
    assert isinstance(begins, datetime) and isinstance(ends, datetime)
    first, last = (one.replace(tzinfo=own).astimezone(zone) for one in (begins, ends))
    length = last.astimezone(UTC) - first.astimezone(UTC)
    begin, end = (one.replace(tzinfo=None, fold=0) for one in (first, last))
    return begin, end if end > begin else begin + max(length, ends - begins)


def last_day(value: str, begins: date, own: tzinfo | None) -> date | None:
    """Return the last day on which a repetition may begin, from the value of UNTIL; None for one beyond all calendars.

    `begins`: DTSTART, in the zone `own`. Raises NotUnderstood.
    """
    is_moment = DATE.fullmatch(value) or MOMENT.fullmatch(value)
    if is_moment and value[:4] > str(LAST.year):  # 99991231T235959Z, as some programs write "for ever"
        return None
    if value.endswith("Z") and own is None:
        raise NotUnderstood(f"its UNTIL is in UTC: {NEEDS_ZONE}")
    until = read_moment({}, value, own)
    is_day_before = isinstance(until, datetime) and isinstance(begins, datetime) and until.time() < begins.time()
    return day_of(until) - DAY if is_day_before else day_of(until)


def read_moment(parameters: Mapping[str, str], value: str, zone: tzinfo | None) -> date:
    """Return a DATE as a date, and a DATE-TIME as a naive wall clock of a zone. Raises NotUnderstood.

    `zone`: None: as it stands.
    """
    try:
        if found := DATE.fullmatch(value):
            return date(*map(int, found.groups()))
        if not (found := MOMENT.fullmatch(value)):
            raise NotUnderstood(f'"{value[:50]}" is neither a date nor a time')
        *numbers, utc = found.groups()
        wall = datetime(*map(int, numbers))  # type: ignore[arg-type]
    except ValueError:
        raise NotUnderstood(f'"{value[:50]}" is not in the calendar') from None
    if utc and zone is None:
        raise NotUnderstood(f"its times are in UTC: {NEEDS_ZONE}")
    if zone is None or not (utc or "TZID" in parameters):
        return wall
    written = UTC if utc else zone_named(parameters["TZID"])
    return wall.replace(tzinfo=written).astimezone(zone).replace(tzinfo=None, fold=0)


def zone_named(name: str) -> ZoneInfo:
    """Return the zone of a TZID. Raises NotUnderstood."""
    from pgsched.core.schedule import zones
    from pgsched.errors import ScheduleError

    try:
        return zones.zone(name)
    except ScheduleError:
        raise NotUnderstood(f'TZID "{name[:64]}" is not a known IANA zone') from None


def read_end(event: Event, begins: date, own: tzinfo | None) -> date:
    """Return the end of an event, which is not part of it. Raises NotUnderstood."""
    timed = isinstance(begins, datetime)
    if "DTEND" in event.properties:
        ends = read_moment(*event.properties["DTEND"], own)
    elif (length := event.text("DURATION")) is not None:
        found = DURATION.fullmatch(length)
        if found is None or not any(found.groups()):
            raise NotUnderstood(f'DURATION "{length[:50]}" is not understood')
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        ends = begins + timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    else:
        ends = begins if timed else begins + DAY
    if isinstance(ends, datetime) != timed:
        raise NotUnderstood("DTSTART and DTEND are not both dates, or both times")
    if ends <= begins:
        raise NotUnderstood("it ends when it begins, or before")
    return ends


def read_reason(summary: str | None) -> str | None:
    """Return the summary of an event as a reason: one line of at most LONGEST_REASON characters."""
    text = re.sub(r"\\([nN,;\\])", lambda found: " " if found[1] in "nN" else found[1], summary or "")
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line[:LONGEST_REASON].strip() or None


def times_between(begins: date, ends: date, reason: str | None) -> Iterator[CalendarTime]:
    """Yield the times from a date or wall clock to another, which is not part of them."""
    if not FIRST <= day_of(begins) <= LAST or not FIRST <= day_of(ends) <= LAST:
        raise NotUnderstood(OUTSIDE)
    if not isinstance(begins, datetime) or not isinstance(ends, datetime):
        yield CalendarTime(begins, ends - DAY, reason=reason)
        return
    first, last = begins.date(), ends.date()
    if first == last:
        yield CalendarTime(first, first, None, begins.time().isoformat(), ends.time().isoformat(), reason)
        return
    if begins.time() != time():
        yield CalendarTime(first, first, None, begins.time().isoformat(), "24:00:00", reason)
        first += DAY
    if first < last:
        yield CalendarTime(first, last - DAY, reason=reason)
    if ends.time() != time():
        yield CalendarTime(last, last, None, "00:00:00", ends.time().isoformat(), reason)


def times_of_simple_rule(
    rule: Repetition, begins: date, ends: date, reason: str | None, since: date
) -> list[CalendarTime] | None:
    """Return the one time of a rule that repeats each week or day; None for any other rule.

    Where DTSTART is no day of the rule, it is a time of its own. A rule that ended before `since` has none.
    """
    simple = rule.freq in ("WEEKLY", "DAILY") and rule.interval == 1 and rule.count is None and not rule.months
    simple = simple and day_of(begins) >= FIRST
    found = list(times_between(begins, ends, reason)) if simple else []
    if len(found) != 1 or found[0].from_date != found[0].until_date:
        return None
    first, last = day_of(begins), min(rule.until or LAST, LAST)
    if last < max(first, since):
        return []
    weekdays = tuple(sorted({weekday for _, weekday in rule.by_day}))
    if rule.freq == "WEEKLY" and not weekdays:
        weekdays = (first.isoweekday() % 7,)
    time = CalendarTime(first, last, weekdays or None, found[0].from_time, found[0].until_time, reason)
    return [time] if not weekdays or first.isoweekday() % 7 in weekdays else [*found, time]


def day_of(moment: date) -> date:
    """Return the date of a date or wall clock."""
    return moment.date() if isinstance(moment, datetime) else moment


def add_years(day: date, years: int) -> date:
    """Return the same day some years later; 28 February for 29 February where there is none."""
    year = min(max(day.year + years, FIRST.year), LAST.year)
    return day.replace(year=year, day=min(day.day, monthrange(year, day.month)[1]))
