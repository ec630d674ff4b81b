"""What a program reads about runs: lists, details, output and outcomes, as values with types."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from pgsched.core.model import Row, State
from pgsched.core.run_info import LogLine, RunInfo, RunOutcome, RunSummary
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import outcomes, run_filter, runs
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.services.runs import follow

T = TypeVar("T", bound=RunSummary)


def list_summaries(conn: Connection[Any], wanted: Filter) -> list[RunSummary]:
    """Return the runs of a filter, newest first. Raises InputError, and NotFound for an unknown job."""
    return [value_of(RunSummary, row) for row in run_filter.list_runs(conn, wanted)]


def read_info(conn: Connection[Any], run_id: int) -> RunInfo:
    """Return all that is known about a run. Raises NotFound."""
    return value_of(RunInfo, runs.show_run(conn, run_id))


def read_log(
    conn: Connection[Any], run_id: int, attempt: int | None = None, stream: str | None = None
) -> list[LogLine]:
    """Return what a run has printed and logged so far, oldest first. Raises InputError or NotFound."""
    runs.show_run(conn, run_id)
    return [
        LogLine(row["attempt"], row["at"], row["stream"], row["chunk"])
        for row in follow.output(conn, run_id, attempt, stream)
    ]


def find_outcome(conn: Connection[Any], run_id: int) -> RunOutcome | None:
    """Return how a run has ended, or its state so far; None where there is no such run."""
    row = outcomes.read_outcome(conn, run_id)
    return None if row is None else RunOutcome(**row | {"state": State(row["state"])})


def value_of(kind: type[T], row: Row) -> T:
    """Return the value of a row that has at least its columns."""
    names = [field.name for field in fields(kind)]
    return kind(**{name: row[name] for name in names} | {"state": State(row["state"])})
