"""The rule: a backfill asks for decided slots again, and every slot of its range has one decision with its reason.

A slot is `missing` when no run of its own ever started, `failed` when one started and did not succeed: never both, and
`all` takes these and the successes. A slot's evidence is its own row; the row of a stretch that it lies in only says
why it has none. What is not finished is never asked for twice, and a date that the job leaves out stays left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.core.lifecycle import OPEN_STATES
from pgsched.core.schedule import zones
from pgsched.core.schedule.calendar import OPEN, Calendar
from pgsched.core.schedule.cron import Schedule
from pgsched.core.schedule.zones import Change
from pgsched.errors import InputError

MODES = ("missing", "failed", "all")
MOST_SLOTS = 100_000
INSTANT = timedelta(microseconds=1)
PIECE = timedelta(days=100)  # what a schedule counts in one go
Row = Mapping[str, Any]
FIRST_WINDOW, LONGEST_WINDOW = timedelta(hours=1), timedelta(days=400)
FULL_WINDOW = 4000  # slots; what is read beyond that is a second each of an hour
Late = Callable[[], bool]


def never() -> bool:
    """There is time for all of it."""
    return False


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of a slot: `run` (a new row), `again` (a further attempt of run `run_id`) or `leave`."""

    slot: datetime
    action: str
    reason: str
    run_id: int | None = None


def instant(field: str, text: str, tz: ZoneInfo) -> datetime:
    """ISO text as an instant. Without an offset it is the wall clock of the zone; one in a gap stands for its end."""
    try:
        found = datetime.fromisoformat(text)
        gap = gap_at(found, tz)
        found = gap.at if gap is not None else (found if found.tzinfo is not None else found.replace(tzinfo=tz))
        found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f'{field}: "{text}" is not an ISO date or time', field) from None
    if not 1970 <= found.year < 9000:
        raise InputError(f'{field}: "{text}" is not an instant between 1970 and 9000', field)
    return found


def gap_at(wall: datetime, tz: ZoneInfo) -> Change | None:
    """The change of the zone's offset that skips a wall clock."""
    change = zones.change_at(tz, wall) if wall.tzinfo is None else None
    return change if change is not None and change.after > change.before else None


def skipped(text: str, tz: ZoneInfo) -> str | None:
    """That ISO text is a wall clock that does not exist; None for any other."""
    wall = datetime.fromisoformat(text)
    if (gap := gap_at(wall, tz)) is None:
        return None
    form = "%H:%M" if gap.before.date() == gap.after.date() else "%Y-%m-%d %H:%M"
    moved = f"clocks go from {gap.before:{form}} to {gap.after:{form}}"
    return f"{wall:%Y-%m-%d %H:%M:%S} does not exist in {tz.key}: {moved}"


def count(schedule: Schedule, start: datetime, end: datetime) -> int:
    """How many slots lie in [start, end); InputError beyond MOST_SLOTS."""
    return count_on(schedule, start, end)[0]


def count_on(
    schedule: Schedule, start: datetime, end: datetime, found: int = 0, late: Late = never
) -> tuple[int, datetime]:
    """How many slots lie in [start, end), beside those that were found before; and how far they are counted: to the
    end, or to where it was `late`."""
    while start < end:
        stop = min(start + PIECE, end)
        piece = schedule.count(start - INSTANT, stop - INSTANT)
        if piece is None:
            piece = sum(1 for _ in islice(schedule.between(start - INSTANT, stop - INSTANT), MOST_SLOTS + 1))
        found += piece
        if found > MOST_SLOTS:
            raise InputError(f"the range has more than {MOST_SLOTS:,} slots: ask for a shorter one")
        start = stop
        if late():
            break
    return found, start


def slots(
    schedule: Schedule, start: datetime, end: datetime, *, reverse: bool = False, cursor: datetime | None = None
) -> Iterator[datetime]:
    """The slots of [start, end) behind the cursor, oldest first or newest first."""
    for found, _ in windows(schedule, start, end, reverse=reverse, cursor=cursor):
        yield from found


def windows(
    schedule: Schedule, start: datetime, end: datetime, *, reverse: bool = False, cursor: datetime | None = None
) -> Iterator[tuple[list[datetime], datetime]]:
    """The same, some at a time, with the cursor behind each window. Windows grow where slots are rare, so that none
    holds many slots or takes long."""
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
    """The decision for each slot, in the order asked, from the rows of `backfill_rows`."""
    found = list(rows)
    own = {row["scheduled_at"]: row for row in found}
    # the narrowest first: an excluded date may lie within a longer stretch
    wide = sorted((row for row in found if row["covers_from"] is not None),
                  key=lambda row: row["covers_until"] - row["covers_from"])  # fmt: skip

    def stretch(slot: datetime) -> Row | None:
        return next((row for row in wide if row["covers_from"] <= slot <= row["covers_until"]), None)

    return [choose(mode, slot, own.get(slot), stretch(slot), calendar.excluded(slot)) for slot in asked]


def choose(mode: str, slot: datetime, own: Row | None, stretch: Row | None, excluded: str | None = None) -> Choice:
    """The decision for one slot."""
    if own is not None and own["state"] in OPEN_STATES:
        return Choice(slot, "leave", f"run {own['id']} is {own['state']}", own["id"])
    if excluded is not None:
        return Choice(slot, "leave", excluded)
    if own is not None:
        wanted = mode in ("all", kind(own))
        return Choice(slot, "again" if wanted else "leave", f"run {own['id']} {said(own)}", own["id"])
    reason = "it has no run"
    if stretch is not None:
        reason += f" of its own: it lies in the stretch of run {stretch['id']}, which {said_of_stretch(stretch)}"
    return Choice(slot, "leave" if mode == "failed" else "run", reason)


def kind(own: Row) -> str:
    """The mode that an ended run belongs to, beside `all`; `succeeded` belongs to no other."""
    if own["state"] == "succeeded":
        return "succeeded"
    return "failed" if own["state"] == "dead" or own["started_at"] is not None else "missing"


def said(run: Row) -> str:
    """A run's state as the end of a sentence about it."""
    state = run["state"]
    if state == "cancelled":
        return f"was cancelled {'before it' if run['started_at'] is None else 'after it had'} started"
    return state if state == "succeeded" else f"is {state}" if state in OPEN_STATES else f"ended {state}"


def said_of_stretch(run: Row) -> str:
    """The same of a row's whole stretch. One that was revived for its own slot says nothing more of the others."""
    state = run["covers_state"]
    if state is None:
        return said(run)
    # whether it had started before is not kept
    then = "was cancelled" if state == "cancelled" else said({"state": state})
    return f"{then}; later it was revived, for slot {run['scheduled_at'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC alone"


@dataclass(frozen=True, slots=True)
class Batch:
    """Slots that come next; the cursor behind all that was looked at; `over`: that was the end of the range."""

    slots: list[datetime]
    cursor: datetime | None
    over: bool


def batch(schedule: Schedule, wanted: Mapping[str, Any], n: int, late: Late = never) -> Batch:
    """The next slots of a backfill (a row of `backfills`): `n` at most, and only what is found until it is `late`."""
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


def up_to(found: Sequence[Choice], room: int) -> Sequence[Choice]:
    """The decisions up to the last one that there is room to start."""
    starting = [n for n, choice in enumerate(found) if choice.action != "leave"]
    return found[: starting[room - 1] + 1] if len(starting) >= room else found
