"""One run as a page shows it: what it says of itself, its neighbours, and its life as stretches of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import run_output, runs
from pgsched.db.rows import Row, rows
from pgsched.services import waiting

RELATIVES = 20
LAST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run's life: waiting, or an attempt with its outcome (`running` while it lasts)."""

    what: str
    begin: datetime
    end: datetime
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """A run with all that a page shows of it. `before`: the runs it waits for; `behind`: those that wait for it."""

    run: Row
    offered: bool
    log: list[Row]
    before: list[Row]
    behind: list[Row]
    spans: list[Span]


def whole(conn: Connection[Any], run_id: int) -> Whole:
    """Read it. Raises NotFound."""
    run = runs.show(conn, run_id)
    offered = run["state"] != "queued" or waiting.offered(conn, run)
    related = rows(conn, "run_relatives", {"id": run_id, "n": RELATIVES})
    before, behind = ([row for row in related if row["side"] == side] for side in ("before", "behind"))
    return Whole(run, offered, run_output.last(conn, run_id, LAST_ROWS), before, behind, spans(run))


def spans(run: Row) -> list[Span]:
    """Its life from being made to its end or now: what was no attempt was waiting."""
    tried = [
        Span(one["outcome"], one["started_at"], one["finished_at"], one["attempt"])
        for one in run["attempts"]
        if one["started_at"] is not None
    ]
    if run["started_at"] is not None and run["state"] in ("running", "succeeded"):
        tried.append(Span(run["state"], run["started_at"], run["finished_at"] or run["now"], run["attempt"]))
    found, at = [], run["created_at"]
    for one in sorted(tried, key=lambda span: span.begin):
        if one.begin > at:
            found.append(Span("waiting", at, one.begin))
        found.append(one)
        at = max(at, one.end)
    end = run["finished_at"] or run["now"]
    return [*found, Span("waiting", at, end)] if end > at and run["state"] != "running" else found
