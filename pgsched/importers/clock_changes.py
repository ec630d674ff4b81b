"""Compare what schedules of pgsched and of a source do in the hours that a clock change skips or repeats.

Invariant: without a remark, a source has the same slots when clocks change as the expressions that stand for it.

The rules of the sources:

- VIXIE, cron(8) of Debian: that of pgsched. A job with a fixed time runs after the gap, and in the first of two
  equal hours; one that begins with `*` in minute or hour follows the clock. But several times in one gap start it
  several times after it, where pgsched has one slot an instant.
- SYSTEMD, systemd.time(7) and `systemd-analyze calendar`: what does not exist is left out; of two equal times the first
  counts, for every timer.
- ROBFIG, pkg.go.dev/github.com/robfig/cron/v3, which Kubernetes uses: each instant whose wall clock matches. What does
  not exist is left out, and what comes twice runs twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from itertools import islice

from pgsched.core.schedule import grammar, zones
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.zones import Change

SECOND = timedelta(seconds=1)
AHEAD = timedelta(days=800)
MOST_WALLS = 20_000
FULL = {"second": "0-59", "minute": "0-59", "hour": "0-23"}


class Rule(Enum):
    """What a source does when clocks change."""

    VIXIE = "vixie"
    SYSTEMD = "systemd"
    ROBFIG = "robfig"


def first_difference(expressions: Sequence[str], timezone: str, rule: Rule, now: datetime) -> Change | None:
    """Return the next clock change with other slots in the source; None if there is none within two years.

    `expressions`: cron expressions, whose union is meant. Expressions of intervals never differ.
    """
    crons = [one for one in expressions if not one.startswith(("@every", "@after"))]
    fixed = [one for one in crons if not _is_wildcard(one)]
    wildcards = [one for one in crons if _is_wildcard(one)]
    for change in _changes_ahead(timezone, now.date().isoformat()):
        if change.after > change.before:
            differs = _gap_differs(fixed, crons, change, rule)
        else:
            differs = _repeat_differs(fixed, wildcards, change, rule)
        if differs:
            return change
    return None


def _gap_differs(fixed: Sequence[str], crons: Sequence[str], change: Change, rule: Rule) -> bool:
    skipped = [wall for one in fixed for wall in _walls(one, change.before, change.after)]
    at_the_end = any(_walls(one, change.after, change.after + SECOND) for one in crons)
    if rule is Rule.VIXIE:
        return len(skipped) + at_the_end > 1 and bool(skipped)
    return bool(skipped) and not at_the_end


def _repeat_differs(fixed: Sequence[str], wildcards: Sequence[str], change: Change, rule: Rule) -> bool:
    if rule is Rule.VIXIE:
        return False
    ones = wildcards if rule is Rule.SYSTEMD else fixed
    return any(_walls(one, change.after, change.before) for one in ones)


def describe_change(change: Change) -> str:
    """Describe what a change does: `on 2027-03-28 the time from 02:00 to 03:00 does not exist`."""
    low, high = sorted((change.before, change.after))
    what = "does not exist" if change.after > change.before else "comes twice"
    return f"on {low:%Y-%m-%d} the time from {low:%H:%M} to {high:%H:%M} {what}"


def as_fixed(expression: str) -> str:
    """Return an expression with the same times in which no second, minute or hour begins with `*`."""
    words = expression.split()
    names = ("second", "minute", "hour") if len(words) == 6 else ("minute", "hour")
    changed = [
        FULL[name] + word[1:] if word.startswith("*") else word for name, word in zip(names, words, strict=False)
    ]
    return " ".join([*changed, *words[len(names) :]])


def as_wildcard(expression: str) -> str:
    """Return an expression with the same times that runs at each instant whose wall clock matches: `*/60` is second 0.

    Only for expressions of five fields.
    """
    return expression if _is_wildcard(expression) else f"*/60 {expression}"


def _is_wildcard(expression: str) -> bool:
    read = grammar.parse_expression(expression)
    return isinstance(read, grammar.Cron) and read.wildcard


def _walls(expression: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the naive wall clocks in [start, end) that an expression names."""
    first, last = ((wall - SECOND).replace(tzinfo=UTC) for wall in (start, end))
    return [slot.replace(tzinfo=None) for slot in islice(parse(expression).between(first, last), MOST_WALLS)]


@lru_cache(maxsize=64)
def _changes_ahead(timezone: str, today: str) -> tuple[Change, ...]:
    start = datetime.fromisoformat(today).replace(tzinfo=UTC) - timedelta(days=1)
    return tuple(zones.changes(zones.zone(timezone), start, start + AHEAD))
