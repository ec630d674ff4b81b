"""Follow a run: its output as it appears, until it ends.

Invariant: the state is read before the output, so that nothing is missed. The output of an attempt is written before
the attempt is settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import run_output
from pgsched.db.queries.runs.run_output import BEGINNING, ReadPosition
from pgsched.services.runs.waiting import PATIENCE_S, describe_missing_worker, is_offered

EVERY_S = 0.5


class Seen(NamedTuple):
    """A look at a run: its row (`run_watch`), the output since the last look, and whether this was the last look."""

    run: Row
    rows: list[Row]
    last: bool


def output(
    conn: Connection[Any],
    run_id: int,
    attempt: int | None = None,
    stream: str | None = None,
    after: ReadPosition = BEGINNING,
) -> Iterator[Row]:
    """Yield the output that a run has now, oldest first."""
    place = after
    while found := run_output.read_output(conn, run_id, place, attempt, stream):
        yield from found
        place = run_output.behind(found)


def looks(
    conn: Connection[Any],
    run_id: int,
    attempt: int | None = None,
    stream: str | None = None,
    *,
    note: Callable[[str], object] = bool,
    every_s: float = EVERY_S,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[Seen]:
    """Look at a run until it has ended, or until its attempt with that number has.

    `note`: called once with a text if no worker would take the run.
    `pause`: waits between two looks, at most so many seconds.
    """
    place, begun, is_noted = BEGINNING, time.monotonic(), False
    while True:
        run = run_output.state(conn, run_id)
        last = run["state"] in ENDED_STATES or (attempt is not None and is_past(run, attempt))
        rows = list(output(conn, run_id, attempt, stream, place))
        if rows:
            place = run_output.behind(rows)
        yield Seen(run, rows, last)
        if last:
            return
        if run["state"] == "queued" and not is_noted and time.monotonic() - begun > PATIENCE_S:
            is_noted = True
            if not is_offered(conn, run):
                note(describe_missing_worker(conn, run))
        pause(every_s)


def is_past(run: Row, attempt: int) -> bool:
    """Check whether this attempt of the run has ended."""
    return bool(run["attempt"] > attempt or (run["attempt"] == attempt and run["state"] != "running"))
