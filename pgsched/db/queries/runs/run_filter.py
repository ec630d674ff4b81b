"""Filters of runs: by state, job, queue, task, kind, error, tag, worker and time; and the lists that they select.

Invariant: an index answers each filter. A state is asked for together with its phase, because the partial indexes name
phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgsched.core.model import KINDS_OF_RUNS, WAITS_FOR_OTHERS_YEAR, Kind, Row, State
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows
from pgsched.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select

PHASES = {State.WAITING: 0, State.SCHEDULED: 1, State.QUEUED: 2, State.RUNNING: 2, State.DEAD: 4, State.MISSED: 4}
STATE_ALIASES = {
    "failed": "dead", "error": "dead", "ok": "succeeded", "done": "succeeded", "pending": "queued", "python": "task",
}  # fmt: skip
Moment = datetime | timedelta | None


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of runs; None: any value.

    Times are instants, or so long ago by the database's clock.

    `since`, `until`: the run was created from `since` on, and before `until`
    `ended_since`, `ended_until`: the same of its end
    `before_id`, `after_id`: bounds of the id, for pages
    `error`: a part of the error or reason, in any case of letters
    `worker`: a worker's name, or its host
    """

    state: str | None = None
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    since: Moment = None
    until: Moment = None
    before_id: int | None = None
    after_id: int | None = None
    limit: int = 50
    kind: str | None = None
    error: str | None = None
    tag: str | None = None
    worker: str | None = None
    ended_since: Moment = None
    ended_until: Moment = None


def list_runs(conn: Connection[Any], wanted: Filter) -> list[Row]:
    """Return the runs of a filter, newest first. For the next page set `before_id` to the last id of this one."""
    check_filter(conn, wanted)
    return [hide_marker_time(row) for row in send_select(conn, list_select(wanted))]


def hide_marker_time(run: Row) -> Row:
    """Return the run with `available_at` null while it waits for others: the column then holds a mark, not a time."""
    return run | {"available_at": None} if run["available_at"].year >= WAITS_FOR_OTHERS_YEAR else run


def ids(conn: Connection[Any], wanted: Filter, states: tuple[State, ...]) -> list[int]:
    """Return the ids of all runs that the filter selects in one of these states, ascending; `limit` has no effect."""
    from sqlalchemy import select

    from pgsched.db.schema.tables import runs

    check_filter(conn, wanted)
    found: list[int] = []
    for state in states:  # one query for each state, because no index spans the phases
        meant = (runs.c.state == state, runs.c.phase == PHASES.get(state, 3))
        found += [row["id"] for row in send_select(conn, select(runs.c.id).where(*meant, *conditions(wanted)))]
    # Sorted here: with ORDER BY the planner would walk through the primary key, past all history.
    return sorted(found)


def by_id(conn: Connection[Any], ids: list[int]) -> list[Row]:
    """Return the runs with these ids as `list_runs` does, but the oldest first."""
    from pgsched.db.schema.tables import runs

    return [
        hide_marker_time(row)
        for row in send_select(conn, list_select(Filter(limit=len(ids))).where(runs.c.id.in_(ids)))
    ][::-1]


def check_filter(conn: Connection[Any], wanted: Filter) -> None:
    """Raise InputError for an unknown state or kind, and NotFound for an unknown job."""
    for name, value, known in (("state", wanted.state, State), ("kind", wanted.kind, KINDS_OF_RUNS)):
        if value is not None and value not in list(known):
            hint = f"; did you mean {STATE_ALIASES[value]}?" if value in STATE_ALIASES else did_you_mean(value, known)
            raise InputError(f'{name}: "{value}" is not one of {", ".join(known)}{hint}', name)
    if wanted.job is not None:
        from pgsched.db.queries.jobs.jobs import show_job

        show_job(conn, wanted.job)


def send_select(conn: Connection[Any], question: Select[Any]) -> list[Row]:
    """Return the rows of a SELECT."""
    from sqlalchemy.dialects.postgresql.psycopg import dialect

    compiled = question.compile(dialect=dialect(), compile_kwargs={"render_postcompile": True})  # type: ignore[no-untyped-call]
    with conn.transaction():
        # With the stale statistics of a queue table the planner would scan all history instead of an index.
        conn.execute("SET LOCAL enable_seqscan = off")
        return rows(conn, str(compiled).encode(), dict(compiled.params))


def list_select(wanted: Filter) -> Select[Any]:
    """Return the SELECT of a list of runs."""
    from sqlalchemy import func, select

    from pgsched.db.schema.tables import jobs, runs

    r = runs.c
    shown = (r.id, r.state, r.queue, r.kind, r.task, r.origin, r.scheduled_at, r.available_at, r.created_at)
    ending = (r.started_at, r.finished_at, r.attempt, r.max_attempts, r.reason, r.error, r.tags)
    return (
        select(*shown, *ending, jobs.c.name.label("job"), unroutable(), func.clock_timestamp().label("now"))
        .select_from(runs.outerjoin(jobs, jobs.c.id == r.job_id))
        .where(*conditions(wanted))
        .order_by(r.id.desc())
        .limit(wanted.limit)
    )


def unroutable() -> ColumnElement[bool]:
    """Return the condition that the run is queued and no live worker offers to take it."""
    from sqlalchemy import any_, exists, func, or_

    from pgsched.db.schema.tables import runs, workers

    r, w = runs.c, workers.c
    alive = (w.stopped_at.is_(None), w.stopping_at.is_(None), w.seen_at > func.clock_timestamp() - w.lease)
    takes = (
        or_(w.queues.is_(None), r.queue == any_(w.queues)),
        r.kind == any_(w.kinds),
        or_(r.kind != Kind.TASK, r.task == any_(w.tasks)),
    )
    offered = exists(w.id).where(*alive, *takes)
    return ((r.state == State.QUEUED) & ~offered).label("unroutable")


def conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    """Return the WHERE conditions of a filter."""
    from sqlalchemy import or_, select

    from pgsched.db.schema.tables import jobs, runs

    r = runs.c
    found: list[ColumnElement[bool]] = []
    if wanted.state is not None:
        found += [r.state == wanted.state, r.phase == PHASES.get(State(wanted.state), 3)]
    if wanted.job is not None:
        found.append(r.job_id == select(jobs.c.id).where(jobs.c.name == wanted.job).scalar_subquery())
    for column, value in ((r.queue, wanted.queue), (r.task, wanted.task), (r.kind, wanted.kind)):
        if value is not None:
            found.append(column == value)
    if wanted.error is not None:
        found.append(or_(*(column.icontains(wanted.error, autoescape=True) for column in (r.error, r.reason))))
    if wanted.tag is not None:
        found.append(r.tags.contains([wanted.tag]))
    if wanted.worker is not None:
        found.append(ran_on(wanted.worker))
    found += bounds(wanted)
    return found


def bounds(wanted: Filter) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter that bound times and ids."""
    from sqlalchemy import cast, func
    from sqlalchemy.dialects.postgresql import INTERVAL

    from pgsched.db.schema.tables import runs

    def instant(moment: datetime | timedelta) -> Any:
        return func.clock_timestamp() - cast(moment, INTERVAL) if isinstance(moment, timedelta) else moment

    r = runs.c
    found: list[ColumnElement[bool]] = []
    for column, since, until in (
        (r.created_at, wanted.since, wanted.until),
        (r.finished_at, wanted.ended_since, wanted.ended_until),
    ):
        found += [] if since is None else [column >= instant(since)]
        found += [] if until is None else [column < instant(until)]
    if wanted.ended_since is not None or wanted.ended_until is not None:
        found.append(r.phase >= 3)
    if wanted.before_id is not None:
        found.append(r.id < wanted.before_id)
    if wanted.after_id is not None:
        found.append(r.id > wanted.after_id)
    return found


def ran_on(worker: str) -> ColumnElement[bool]:
    """Return the condition that this worker, or one on this host, runs or ran the run."""
    from sqlalchemy import exists, or_, select

    from pgsched.db.schema.tables import attempts, runs, workers

    def named(column: Any) -> ColumnElement[bool]:
        return or_(column == worker, column.startswith(f"{worker}:", autoescape=True))

    return or_(
        runs.c.worker_id.in_(select(workers.c.id).where(named(workers.c.name))),
        exists().where(attempts.c.run_id == runs.c.id, named(attempts.c.worker)),
    )
