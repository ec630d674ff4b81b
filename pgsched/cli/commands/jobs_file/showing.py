"""Print a plan: changes with their slots, and the collisions of the coming week as a heat map."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import typer

from pgsched.cli.commands.jobs_file.changes import describe_counts, notes, print_change, print_line
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import format_cell
from pgsched.cli.times import to_zone
from pgsched.core.jobs_file.collisions import MANY, QUARTER, BusyMinute, Collisions
from pgsched.core.jobs_file.coming import ClockChange, Slots, is_excluded
from pgsched.core.jobs_file.difference import LISTED
from pgsched.core.jobs_file.model.columns import What
from pgsched.core.jobs_file.model.entries import JobsFile
from pgsched.core.schedule.preview import PreviewSlot
from pgsched.core.wording import format_short_duration
from pgsched.services.jobs_file.planning import JobsPlan

LEAST_STARTS = 2  # in one minute; with fewer nothing collides
RED_FROM = 20  # starts in one minute
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SLOT = "%a %d %H:%M"


def print_plan(file: JobsFile, plan: JobsPlan) -> None:
    """Print a plan."""
    print_changes(plan)
    if plan.difference.changes:
        print_collisions(plan.collisions)
        print()
    for note in notes(plan.difference):
        print_note(note)
    print(f"{format_cell(file.document.name)} (owner {format_cell(plan.difference.owner)}):"
          f" {describe_counts(plan.difference)}")  # fmt: skip


def print_changes(plan: JobsPlan) -> None:
    """Print the changes of a plan, each with the slots that it moves."""
    for change in plan.difference.changes:
        print_change(change)
        slots = plan.slots.get(change.key)
        if slots is not None:
            print_slots(slots)
        print_clocks(plan.clocks.get(change.key, ()))
        if change.key[0] is What.CALENDAR:
            print_moved(plan.moved.get(change.key[1], {}))


def print_slots(slots: Slots) -> None:
    """Print the next slots of a job, before and after its change."""
    if slots.differ and slots.old is not None:
        print_line(f"    slots before: {slots_text(slots.old)}", indent=6)
        print_line(f"    slots after: {slots_text(slots.new)}", indent=6)
    else:
        print_line(f"    next slots: {slots_text(slots.new)}", indent=6)


def print_moved(jobs: Mapping[str, Slots]) -> None:
    """Print the slots of jobs that a change of their calendar moves."""
    for name, slots in list(jobs.items())[:LISTED]:
        print_line(f"    moves slots of job {format_cell(name)}", indent=6)
        print_slots(slots)
    if len(jobs) > LISTED:
        print_line(f"    moves slots of {len(jobs) - LISTED} more jobs", indent=6)


def slots_text(slots: Iterable[PreviewSlot]) -> str:
    """Return slots in the zone of the job."""
    return ", ".join(map(slot_text, slots)) or "none that can be foreseen"


def slot_text(slot: PreviewSlot) -> str:
    """Return a slot, and what its calendar does to it: `Mon 30 09:00 (from Sat 28 09:00)`."""
    form = f"{SLOT}:%S" if slot.local.second else SLOT
    text = f"{slot.local:{form}}"
    if is_excluded(slot):
        return f"{text} (skipped)"
    return text if slot.nominal is None else f"{text} (from {slot.nominal.astimezone(slot.local.tzinfo):{form}})"


def print_clocks(clocks: Iterable[ClockChange]) -> None:
    """Print what clock changes do to a job."""
    for change in clocks:
        print_line(f"    clock change on {change.day}: {change.remark}", "yellow", indent=6)


def print_collisions(found: Collisions) -> None:
    """Print the heat map and the busiest minutes, if starts collide at all."""
    if max(found.peaks, default=0) < LEAST_STARTS:
        return
    begin = to_zone(found.begin)
    print(f"\nstarts in the busiest minute of each hour, for a week ({begin:%Z}); ++ is 100 or more")
    print("    " + "".join(f" {hour:02}" for hour in range(24)))
    for day, cells in heat_map(found.begin, found.peaks):
        print(day + " " + "".join(" " + shown_cell(count) for count in cells))
    print("busiest minutes:")
    for busy in found.busiest:
        print_line(f"  {describe_busy(busy)}", indent=4)
    if found.left_out:
        print_line(f"  not counted: {found.left_out} jobs that start more often than most", indent=4)


def heat_map(begin: datetime, peaks: tuple[int, ...]) -> list[tuple[str, list[int]]]:
    """Return the rows of the map: a weekday, and the most starts in a minute of each hour of the shown zone.

    `peaks`: one for each QUARTER of an hour. The first weekday is that of `begin`. Where clocks go back, an hour has
    the largest figure.
    """
    rows: dict[int, list[int]] = {}
    for at, count in enumerate(peaks):
        local = to_zone((begin + timedelta(minutes=at * QUARTER)).astimezone(UTC))
        row = rows.setdefault(local.weekday(), [0] * 24)
        row[local.hour] = max(row[local.hour], count)
    return [(WEEKDAYS[day], cells) for day, cells in rows.items()]


def shown_cell(count: int) -> str:
    """Return a cell of the map: two characters, coloured on a terminal."""
    text = "++" if count >= 100 else f"{count:2}" if count else " ."
    if not sys.stdout.isatty():
        return text
    if not count:
        return typer.style(text, dim=True)
    colour = "red" if count >= RED_FROM else "yellow" if count >= MANY else "green"
    return typer.style(text, fg=colour)


def describe_busy(busy: BusyMinute) -> str:
    """Return a busy minute as a sentence, with the jitter that is proposed."""
    more = busy.starts - len(busy.jobs)
    names = ", ".join(map(format_cell, busy.jobs)) + (f" and {more} more" if more > 0 and busy.jobs else "")
    text = f"{to_zone(busy.at):{SLOT}}  {busy.starts} starts" + (f": {names}" if names else "")
    if busy.jitter is None:
        return text
    left = max(1, round(busy.without_jitter / (busy.jitter / timedelta(minutes=1))))
    return f"{text}; jitter of {format_short_duration(busy.jitter)} would leave about {left} a minute"
