"""The rule: a job is what its row says; the database checks it, and these functions only name the columns.

Values may be Python's or PostgreSQL's text form ('90 seconds', '{0,3}'). None puts a column's default back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql as composing

from pgsched.core import text
from pgsched.core.model import Row
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.preview import next_allowed
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.declarations import declare
from pgsched.db.queries.jobs.job_columns import checked, json_text, write
from pgsched.db.rows import column, one, rows
from pgsched.errors import InputError, NotFound, ScheduleError

__all__ = [
    "add", "declare", "delete", "list_jobs", "pause", "recent", "resume", "show", "trigger", "update",
]  # fmt: skip

STATES = ("active", "paused", "error", "done")
INSERT = composing.SQL("INSERT INTO pgsched.jobs ({columns}) VALUES ({values}) RETURNING name")
UPDATE = composing.SQL("UPDATE pgsched.jobs SET ({columns}) = ROW({values}) WHERE name = {name} RETURNING name")


def add(conn: Connection[Any], values: Mapping[str, Any]) -> Row:
    """Create a job; returns it whole. InputError is in the database's words, ``field: reason``."""
    with conn.transaction():
        write(conn, INSERT, checked(values), {})
        return plannable(show(conn, str(values["name"])), values)


def update(conn: Connection[Any], name: str, changes: Mapping[str, Any]) -> Row:
    """Change columns of a job; returns it whole. A new schedule starts now."""
    if not changes:
        raise InputError("nothing to change: give at least one option")
    with conn.transaction():
        if not write(conn, UPDATE, checked(changes), {"old name": name}):
            raise unknown(conn, name)
        return plannable(show(conn, str(changes.get("name") or name)), changes)


def plannable(job: Row, changes: Mapping[str, Any]) -> Row:
    """The job. InputError if its new schedule never fires, which the database cannot tell and the leader would."""
    if job["schedule"] is not None and ("schedule" in changes or "timezone" in changes):
        try:
            parse(job["schedule"], job["timezone"])
        except ScheduleError as error:
            if error.field == "schedule":  # not a zone of a newer tz database than ours
                raise
    return job


def pause(conn: Connection[Any], name: str, reason: str | None = None, by: str | None = None) -> Row:
    """Stop deciding slots of a job; runs that exist go on. The author is the session's user where none is given."""
    return known(conn, name, one(conn, "job_pause", {"name": name, "reason": reason, "paused_by": by})) and show(
        conn, name
    )


def resume(conn: Connection[Any], name: str, since: str = "now") -> Row:
    """Decide slots again: since `now` (those passed over are recorded as skipped), or since the `pause` (catch_up)."""
    if since not in ("now", "pause"):
        raise InputError(f'from: "{since}" is not one of now, pause', "from")
    return known(conn, name, one(conn, "job_resume", {"name": name, "resume_from": since})) and show(conn, name)


def reset_mark(conn: Connection[Any], name: str) -> Row:
    """Set the mark of a job that lies ahead of the clock back to now, or to its newest slot: (before, mark, now)."""
    show(conn, name)
    return known(conn, name, one(conn, "job_reset_mark", {"name": name}))


def delete(conn: Connection[Any], name: str) -> Row:
    """Remove a job and cancel its unstarted runs; says how many are still running."""
    return known(conn, name, one(conn, "job_delete", {"name": name}))


def list_jobs(
    conn: Connection[Any],
    *,
    queue: str | None = None,
    state: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> list[Row]:
    """Jobs by name (see job_list in sql/jobs.sql); `after` is the last name of the page before."""
    if state not in (None, *STATES):
        raise InputError(f'state: "{state}" is not one of {", ".join(STATES)}', "state")
    found = rows(conn, "job_list", {"queue": queue, "state": state, "after": after, "n": limit})
    return [foreseen(row) for row in found]


def show(conn: Connection[Any], name: str) -> Row:
    """One job with all its columns, and `next_allowed_at` (see `foreseen`)."""
    return foreseen(known(conn, name, one(conn, "job_show", {"name": name})))


def foreseen(job: Row) -> Row:
    """The row with `next_allowed_at`: its next slot that falls on no excluded date."""
    return job | {"next_allowed_at": next_allowed(job)}


def recent(conn: Connection[Any], job_id: int, n: int = 10) -> list[Row]:
    """The newest runs of a job, by slot."""
    return rows(conn, "job_recent", {"job_id": job_id, "n": n})


def trigger(conn: Connection[Any], name: str, args: Any = None, overlap: str = "allow") -> int:
    """Run a job now, beside its schedule; returns the run's id.

    `overlap`: the policy that the run obeys towards the job's unfinished ones; if it is not to be, it ends as skipped.
    """
    values = {"name": name, "args": None if args is None else json_text(args), "overlap": overlap}
    show(conn, name)
    return int(known(conn, name, one(conn, "job_trigger", values))["id"])


def similar(conn: Connection[Any], name: str) -> list[str]:
    """Names of jobs that somebody who wrote this may have meant: those that contain it, whatever its case, first."""
    contain = column(conn, "jobs_similar", {"text": name, "n": 8})
    return contain or text.similar(name, column(conn, "names_known", {"what": "job"}))


def unknown(conn: Connection[Any], name: str) -> NotFound:
    """There is no such job."""
    meant = similar(conn, name)[:3]
    hint = f"; did you mean {' or '.join(meant)}?" if meant else ": `pgsched job list` shows those that exist"
    return NotFound(f'there is no job named "{name}"{hint}')


def known(conn: Connection[Any], name: str, row: Row | None) -> Row:
    """The row, or NotFound."""
    if row is None:
        raise unknown(conn, name)
    return row
