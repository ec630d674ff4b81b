"""Translate the schedule of a CronJob.

Invariant: the schedule has the slots that the controller has, or there is a remark, or it is refused.

The grammar is that of robfig/cron, version 3, `ParseStandard` (pkg.go.dev/github.com/robfig/cron/v3): five fields, in
which `?` is `*`, `N/n` goes to the end, and Sunday is 0 and not 7; `@daily` and its kin; `@every 1h30m`; `TZ=` before
it. Day of month and day of week are both asked if one of them has a `*` without a step, else either of them: so `*/2`
is no star.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pgsched.core.schedule import grammar, zones
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.grammar import Field
from pgsched.errors import ScheduleError
from pgsched.importers.clock_changes import Rule, as_wildcard, describe_change, first_difference
from pgsched.importers.imported import Reason, Remark
from pgsched.importers.schedules.lengths import every

FIELDS = (grammar.MINUTE, grammar.HOUR, grammar.DAY, grammar.MONTH, grammar.WEEKDAY)
ITEM = re.compile(r"(\*|\?|[a-z0-9]+(?:-[a-z0-9]+)?)(?:/([0-9]{1,9}))?")
DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|µs|ms|s|m|h))+")
DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S = 10_000 * 86_400
LONGEST = 512


class ScheduleRefused(Exception):
    """Kubernetes does not accept the schedule, or no schedule of pgsched means the same."""

    def __init__(self, text: str, reason: Reason = Reason.SYNTAX) -> None:
        super().__init__(text)
        self.remark = Remark(reason, text)


@dataclass(slots=True)
class Translated:
    """A schedule in its zone, with remarks."""

    schedule: str
    timezone: str
    remarks: list[Remark] = field(default_factory=list)


def translate_schedule(text: str, timezone: str, now: datetime) -> Translated:
    """Return the schedule of a CronJob. `timezone`: of spec.timeZone, or of the controller. Raises ScheduleRefused."""
    words = text.split()
    if not words or len(text) > LONGEST:
        raise ScheduleRefused(f"{text!r:.80} is no schedule")
    found = Translated("", timezone)
    name, equals, zone = words[0].partition("=")
    if equals and name in ("TZ", "CRON_TZ"):
        words.pop(0)
        found.timezone = zone
        found.remarks.append(
            Remark(Reason.TIME_ZONE, f"{name}={zone} in the schedule; timeZone is for that", "timezone")
        )
    try:
        zones.zone(found.timezone)
    except ScheduleError as error:
        raise ScheduleRefused(str(error)) from None
    if words and words[0].startswith("@"):
        _translate_descriptor(words, found)
    else:
        _translate_words(words, found)
    try:
        parse(found.schedule, found.timezone)
    except ScheduleError as error:  # 30 February
        raise ScheduleRefused(f"{error}, neither here nor in Kubernetes", Reason.SCHEDULE) from None
    _keep_clock_changes(found, now)
    return found


def _translate_descriptor(words: list[str], found: Translated) -> None:
    name = words[0].lower()
    if name == "@every" and len(words) == 2:
        found.schedule = every(_length(words[1])) or "@every 1s"
        text = "the interval counts from the job's start, not from the CronJob's creation"
        found.remarks.append(Remark(Reason.ANCHOR, text, "schedule"))
    elif name in grammar.MACROS and len(words) == 1:
        found.schedule = name
    else:
        raise ScheduleRefused(f"{' '.join(words)!r:.80} is not known to Kubernetes")


def _length(text: str) -> timedelta:
    """Return a duration of Go; a fraction of a second is dropped, and less than one second is one."""
    if not DURATION.fullmatch(text):
        raise ScheduleRefused(f"{text!r:.60} is no duration such as 1h30m")
    total = sum(float(number) * UNIT_S[unit] for number, unit in DURATION_PART.findall(text))
    if total > LONGEST_S:
        raise ScheduleRefused(f"{text!r:.60} is longer than {LONGEST_S // 86_400} days", Reason.SCHEDULE)
    return timedelta(seconds=max(int(total + 1e-9), 1))


def _translate_words(words: list[str], found: Translated) -> None:
    if len(words) != len(FIELDS):
        raise ScheduleRefused(f"a schedule has five fields, this one {len(words)}")
    fields = [_translate_field(field, word) for field, word in zip(FIELDS, words, strict=True)]
    texts = [text for text, _ in fields]
    if fields[2][1]:
        texts[2] = "*"
    if fields[4][1]:
        texts[4] = "*"
    if not (fields[2][1] or fields[4][1]):  # either of them: so none may begin with `*`
        texts[2] = texts[2].replace("*", "1-31")
        texts[4] = texts[4].replace("*", "0-6")
    found.schedule = " ".join(texts)


def _translate_field(field: Field, word: str) -> tuple[str, bool]:
    """Return a field, and whether it has a star: `*` or `?` without a step."""
    items = [_translate_item(field, item) for item in word.lower().split(",") if item]
    if not items:
        raise ScheduleRefused(f"{field.name}: {word!r:.40} has no value")
    return ",".join(items), "*" in items


def _translate_item(field: Field, item: str) -> str:
    match = ITEM.fullmatch(item)
    if match is None:
        raise ScheduleRefused(f"{field.name}: Kubernetes does not accept {item!r:.40}")
    body, size = match[1], len(field.full())
    step = 1 if match[2] is None else int(match[2])
    if step == 0:
        raise ScheduleRefused(f"{field.name}: Kubernetes does not accept the step 0")
    if body in "*?":
        return "*" if step == 1 else f"*/{min(step, size)}"
    low_text, dash, high_text = body.partition("-")
    low = _number(field, item, low_text)
    if not dash:
        return (
            low_text if match[2] is None else f"{low}-{field.high}/{min(step, size)}" if low < field.high else low_text
        )
    high = _number(field, item, high_text)
    if low > high:
        raise ScheduleRefused(f"{field.name}: the range {item!r:.40} runs backwards")
    if step == 1:
        return body
    return f"{body}/{step}" if step <= high - low else low_text


def _number(field: Field, item: str, text: str) -> int:
    if text in field.names:
        return field.names[text]
    if not text.isdecimal() or len(text) > 4 or not field.low <= int(text) <= field.high:
        raise ScheduleRefused(f"{field.name}: Kubernetes does not accept {item!r:.40}")
    return int(text)


def _keep_clock_changes(found: Translated, now: datetime) -> None:
    """Write a schedule with fixed times so that it does as the controller when clocks change."""
    change = first_difference([found.schedule], found.timezone, Rule.ROBFIG, now)
    if change is None:
        return
    usual = grammar.MACROS.get(found.schedule, found.schedule)
    found.schedule = as_wildcard(usual)
    what = "runs at no time that does not exist" if change.after > change.before else "runs both times"
    text = f"{describe_change(change)}: as in Kubernetes it {what}; {usual} runs once on each day"
    found.remarks.append(Remark(Reason.CLOCK_CHANGE_KEPT, text, "schedule"))
