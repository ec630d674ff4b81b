"""Decide the slots of a backfill: which slots of a range in the past run, run again or stay as they are.

Invariant: every slot of the range gets one decision with its reason. Unfinished runs are never started twice, and
excluded dates stay excluded.

A slot is `missing` when no run of its own ever started, and `failed` when one started and did not succeed. No slot is
both. Mode `unsuccessful` takes the slots of both kinds, and `all` also those that succeeded. Only a slot's own row
counts. The row of a stretch that contains the slot only says why the slot has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.input_values import parse_bounded_instant
from pgsched.core.lifecycle import OPEN_STATES
from pgsched.core.schedule.calendar import OPEN, Calendar
from pgsched.core.schedule.cron import Schedule
from pgsched.core.schedule.time_words import gap_at
from pgsched.errors import InputError

MODES = ("missing", "failed", "unsuccessful", "all")
MOST_SLOTS = 100_000
INSTANT = timedelta(microseconds=1)
PIECE = timedelta(days=100)  # how much of a range a schedule counts at once
COUNTED_AT_ONCE = 500
Row = Mapping[str, Any]
FIRST_WINDOW, LONGEST_WINDOW = timedelta(hours=1), timedelta(days=400)
FULL_WINDOW = 4000  # slots; one for each second of an hour is 3600
Late = Callable[[], bool]


def never_late() -> bool:
    """Return False: a `Late` for callers without a time limit."""
    return False


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision for one slot.

    `action`: `run` (a new row), `again` (a further attempt of run `run_id`) or `leave`.
    """

    slot: datetime
    action: str
    reason: str
    run_id: int | None = None


def parse_local_instant(field: str, text: str, tz: ZoneInfo) -> datetime:
    """Parse a time of core/schedule/time_words.py, the last such one; without an offset it is a wall clock of the zone.

    A wall clock inside a gap stands for the end of the gap. Raises InputError.
    """
    return parse_bounded_instant(field, text, tz)


def describe_gap(text: str, tz: ZoneInfo) -> str | None:
    """Describe the gap if ISO text is a wall clock that does not exist; None for any other."""
    try:
        wall = datetime.fromisoformat(text)
    except ValueError:  # words, not ISO text
        return None
    if (gap := gap_at(wall, tz)) is None:
        return None
    form = "%H:%M" if gap.before.date() == gap.after.date() else "%Y-%m-%d %H:%M"
    moved = f"clocks go from {gap.before:{form}} to {gap.after:{form}}"
    return f"{wall:%Y-%m-%d %H:%M:%S} does not exist in {tz.key}: {moved}"


def count(schedule: Schedule, start: datetime, end: datetime) -> int:
    """Return how many slots lie in [start, end). Raises InputError beyond MOST_SLOTS."""
    return count_on(schedule, start, end)[0]


def count_on(
    schedule: Schedule, start: datetime, end: datetime, found: int = 0, late: Late = never_late
) -> tuple[int, datetime]:
    """Return `found` plus the slots in [start, end), and up to where they are counted.

    That is the end, or the place at which `late()` became true. Raises InputError beyond MOST_SLOTS.
    """
    while start < end:
        stop = min(start + PIECE, end)
        piece = schedule.count(start - INSTANT, stop - INSTANT)
        if piece is None:
            piece, stop = count_one_by_one(schedule, start, stop, MOST_SLOTS + 1 - found, late)
        found += piece
        if found > MOST_SLOTS:
            raise InputError(f"the range has more than {MOST_SLOTS:,} slots: ask for a shorter one")
        start = stop
        if late():
            break
    return found, start


def count_one_by_one(schedule: Schedule, start: datetime, end: datetime, most: int, late: Late) -> tuple[int, datetime]:
    """Return how many slots lie in [start, end), and up to where they are counted, in the manner of `count_on`.

    Stops once there are `most` of them.
    """
    found = 0
    for slot in schedule.between(start - INSTANT, end - INSTANT):
        found += 1
        if found >= most or (found % COUNTED_AT_ONCE == 0 and late()):
            return found, slot + INSTANT
    return found, end


def slots(
    schedule: Schedule, start: datetime, end: datetime, *, reverse: bool = False, cursor: datetime | None = None
) -> Iterator[datetime]:
    """Yield the slots of [start, end) after the cursor, oldest first or (`reverse`) newest first."""
    for found, _ in windows(schedule, start, end, reverse=reverse, cursor=cursor):
        yield from found


def windows(
    schedule: Schedule, start: datetime, end: datetime, *, reverse: bool = False, cursor: datetime | None = None
) -> Iterator[tuple[list[datetime], datetime]]:
    """Yield the slots of [start, end) in windows, each with the cursor after it.

    Windows grow where slots are rare, and shrink where they are frequent. So no window holds many slots or takes long.
    """
    low, high, width = start - INSTANT, end - INSTANT, FIRST_WINDOW
    if cursor is not None and reverse:
        high = min(high, cursor - INSTANT)
    elif cursor is not None:
        low = cursor
    while low < high:
        if reverse:
            begin = max(low, high - width)
            found = [*schedule.between(begin, high)][::-1]
            yield found, begin + INSTANT
            high = begin
        else:
            until = min(high, low + width)
            found = [*schedule.between(low, until)]
            yield found, until
            low = until
        if len(found) < FULL_WINDOW / 4:
            width = min(2 * width, LONGEST_WINDOW)
        elif len(found) > FULL_WINDOW:
            width /= 2


def choices(
    mode: str, asked: Sequence[datetime], rows: Iterable[Mapping[str, Any]], calendar: Calendar = OPEN
) -> list[Choice]:
    """Return the decision for each slot, in the order of `asked`, from the rows of `backfill_rows`."""
    found = list(rows)
    own = {row["scheduled_at"]: row for row in found}
    # The narrowest stretch first: an excluded date may lie within a longer stretch.
    wide = sorted((row for row in found if row["covers_from"] is not None),
                  key=lambda row: row["covers_until"] - row["covers_from"])  # fmt: skip

    def stretch(slot: datetime) -> Row | None:
        return next((row for row in wide if row["covers_from"] <= slot <= row["covers_until"]), None)

    return [choose(mode, slot, own.get(slot), stretch(slot), calendar.excluded(slot)) for slot in asked]


def choose(mode: str, slot: datetime, own: Row | None, stretch: Row | None, excluded: str | None = None) -> Choice:
    """Return the decision for one slot, from its own row and the narrowest stretch that contains it."""
    if own is not None and own["state"] in OPEN_STATES:
        return Choice(slot, "leave", f"run {own['id']} is {own['state']}", own["id"])
    if excluded is not None:
        return Choice(slot, "leave", excluded)
    if own is not None:
        kind = mode_of_run(own)
        wanted = mode in ("all", kind) or (mode == "unsuccessful" and kind != "succeeded")
        return Choice(slot, "again" if wanted else "leave", f"run {own['id']} {describe_state(own)}", own["id"])
    reason = "it has no run"
    if stretch is not None:
        reason += (
            f" of its own: it lies in the stretch of run {stretch['id']}, which {describe_state_of_stretch(stretch)}"
        )
    return Choice(slot, "leave" if mode == "failed" else "run", reason)


def mode_of_run(own: Row) -> str:
    """Return what an ended run is: `missing`, `failed` or `succeeded`."""
    if own["state"] == "succeeded":
        return "succeeded"
    return "failed" if own["state"] == "dead" or own["started_at"] is not None else "missing"


def describe_state(run: Row) -> str:
    """Describe a run's state as the end of a sentence."""
    state = run["state"]
    if state == "cancelled":
        return f"was cancelled {'before it' if run['started_at'] is None else 'after it had'} started"
    return state if state == "succeeded" else f"is {state}" if state in OPEN_STATES else f"ended {state}"


def describe_state_of_stretch(run: Row) -> str:
    """Describe the state of a row's whole stretch.

    After a revival for one slot, the row's state no longer applies to the others; `covers_state` does.
    """
    state = run["covers_state"]
    if state is None:
        return describe_state(run)
    # For a cancelled run, whether it had started before is not stored.
    then = "was cancelled" if state == "cancelled" else describe_state({"state": state})
    return f"{then}; later it was revived, for slot {run['scheduled_at'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC alone"


@dataclass(frozen=True, slots=True)
class Batch:
    """The next slots of a backfill.

    `cursor`: the position after all slots that were looked at; `over`: the end of the range was reached.
    """

    slots: list[datetime]
    cursor: datetime | None
    over: bool


def batch(schedule: Schedule, wanted: Mapping[str, Any], n: int, late: Late = never_late) -> Batch:
    """Return at most `n` next slots of a backfill (`wanted`: a row of `backfills`).

    Stops early once `late()` is true.
    """
    start, end, reverse, cursor = (wanted[name] for name in ("from_at", "to_at", "reverse", "cursor_at"))
    found: list[datetime] = []
    for some, reached in windows(schedule, start, end, reverse=reverse, cursor=cursor):
        found += some[: n - len(found)]
        if len(found) >= n:
            return Batch(found, found[-1], over=False)
        cursor = reached
        if late():
            return Batch(found, cursor, over=False)
    return Batch(found, cursor, over=True)


def first_startable(found: Sequence[Choice], room: int) -> Sequence[Choice]:
    """Return the decisions from the beginning on, up to and with the last one that there is room to start."""
    starting = [n for n, choice in enumerate(found) if choice.action != "leave"]
    return found[: starting[room - 1] + 1] if len(starting) >= room else found
