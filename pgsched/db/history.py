"""Runs as an operator reads and corrects them: filtered lists, one run with its attempts, retry and cancel.

The rule: a filtered list is a question that an index answers. A state is asked together with its phase, because the
partial indexes name phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgsched.db.connect import Connection
from pgsched.db.query import Row, one, rows
from pgsched.errors import InputError, NotFound
from pgsched.model import State

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select

PHASES = {State.WAITING: 0, State.SCHEDULED: 1, State.QUEUED: 2, State.RUNNING: 2, State.DEAD: 4, State.MISSED: 4}
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Filter:
    """What to list. `since` and `until` bound the creation: an instant, or so long ago by the database's clock."""

    state: str | None = None
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    since: datetime | timedelta | None = None
    until: datetime | timedelta | None = None
    before_id: int | None = None
    limit: int = 50


def list_runs(conn: Connection[Any], wanted: Filter) -> list[Row]:
    """The newest runs first. The next page is asked for with `before_id` = the last id of this one."""
    from sqlalchemy.dialects.postgresql.psycopg import dialect

    if wanted.state is not None and wanted.state not in list(State):
        raise InputError(f'state: "{wanted.state}" is not one of {", ".join(State)}', "state")
    if wanted.job is not None:
        from pgsched.db.jobs import show

        show(conn, wanted.job)
    compiled = question(wanted).compile(dialect=dialect())  # type: ignore[no-untyped-call]
    with conn.transaction():
        # Stale statistics of a queue table would turn an index's question into a scan of all history.
        conn.execute("SET LOCAL enable_seqscan = off")
        return rows(conn, str(compiled).encode(), dict(compiled.params))


def question(wanted: Filter) -> Select[Any]:
    """The SELECT for a filter."""
    from sqlalchemy import func, select

    from pgsched.db.tables import jobs, runs

    r = runs.c
    shown = (r.id, r.state, r.queue, r.kind, r.task, r.origin, r.scheduled_at, r.available_at, r.created_at)
    ending = (r.started_at, r.finished_at, r.attempt, r.max_attempts, r.reason, r.error)
    return (
        select(*shown, *ending, jobs.c.name.label("job"), func.clock_timestamp().label("now"))
        .select_from(runs.outerjoin(jobs, jobs.c.id == r.job_id))
        .where(*conditions(wanted))
        .order_by(r.id.desc())
        .limit(wanted.limit)
    )


def conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    """The WHERE of a filter."""
    from sqlalchemy import func, select

    from pgsched.db.tables import jobs, runs

    def instant(moment: datetime | timedelta) -> Any:
        return func.clock_timestamp() - moment if isinstance(moment, timedelta) else moment

    found: list[ColumnElement[bool]] = []
    if wanted.state is not None:
        found += [runs.c.state == wanted.state, runs.c.phase == PHASES.get(State(wanted.state), 3)]
    if wanted.job is not None:
        found.append(runs.c.job_id == select(jobs.c.id).where(jobs.c.name == wanted.job).scalar_subquery())
    for column, value in ((runs.c.queue, wanted.queue), (runs.c.task, wanted.task)):
        if value is not None:
            found.append(column == value)
    if wanted.since is not None:
        found.append(runs.c.created_at >= instant(wanted.since))
    if wanted.until is not None:
        found.append(runs.c.created_at < instant(wanted.until))
    if wanted.before_id is not None:
        found.append(runs.c.id < wanted.before_id)
    return found


def show(conn: Connection[Any], run_id: int) -> Row:
    """One run with all its columns, and its unsuccessful attempts under `attempts`."""
    found = known(run_id, one(conn, "run_show", {"id": checked(run_id)}))
    return found | {"attempts": rows(conn, "run_attempts", {"id": run_id})}


def retry(conn: Connection[Any], run_id: int) -> str:
    """Revive a dead, cancelled, missed or skipped run; returns its new state. Harmless on one that is queued."""
    done = known(run_id, one(conn, "run_retry", {"id": checked(run_id)}))
    before, after = done["before"], known(run_id, done if done["after"] else None)["after"]
    if after != State.QUEUED:
        raise InputError(f"run {run_id} is {before}: only dead, cancelled, missed and skipped runs can be retried")
    return str(after)


def cancel(conn: Connection[Any], run_id: int, reason: str | None = None) -> str:
    """Cancel a run: `cancelled` at once, `requested` of the worker that runs it, or the terminal state it has."""
    done = known(run_id, one(conn, "run_cancel", {"id": checked(run_id), "reason": reason}))
    return str(known(run_id, done if done["what"] else None)["what"])


def checked(run_id: int) -> int:
    """The id, or NotFound where no run can have it."""
    if not 0 < run_id <= LARGEST_ID:
        raise unknown(run_id)
    return run_id


def known(run_id: int, row: Row | None) -> Row:
    """The row, or NotFound."""
    if row is None:
        raise unknown(run_id)
    return row


def unknown(run_id: int) -> NotFound:
    """There is no such run."""
    return NotFound(f"there is no run {run_id}: `pgsched run list` shows the newest; old history is pruned")
