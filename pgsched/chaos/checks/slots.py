"""Check that every slot of every job was decided once: none lost, none decided twice, none invented.

The nominal slots come from a cron library that the product does not use (cronsim), and for `@every` from counting.
Pruned rows count too: the journal has every row that ever existed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pgsched.chaos.history import Change, History, Job
from pgsched.errors import InputError

MICRO = 1_000_000
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_SHOWN = 3


def check_none_lost(history: History) -> Iterator[str]:
    """Check that every nominal slot has a row, or lies in the stretch that a row stands for."""
    gone = {change.run_id for change in history.changes if change.op == "delete"}
    there = {run.id for run in history.runs} | gone
    rows = defaultdict(set)
    stretches = defaultdict(list)
    for change in slot_rows(history):
        if change.run_id in there:
            rows[change.job_id].add(micros(change.slot))
            if change.covers_from is not None and change.covers_until is not None:
                stretches[change.job_id].append((micros(change.covers_from), micros(change.covers_until)))
    for job in history.jobs:
        missing = [
            slot
            for slot in nominal_slots(job)
            if slot not in rows[job.id] and not any(low <= slot <= high for low, high in stretches[job.id])
        ]
        if missing:
            yield f"job {job.name}: {len(missing)} slots were lost: {format_slots(missing)}"


def check_none_twice(history: History) -> Iterator[str]:
    """Check that no slot ever had two rows, even if the first one was pruned."""
    runs_by_slot = defaultdict(set)
    for change in slot_rows(history):
        if change.op == "insert":
            runs_by_slot[change.job_id, micros(change.slot)].add(change.run_id)
    for (job_id, slot), runs in runs_by_slot.items():
        if len(runs) > 1:
            yield f"job {job_id}: slot {format_slot(slot)} was made {len(runs)} times: runs {sorted(runs)}"


def check_none_invented(history: History) -> Iterator[str]:
    """Check that every row of a job stands for a slot of its schedule."""
    rows = defaultdict(set)
    for change in slot_rows(history):
        rows[change.job_id].add(micros(change.slot))
    for job in history.jobs:
        wrong = sorted(rows[job.id] - set(nominal_slots(job)))
        if wrong:
            yield f"job {job.name}: {len(wrong)} rows are for slots that it does not have: {format_slots(wrong)}"


def slot_rows(history: History) -> Iterator[Change]:
    """Return the changes of runs that stand for slots."""
    return (change for change in history.changes if change.job_id is not None and change.slot is not None)


def micros(at: float | None) -> int:
    """Return a time in microseconds, the resolution that PostgreSQL keeps.

    A float of seconds in this century is exact enough for microseconds.
    """
    return round((at or 0.0) * MICRO)


def nominal_slots(job: Job) -> list[int]:
    """Return the schedule's slots after `since`, up to the job's end or its high-water mark, in microseconds."""
    end = job.decided if job.ends is None else job.ends
    if job.schedule.startswith("@every "):
        step = every(job.schedule) * MICRO
        first = max(1, (micros(job.since) - micros(job.anchor)) // step + 1)
        last = (micros(end) - micros(job.anchor)) // step
        return [micros(job.anchor) + n * step for n in range(first, last + 1)]
    return list(cron(job, end))


def cron(job: Job, end: float) -> Iterator[int]:
    """Yield the slots of a cron expression from cronsim, in microseconds, up to `end`.

    Raises InputError if cronsim is not installed.
    """
    try:
        from cronsim import CronSim
    except ImportError:
        raise InputError("checking slots needs an independent cron library: pip install 'pgsched[chaos]'") from None
    start = datetime.fromtimestamp(job.since, UTC).astimezone(ZoneInfo(job.timezone))
    for at in CronSim(job.schedule, start):
        if at.timestamp() > end:
            return
        yield micros(at.timestamp())


def every(schedule: str) -> int:
    """Return the seconds of an interval, as in `@every 1h30m`."""
    total, number = 0, ""
    for letter in schedule.removeprefix("@every ").strip():
        if letter in UNITS:
            total, number = total + int(number) * UNITS[letter], ""
        else:
            number += letter
    return total


def format_slot(slot: int) -> str:
    """Format a slot as a UTC date and time."""
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=slot)).strftime("%F %T.%f").rstrip("0").rstrip(".")


def format_slots(slots: list[int]) -> str:
    """Format the first three slots, with an ellipsis if there are more."""
    some = ", ".join(format_slot(slot) for slot in slots[:MOST_SHOWN])
    return some + (" …" if len(slots) > MOST_SHOWN else "")
