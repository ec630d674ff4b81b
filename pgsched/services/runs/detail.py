"""One run as a page shows it: its row, its related runs, its output, and its life as stretches of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import Kind, Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports.name_hints import hint_offered_tasks
from pgsched.db.queries.runs import run_output, run_pages, runs
from pgsched.services.runs import waiting

RELATIVES = 20
LAST_ROWS = 200
LAST_CHARACTERS = 256 << 10


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run's life: waiting, or an attempt with its outcome (`running` while it lasts)."""

    what: str
    begin: datetime
    end: datetime
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class StartConditions:
    """The reasons that keep a run from starting, if any.

    `offered`: a live worker takes the run, or the run is not queued.
    `hint`: tasks with similar names that workers offer.
    `held_by`: the pauses and limits that hold it.
    """

    offered: bool
    hint: str
    held_by: str | None


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with all that a page shows. `before`: the runs it waits for. `behind`: the runs that wait for it."""

    run: Row
    conditions: StartConditions
    log: list[Row]
    log_is_whole: bool
    before: list[Row]
    behind: list[Row]
    spans: list[Span]


def read_detail(conn: Connection[Any], run_id: int) -> RunDetail:
    """Read a run with all that a page shows. Raises NotFound."""
    run = runs.show_run(conn, run_id)
    related = run_pages.relatives(conn, run_id, RELATIVES)
    before, behind = ([row for row in related if row["side"] == side] for side in ("before", "behind"))
    log = run_output.last(conn, run_id, LAST_ROWS + 1)
    end = last_rows(log)
    return RunDetail(run, read_start_conditions(conn, run), end, len(end) == len(log), before, behind, spans(run))


def read_start_conditions(conn: Connection[Any], run: Row) -> StartConditions:
    """Return the reasons that keep a run from starting."""
    offered = run["state"] != "queued" or waiting.is_offered(conn, run)
    hint = "" if offered or run["kind"] != Kind.TASK else hint_offered_tasks(conn, run["task"])
    return StartConditions(offered, hint, waiting.explain_hold(conn, run))


def last_rows(log: list[Row]) -> list[Row]:
    """Return the last rows: at most LAST_ROWS, and about LAST_CHARACTERS."""
    size, first = 0, len(log)
    while first > max(0, len(log) - LAST_ROWS) and size < LAST_CHARACTERS:
        first -= 1
        size += len(log[first]["chunk"])
    return log[first:]


def spans(run: Row) -> list[Span]:
    """Return a run's life, from its creation to its end or now; the time outside of attempts is waiting."""
    attempts = [
        Span(one["outcome"], one["started_at"], one["finished_at"], one["attempt"])
        for one in run["attempts"]
        if one["started_at"] is not None
    ]
    if run["started_at"] is not None and run["state"] in ("running", "succeeded"):
        attempts.append(Span(run["state"], run["started_at"], run["finished_at"] or run["now"], run["attempt"]))
    found, at = [], run["created_at"]
    for one in sorted(attempts, key=lambda span: span.begin):
        if one.begin > at:
            found.append(Span("waiting", at, one.begin))
        found.append(one)
        at = max(at, one.end)
    end = run["finished_at"] or run["now"]
    return [*found, Span("waiting", at, end)] if end > at and run["state"] != "running" else found
