"""Jobs as people read and change them: add, update, pause, resume, trigger, delete, list, show.

Invariant: a job is what its row says. The database checks the row; these functions only name the columns. Values may be
Python values, or texts as PostgreSQL reads them ('90 seconds', '{0,3}'). None restores a column's default.
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
from pgsched.db.queries.jobs.job_columns import json_text, prepare_values, write_job
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.rows import column, first_row, rows
from pgsched.errors import InputError, NotFound, ScheduleError

__all__ = [
    "add", "declare", "delete", "list_jobs", "pause", "recent_runs", "resume", "show_job", "show_planned_job",
    "trigger", "update",
]  # fmt: skip

STATES = ("active", "paused", "error", "done", "shadow")
INSERT = composing.SQL("INSERT INTO pgsched.jobs ({columns}) VALUES ({values}) RETURNING name")
UPDATE = composing.SQL("UPDATE pgsched.jobs SET ({columns}) = ROW({values}) WHERE name = {name} RETURNING name")


def add(conn: Connection[Any], values: Mapping[str, Any]) -> Row:
    """Create a job; return all its columns.

    Raises InputError with the text ``field: reason``, in the database's words.
    """
    with conn.transaction():
        write_job(conn, INSERT, prepare_values(values), {})
        return check_schedule(show_job(conn, str(values["name"])), values)


def update(conn: Connection[Any], name: str, changes: Mapping[str, Any]) -> Row:
    """Change columns of a job; return all its columns. The slots of a new schedule begin now.

    Raises InputError as `add` does, and NotFound for an unknown job.
    """
    if not changes:
        raise InputError("nothing to change: give at least one option")
    with conn.transaction():
        if not write_job(conn, UPDATE, prepare_values(changes), {"job_to_change": name}):
            raise unknown_job(conn, name)
        return check_schedule(show_job(conn, str(changes.get("name") or name)), changes)


def check_schedule(job: Row, changes: Mapping[str, Any]) -> Row:
    """Return the job. Raises ScheduleError where its new schedule never fires.

    The database cannot find that out. Otherwise only the leader would, later.
    """
    if job["schedule"] is not None and ("schedule" in changes or "timezone" in changes):
        try:
            parse(job["schedule"], job["timezone"])
        except ScheduleError as error:
            # an unknown zone is no fault: the database accepted it, and its tz database may be newer than ours
            if error.field == "schedule":
                raise
    return job


def pause(conn: Connection[Any], name: str, reason: str | None = None, by: str | None = None) -> Row:
    """Stop deciding slots of a job; return the job. Runs that exist go on.

    `by`: the author, the session's user if None. Raises NotFound.
    """
    return require_row(
        conn, name, first_row(conn, "job_pause", {"name": name, "reason": reason, "paused_by": by})
    ) and show_job(conn, name)


def resume(conn: Connection[Any], name: str, since: str = "now") -> Row:
    """Decide slots of a job again; return the job. Raises InputError, NotFound.

    `since`: `now`: the slots of the pause are recorded as skipped; `pause`: the policy catch_up decides them.
    """
    if since not in ("now", "pause"):
        raise InputError(f'from: "{since}" is not one of now, pause', "from")
    return require_row(conn, name, first_row(conn, "job_resume", {"name": name, "resume_from": since})) and show_job(
        conn, name
    )


def set_mode(conn: Connection[Any], name: str, mode: str) -> Row:
    """Let slots of a job run, or only be recorded (`shadow`); return the job. Raises InputError, NotFound."""
    return update(conn, name, {"mode": mode})


def file_decides(conn: Connection[Any], name: str) -> Row | None:
    """Return whose file declares a job, and which of `mode` and `paused` it names; None: no file does."""
    return first_row(conn, "file_decides", {"name": name})


def reset_mark(conn: Connection[Any], name: str) -> Row:
    """Set a high-water mark that lies ahead of the clock back; return (before, mark, now). Raises NotFound.

    The new mark is now, or the job's newest slot that has a row, whichever is later.
    """
    show_job(conn, name)
    return require_row(conn, name, first_row(conn, "job_reset_mark", {"name": name}))


def delete(conn: Connection[Any], name: str) -> Row:
    """Delete a job and cancel its unstarted runs; return its id, name and how many runs are still running.

    Raises NotFound.
    """
    return require_row(conn, name, first_row(conn, "job_delete", {"name": name}))


def list_jobs(
    conn: Connection[Any],
    *,
    queue: str | None = None,
    state: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> list[Row]:
    """Return jobs by name: `job_list` in sql/jobs.sql, and `next_allowed_at` of each.

    `state`: one of STATES, None: any; `after`: the last name of the page before. Raises InputError.
    """
    if state not in (None, *STATES):
        raise InputError(
            f'state: "{state}" is not one of {", ".join(STATES)}{text.did_you_mean(state or "", STATES)}', "state"
        )
    found = rows(conn, "job_list", {"queue": queue, "state": state, "after": after, "n": limit})
    return [without_times(add_next_allowed(row)) for row in add_times_of_calendars(conn, found)]


def show_job(conn: Connection[Any], name: str) -> Row:
    """Return one job with all its columns and `next_allowed_at` (see `add_next_allowed`). Raises NotFound."""
    return without_times(show_planned_job(conn, name))


def show_planned_job(conn: Connection[Any], name: str) -> Row:
    """Return one job as `show_job` does, with what its slots depend on. Raises NotFound.

    That is `calendar_times`, the times of its calendar (None without one), and `shifts`.
    """
    (job,) = add_times_of_calendars(conn, [require_row(conn, name, first_row(conn, "job_show", {"name": name}))])
    return add_next_allowed(job)


def without_times(job: Row) -> Row:
    """Return the row without what only its planning needs."""
    return {column: value for column, value in job.items() if column not in ("calendar_times", "shifts")}


def monitored_job(conn: Connection[Any], job_id: int) -> Row | None:
    """Return what a monitor outside has to know of a job: `job_monitored` in sql/jobs.sql; None: there is none."""
    return first_row(conn, "job_monitored", {"id": job_id})


def add_next_allowed(job: Row) -> Row:
    """Return the row with `next_allowed_at`: the job's next slot that falls on no excluded time."""
    return job | {"next_allowed_at": next_allowed(job)}


def recent_runs(conn: Connection[Any], job_id: int, n: int = 10) -> list[Row]:
    """Return the `n` newest runs of a job, by slot."""
    return rows(conn, "job_recent", {"job_id": job_id, "n": n})


def trigger(conn: Connection[Any], name: str, args: Any = None, overlap: str = "allow") -> int:
    """Run a job now, beside its schedule; return the run's id. Raises InputError, NotFound.

    `overlap`: the policy for the case that the job has unfinished runs. Where it forbids the run, the run ends as
      skipped.
    """
    values = {"name": name, "args": None if args is None else json_text(args), "overlap": overlap}
    show_job(conn, name)
    return int(require_row(conn, name, first_row(conn, "job_trigger", values))["id"])


def similar_job_names(conn: Connection[Any], name: str) -> list[str]:
    """Return up to 8 names of jobs that contain this text, in any case; or else names of similar spelling."""
    contain = column(conn, "jobs_similar", {"text": name, "n": 8})
    return contain or text.similar_names(name, column(conn, "names_known", {"what": "job"}))


def unknown_job(conn: Connection[Any], name: str) -> NotFound:
    """Make the error for an unknown job, with the names that may have been meant."""
    meant = similar_job_names(conn, name)[:3]
    hint = f"; did you mean {' or '.join(meant)}?" if meant else ": `pgsched job list` shows those that exist"
    return NotFound(f'there is no job named "{name}"{hint}')


def require_row(conn: Connection[Any], name: str, row: Row | None) -> Row:
    """Return the row. Raises NotFound where it is None."""
    if row is None:
        raise unknown_job(conn, name)
    return row
