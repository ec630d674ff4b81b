"""Write many jobs with one statement.

Invariant: a statement writes all its jobs or none. Where the database refuses a statement, the job at fault is found by
halving, and the error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql as composing
from psycopg.types.json import Jsonb

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.job_columns import SETTABLE, identifiers
from pgsched.db.rows import rows
from pgsched.errors import InputError

# Columns that the file of jobs has in another form, or that are the key.
NOT_COLUMNS = ("name", "after_jobs")
WRITTEN = tuple(column for column in SETTABLE if column not in NOT_COLUMNS)
# A row without one of these leaves it as it is; a row has all others.
MAY_STAY = ("mode", "paused", "paused_reason", "paused_by", "resume_from", "run_at")
ADD = composing.SQL("""
INSERT INTO pgsched.jobs (name, {columns})
SELECT w.name, {values} FROM jsonb_populate_recordset(NULL::pgsched.jobs, %(rows)s::jsonb) w
RETURNING name""")
CHANGE = composing.SQL("""
UPDATE pgsched.jobs j SET ({columns}) = ROW({values})
FROM jsonb_array_elements(%(rows)s::jsonb) r(given)
CROSS JOIN LATERAL jsonb_populate_record(NULL::pgsched.jobs, r.given) w
WHERE j.name = r.given ->> 'name' AND j.declared_by IS NULL
RETURNING j.name""")
STAYS = composing.SQL("CASE WHEN r.given ? {name} THEN w.{column} ELSE j.{column} END")
TAKEN = "name: it is taken, by a job that this role may not see or that was made meanwhile"
Write = Callable[[Connection[Any], Sequence[Any]], list[Row]]


def add_jobs(conn: Connection[Any], jobs: Sequence[dict[str, Any]]) -> list[Row]:
    """Insert jobs; return their names. Raises InputError that names the job at fault.

    `jobs`: the name and all of WRITTEN, as jsonb_populate_record reads them.
    """
    return write_or_blame(conn, _add, jobs)


def change_jobs(conn: Connection[Any], jobs: Sequence[dict[str, Any]]) -> list[Row]:
    """Update jobs, with all columns but those in MAY_STAY that a row leaves out; return their names."""
    return write_or_blame(conn, _change, jobs)


def _add(conn: Connection[Any], jobs: Sequence[dict[str, Any]]) -> list[Row]:
    text = ADD.format(columns=identifiers(WRITTEN), values=identifiers(WRITTEN, "w"))
    return rows(conn, text, {"rows": Jsonb(list(jobs))})


def _change(conn: Connection[Any], jobs: Sequence[dict[str, Any]]) -> list[Row]:
    values = [
        STAYS.format(name=composing.Literal(column), column=composing.Identifier(column))
        if column in MAY_STAY
        else composing.Identifier("w", column)
        for column in WRITTEN
    ]
    text = CHANGE.format(columns=identifiers(WRITTEN), values=composing.SQL(", ").join(values))
    return rows(conn, text, {"rows": Jsonb(list(jobs))})


def clear_parents(conn: Connection[Any], names: Sequence[str]) -> None:
    """Let jobs wait for no others."""
    rows(conn, "file_jobs_unwait", {"names": list(names)})


def set_parents(conn: Connection[Any], parents: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Set the jobs that jobs wait for: (name, names of the others). Raises InputError that names the job at fault."""

    def write(conn: Connection[Any], some: Sequence[Any]) -> list[Row]:
        found = rows(conn, "file_jobs_wait", {"rows": Jsonb([[name, list(names)] for name, names in some])})
        for row in found:
            if row["missing"]:
                raise InputError(f"after: {row['missing']} of the jobs that it waits for are gone", "after")
        return found

    write_or_blame(conn, write, parents)


def set_dates(conn: Connection[Any], dates: Sequence[tuple[str, Sequence[Sequence[str | None]]]]) -> None:
    """Set the excluded dates of jobs: (name, [first date, last date, reason]). The dates that they have go."""

    def write(conn: Connection[Any], some: Sequence[Any]) -> list[Row]:
        rows(conn, "file_dates_clear", {"names": [name for name, _ in some]})
        return rows(conn, "file_dates_add", {"rows": Jsonb([[name, *one] for name, given in some for one in given])})

    write_or_blame(conn, write, dates)


def delete_jobs(conn: Connection[Any], names: Sequence[str]) -> int:
    """Delete jobs; return how many are gone."""
    return len(rows(conn, "file_jobs_delete", {"names": list(names)}))


def write_or_blame(conn: Connection[Any], write: Write, jobs: Sequence[Any]) -> list[Row]:
    """Write jobs with one statement. Raises the error of the job at fault, with its name."""
    if not jobs:
        return []
    try:
        with conn.transaction():
            return write(conn, jobs)
    except InputError as error:
        name = find_fault(conn, write, jobs)
        problem = TAKEN if is_taken_name(error.__cause__) else str(error)
        raise InputError(problem if name is None else f"job {name}: {problem}", error.field) from error


def is_taken_name(error: BaseException | None) -> bool:
    """Check whether the name of a job is taken."""
    return isinstance(error, psycopg.Error) and error.diag.constraint_name == "jobs_name_key"


def find_fault(conn: Connection[Any], write: Write, jobs: Sequence[Any]) -> str | None:
    """Return the name of a job whose row alone is refused; None if only several together are."""
    left = jobs
    while len(left) > 1:
        half = left[: len(left) // 2]
        left = half if refuses(conn, write, half) else left[len(half) :]
    if not left or not refuses(conn, write, left):
        return None
    (job,) = left
    return str(job["name"] if isinstance(job, dict) else job[0])


def refuses(conn: Connection[Any], write: Write, jobs: Sequence[Any]) -> bool:
    """Check whether these jobs are refused; nothing stays written."""
    try:
        with conn.transaction(force_rollback=True):
            write(conn, jobs)
    except InputError:
        return True
    return False
