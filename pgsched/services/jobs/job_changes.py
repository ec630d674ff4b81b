"""Changes of jobs: make, edit, pause, resume, run and delete a job.

The database checks the values. This module adds notes that people should read about a change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pgsched.core.model import Kind, Row
from pgsched.core.policies import apply_preset, describe_preset
from pgsched.core.schedule.preview import jitter_warning
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports import name_hints
from pgsched.services.runs.enqueueing import check_arguments, note_misfit

ROUTED = {"task", "kind", "queue", "args"}  # columns that decide which worker runs it, and with which arguments


@dataclass(frozen=True, slots=True)
class Deleted:
    """A job that was deleted.

    `result`: its name, and how many of its runs are still running.
    `declared_by`: the app whose code makes the job again, None without one.
    """

    result: Row
    declared_by: str | None


def add(conn: Connection[Any], values: Mapping[str, Any], like: str | None = None, *, dry_run: bool = False) -> Row:
    """Make a job; return its whole row. Raises InputError.

    `like`: a preset (core/policies.py) for the columns that `values` leaves out.
    `dry_run`: make no job, and return the row that there would be, with what its slots depend on.
    """
    with conn.transaction(force_rollback=dry_run):
        created = jobs.add(conn, apply_preset(like, values))
        return jobs.show_planned_job(conn, created["name"]) if dry_run else created


def update(conn: Connection[Any], name: str, changes: Mapping[str, Any], like: str | None = None) -> Row:
    """Change columns of a job; return its whole row. Raises InputError or NotFound.

    `like`: a preset (core/policies.py) for the columns that `changes` leaves out.
    """
    return jobs.update(conn, name, apply_preset(like, changes))


def notes(conn: Connection[Any], job: Row, changed: Collection[str] = ROUTED, like: str | None = None) -> list[str]:
    """Return notes about a job in which these columns were set, if it may not do the intended work.

    `like`: the preset that was applied; a note says what it set.
    """
    found = []
    if like is not None:
        found.append(f"like {like}: {describe_preset(like, changed)}")
    if job["declared_by"] is not None:
        owner = f"the code of {job['declared_by']} declares this job"
        found.append(f"{owner}: its next start puts the declared values back")
    if not {"mode", "paused"}.isdisjoint(changed):
        found += notes_of_file(conn, job["name"], changed)
    if (warning := jitter_warning(job)) is not None:
        found.append(warning)
    if ROUTED & set(changed):
        found += name_hints.about_job(conn, job)
    fitted = job["kind"] == Kind.TASK and not {"task", "kind", "args"}.isdisjoint(changed)
    if fitted and isinstance(job["args"], dict | list) and (note := note_misfit(conn, job["task"], job["args"])):
        found.append(note)
    return found


def pause(conn: Connection[Any], name: str, reason: str | None = None, by: str | None = None) -> Row:
    """Stop deciding slots of a job; existing runs go on. `by`: None is the session's user. Raises NotFound.

    The row has `notes` beside its columns, as those of `resume` and `set_mode` have.
    """
    return with_notes(conn, jobs.pause(conn, name, reason, by), "paused")


def resume(conn: Connection[Any], name: str, since: str = "now") -> Row:
    """Decide slots again, since `now` or since the `pause`. Raises InputError or NotFound."""
    return with_notes(conn, jobs.resume(conn, name, since), "paused")


def set_mode(conn: Connection[Any], name: str, mode: str) -> Row:
    """Let slots of a job run (`run`), or only be recorded (`shadow`). Raises InputError or NotFound."""
    return with_notes(conn, jobs.set_mode(conn, name, mode), "mode")


def with_notes(conn: Connection[Any], job: Row, column: str) -> Row:
    """Return the row of a job with `notes`: a list with a sentence if a jobs file sets this column, else empty."""
    return job | {"notes": notes_of_file(conn, job["name"], {column})}


def notes_of_file(conn: Connection[Any], name: str, changed: Collection[str]) -> list[str]:
    """Return a sentence if a jobs file sets one of these columns, so that its next apply would undo the change.

    Only for `mode` and `paused` is it remembered whether the file names them.
    """
    found = jobs.file_decides(conn, name)
    if found is None or not (decided := sorted({*changed} & {*found["decides"]})):
        return []
    what = " and ".join(decided)
    declared = f'the file of owner "{found["owner"]}" declares {what} of job {name}'
    return [f"{declared}: the next apply sets it back, so change it in the file too"]


def reset_mark(conn: Connection[Any], name: str) -> Row:
    """Move a high-water mark back that lies ahead of the clock; return (before, mark, now). Raises NotFound."""
    return jobs.reset_mark(conn, name)


def run(conn: Connection[Any], name: str, args: Any = None, overlap: str = "allow") -> int:
    """Run a job now, beside its schedule; return the run's id. Raises InputError or NotFound.

    `args`: instead of the job's own; refused where they do not fit the newest release of the job's task.
    `overlap`: the overlap policy for unfinished runs of the job.
    """
    if args is not None:
        job = jobs.show_job(conn, name)
        if job["kind"] == Kind.TASK:
            check_arguments(conn, job["task"], args)
    return jobs.trigger(conn, name, args, overlap)


def delete(conn: Connection[Any], name: str) -> Deleted:
    """Delete a job and cancel its unstarted runs. Raises NotFound."""
    declared_by = jobs.show_job(conn, name)["declared_by"]
    return Deleted(jobs.delete(conn, name), declared_by)
