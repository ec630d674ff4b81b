"""Translate the time of a crontab's line to a schedule.

Invariant: the schedule has the slots that Vixie's cron has, or there is a remark, or the line is refused.

The grammar is that of crontab(5) in Debian, in cronie and in OpenBSD. There are five fields of lists, ranges, steps and
names of three letters. `@daily` and its kin stand for all of them, `~` for a value that cron chooses when it reads the
file. FreeBSD adds `@every_minute`, `@every_second` and `@600`: so many seconds after the end of the last run.

As in pgsched, day of month and day of week are both asked if one of them begins with `*`, else either of them.
"""

from __future__ import annotations

import hashlib
import re

from pgsched.core.schedule import grammar
from pgsched.core.schedule.grammar import Field
from pgsched.importers.imported import Reason, Remark

FIELDS = (grammar.MINUTE, grammar.HOUR, grammar.DAY, grammar.MONTH, grammar.WEEKDAY)
ITEM = re.compile(r"(\*|[a-z0-9]*~[a-z0-9]*|[a-z0-9]+(?:-[a-z0-9]+)?)(?:/([0-9]{1,4}))?")
MACROS = {**{name: name for name in grammar.MACROS}, "@every_minute": "* * * * *", "@every_second": "* * * * * *"}
AFTER = re.compile(r"@([1-9][0-9]{0,8})")


class LineRefused(Exception):
    """cron itself does not accept the line, or no schedule means the same."""

    def __init__(self, text: str, reason: Reason = Reason.SYNTAX) -> None:
        super().__init__(text)
        self.remark = Remark(reason, text)


def translate_macro(word: str) -> str:
    """Return the schedule of `@daily` and its kin. Raises LineRefused, also for @reboot."""
    name = word.lower()
    if name == "@reboot":
        raise LineRefused("runs when cron starts: make it a unit of systemd, or a line of rc.local", Reason.AT_REBOOT)
    if match := AFTER.fullmatch(name):
        return f"@after {match[1]}s"
    if name not in MACROS:
        raise LineRefused(f"{word} is not known to cron")
    return MACROS[name]


def translate_fields(words: list[str], seed: str) -> tuple[str, list[Remark]]:
    """Return the schedule of five fields, and remarks. Raises LineRefused.

    `seed`: what the value that `~` stands for is chosen by, so that the same line gives the same value again.
    """
    remarks: list[Remark] = []
    texts = [
        _translate_field(field, word, f"{seed}\n{number}", remarks)
        for number, (field, word) in enumerate(zip(FIELDS, words, strict=True))
    ]
    return " ".join(texts), remarks


def _translate_field(field: Field, word: str, seed: str, remarks: list[Remark]) -> str:
    return ",".join(_translate_item(field, item, seed, remarks) for item in word.split(","))


def _translate_item(field: Field, item: str, seed: str, remarks: list[Remark]) -> str:
    match = ITEM.fullmatch(item.lower())
    if match is None:
        raise LineRefused(f"{field.name}: cron does not accept {item!r}")
    body, step = match[1], None if match[2] is None else int(match[2])
    if step == 0:
        raise LineRefused(f"{field.name}: cron does not accept the step 0")
    if body == "*":
        # pgsched refuses a step that is larger than the field; here it gives the first value, too
        return item if step is None else f"*/{min(step, len(field.full()))}"
    if "~" in body:
        chosen = _choose(field, item, body, step, seed)
        remarks.append(Remark(Reason.RANDOM_VALUE, f"{chosen} was chosen for {item}", "schedule"))
        return chosen
    low, dash, high = body.partition("-")
    first = _number(field, item, low)
    if not dash:
        if step is not None:
            text = f"pgsched reads {item} as {first}-{field.high}/{step}; cron refuses it, or ignores the step"
            remarks.append(Remark(Reason.SCHEDULE, text, "schedule"))
            return f"{first}/{min(step, len(field.full()))}"
        return low
    last = _number(field, item, high)
    last = 7 if field is grammar.WEEKDAY and last == 0 < first else last
    if first > last:
        raise LineRefused(f"{field.name}: cron finds nothing in the range {item!r}, which runs backwards")
    if step is None:
        return body
    return low if step > last - first else f"{body}/{step}"


def _choose(field: Field, item: str, body: str, step: int | None, seed: str) -> str:
    low_text, _, high_text = body.partition("~")
    low = _number(field, item, low_text) if low_text else field.low
    high = _number(field, item, high_text) if high_text else field.high
    if low > high:
        raise LineRefused(f"{field.name}: cron does not accept the range {item!r}, which runs backwards")
    offset = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8]) % min(step or high - low + 1, high - low + 1)
    first = low + offset
    return str(first) if step is None or first + step > high else f"{first}-{high}/{step}"


def _number(field: Field, item: str, text: str) -> int:
    if text in field.names:
        return field.names[text]
    if not text.isdecimal() or len(text) > 4 or not field.low <= int(text) <= field.top:
        raise LineRefused(f"{field.name}: cron does not accept {item!r}")
    return int(text)
