"""One run of `pgsched chaos`: choose the order and duration of faults, and save or re-check histories."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pgsched.chaos import history
from pgsched.chaos.checker import find_violations
from pgsched.chaos.registry import Fault
from pgsched.chaos.runner import Result, run_fault
from pgsched.chaos.site.site import open_sites
from pgsched.errors import InputError

Tell = Callable[[str, str], None]  # what kind of line (fault, figure), and its text


def run_faults(
    faults: list[Fault], seed: int, seconds: float | None, binaries: Path | None, tell: Tell
) -> Iterator[Result]:
    """Run each fault once; with `seconds`, repeat faults in an order drawn from the seed until this time is over.

    `tell` is called with the kind of line ("fault" or "figure") and its text.
    """
    with open_sites(binaries) as where:
        for number, (fault, part) in enumerate(schedule_faults(faults, seed, seconds), 1):
            count = f"[{number}/{len(faults)}]" if seconds is None else f"[{number}]"
            tell("fault", f"{count} {fault.name}: {fault.summary}")
            yield run_fault(fault, where, part, lambda text: tell("figure", text))


def schedule_faults(faults: list[Fault], seed: int, seconds: float | None) -> Iterator[tuple[Fault, int]]:
    """Yield the faults to run, each with its seed."""
    if seconds is None:
        yield from ((fault, seed) for fault in faults)
        return
    deadline, dice = time.monotonic() + seconds, random.Random(seed)
    while True:
        for fault in dice.sample(faults, len(faults)):
            if time.monotonic() >= deadline:
                return
            yield fault, dice.randrange(1 << 31)


def save(result: Result, path: Path, *, first: bool) -> None:
    """Write the history of a fault to the file: overwrite it if `first`, otherwise append.

    Raises InputError if the file cannot be written.
    """
    try:
        result.history.save(path, append=not first)
    except OSError as error:
        raise InputError(f"save: {error.strerror}: {path}", "save") from None


def check_file(path: Path) -> Iterator[tuple[history.History, list[dict[str, Any]]]]:
    """Yield each saved history with the violations in it.

    Raises InputError if the file cannot be read or holds no history.
    """
    try:
        found = history.load_histories(path)
    except OSError as error:
        raise InputError(f"check: {error.strerror}: {path}", "check") from None
    except ValueError as error:
        raise InputError(f"check: {error}", "check") from None
    if not found:
        raise InputError(f"check: {path} holds no history", "check")
    for one in found:
        yield one, [asdict(violation) for violation in find_violations(one)]


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as a dict for JSON output."""
    recorded = result.history
    return {
        "fault": result.fault.name,
        "tier": result.fault.tier,
        "result": verdict(result),
        "skipped": result.skipped,
        "seed": recorded.settings.get("seed"),
        "seconds": round(result.seconds, 3),
        "runs": len(recorded.runs),
        "figures": [asdict(one) for one in recorded.figures],
        "notes": recorded.notes,
        "violations": [asdict(one) for one in result.violations],
        "logs": None if result.logs is None else str(result.logs),
    }


def verdict(result: Result) -> str:
    """Return "held", "violated" or "skipped"."""
    if result.skipped:
        return "skipped"
    return "violated" if result.violations else "held"
