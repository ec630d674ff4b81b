"""Jobs as people make, change, pause, run and delete them. The database checks the values; here is what a person
should be told of a change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pgsched.core.model import Row
from pgsched.core.schedule.preview import ended_unstarted
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports import name_hints

ROUTED = {"task", "kind", "queue", "args"}  # columns that say who runs it, and with what


@dataclass(frozen=True, slots=True)
class Deleted:
    """A job that is gone. `result`: its name, and how many of its runs still run; `declared_by`: the app whose code
    makes it again, None: no code does."""

    result: Row
    declared_by: str | None


def add(conn: Connection[Any], values: Mapping[str, Any]) -> Row:
    """Make a job; returns it whole. Raises InputError."""
    return jobs.add(conn, values)


def update(conn: Connection[Any], name: str, changes: Mapping[str, Any]) -> Row:
    """Change columns of a job; returns it whole. Raises InputError or NotFound."""
    return jobs.update(conn, name, changes)


def notes(conn: Connection[Any], job: Row, changed: Collection[str] = ROUTED) -> list[str]:
    """What a person should know of a job in which these columns were set: it may not do what was meant."""
    found = []
    if job["declared_by"] is not None:
        owner = f"the code of {job['declared_by']} declares this job"
        found.append(f"{owner}: its next start puts the declared values back")
    if (warning := ended_unstarted(job)) is not None:
        found.append(warning)
    return found + (name_hints.about_job(conn, job) if ROUTED & set(changed) else [])


def pause(conn: Connection[Any], name: str, reason: str | None = None, by: str | None = None) -> Row:
    """Stop deciding slots of a job; runs that exist go on. `by`: None is the session's user. Raises NotFound."""
    return jobs.pause(conn, name, reason, by)


def resume(conn: Connection[Any], name: str, since: str = "now") -> Row:
    """Decide slots again, since `now` or since the `pause`. Raises InputError or NotFound."""
    return jobs.resume(conn, name, since)


def reset_mark(conn: Connection[Any], name: str) -> Row:
    """Set a mark that lies ahead of the clock back: (before, mark, now). Raises NotFound."""
    return jobs.reset_mark(conn, name)


def run(conn: Connection[Any], name: str, args: Any = None, overlap: str = "allow") -> int:
    """Run a job now, beside its schedule; returns the run's id. `overlap`: the policy that it obeys towards unfinished
    runs of the job. Raises InputError or NotFound."""
    return jobs.trigger(conn, name, args, overlap)


def delete(conn: Connection[Any], name: str) -> Deleted:
    """Delete a job and cancel its unstarted runs. Raises NotFound."""
    declared_by = jobs.show(conn, name)["declared_by"]
    return Deleted(jobs.delete(conn, name), declared_by)
