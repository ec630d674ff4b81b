"""The rule: a job declared in code belongs to that code, and to nothing else.

Every column that code can declare takes the declared value or its default; rows of other apps, and rows made by SQL,
are left alone. A row is written only when something differs, so that a restart does not move a schedule's anchor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import psycopg
from psycopg import sql as composing

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.job_columns import SETTABLE, checked, identifiers, placeholder, refused
from pgsched.db.rows import one, rows
from pgsched.db.statements import sql
from pgsched.errors import InputError

# An operator may pause what code declares; only a declaration that says so itself pauses or resumes a job.
LEFT_TO_OPERATORS = ("paused", "paused_reason", "paused_by", "resume_from")
UPSERT = composing.SQL("""
INSERT INTO pgsched.jobs AS j ({columns}, declared_by) VALUES ({values}, %(declared_by)s)
ON CONFLICT (name) DO UPDATE SET ({columns}) = ROW({excluded})
    WHERE j.declared_by = %(declared_by)s AND %(update)s AND ROW({own}) IS DISTINCT FROM ROW({excluded})
RETURNING xmax = 0 AS created""")


class Declaration(Protocol):
    """A job as code declares it; `policies` maps further columns to their values."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def schedule(self) -> str | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def args(self) -> Any: ...
    @property
    def policies(self) -> Mapping[str, Any]: ...


def declare(
    conn: Connection[Any],
    declarations: Iterable[Declaration],
    declared_by: str,
    *,
    remove: bool = True,
    update: bool = True,
) -> dict[str, str]:
    """Make the table agree with the code: name -> created, updated, unchanged, foreign or removed. All or nothing.

    Without `remove`, jobs that are not declared are left as they are (and called left); without `update`, those that
    are there already.
    """
    wanted = in_order(declarations)
    names = [declaration.name for declaration in wanted]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"name: declared twice: {', '.join(sorted(twice))}", "name")
    with conn.transaction():
        conn.execute(sql("declare_lock"))
        done = {declaration.name: reconcile(conn, declaration, declared_by, update) for declaration in wanted}
        for row in rows(conn, "declare_removed", {"declared_by": declared_by, "names": names, "remove": remove}):
            done[row["name"]] = "removed" if remove else "left"
    return done


def in_order(declarations: Iterable[Declaration]) -> list[Declaration]:
    """By name, but that a job comes after those that it waits for."""
    left = sorted(declarations, key=lambda declaration: declaration.name)
    found: list[Declaration] = []
    while left:
        names = {declaration.name for declaration in left}
        free = [one for one in left if not names & {*(one.policies.get("after_jobs") or ())}]
        found += free or left  # the database refuses a circle
        left = [one for one in left if one not in found]
    return found


def ids_of(conn: Connection[Any], job: str, names: Iterable[str]) -> list[int]:
    """The ids of the jobs that a job waits for."""
    found = dict(conn.execute("SELECT name, id FROM pgsched.jobs WHERE name = ANY (%s)", [list(names)]).fetchall())
    if missing := sorted({*names} - {*found}):
        raise InputError(f'job {job}: after_jobs: there is no job named "{missing[0]}"', "after_jobs")
    return sorted(found.values())


def reconcile(conn: Connection[Any], declaration: Declaration, declared_by: str, update: bool) -> str:
    """Create one job, or update it unless it is to be left as it is; returns what was done."""
    values = columns_of(declaration)
    if values["after_jobs"]:
        values["after_jobs"] = ids_of(conn, declaration.name, values["after_jobs"])
    text, params = upsert(values), {**values, "declared_by": declared_by, "update": update}
    for _ in range(3):
        try:
            with conn.transaction():
                row = conn.execute(text, params).fetchone()
        except psycopg.Error as error:
            told = refused(conn, error, values)
            if isinstance(told, InputError):
                told = InputError(f"job {declaration.name}: {told}")
            raise told from error  # what is no fault of the declaration keeps its exit code: a start may be tried again
        if row is not None:
            return "created" if row[0] else "updated"
        found = one(conn, "declared_by", {"name": declaration.name})
        if found is not None:
            return "unchanged" if found["declared_by"] == declared_by else "foreign"
        # somebody deleted the row that was in the way: insert again
    return "foreign"


def columns_of(declaration: Declaration) -> dict[str, Any]:
    """Every column that code can declare: the declared value, or None for its default."""
    given = {
        **checked(declaration.policies),
        "task": declaration.task,
        "schedule": declaration.schedule,
        "timezone": declaration.timezone,
        **checked({"args": declaration.args}),
    }
    # "once, now": its time is the instant of the first start, and must not move
    left_alone = {*LEFT_TO_OPERATORS, *(("run_at",) if declaration.schedule is None else ())} - {*given}
    return {column: given.get(column) for column in SETTABLE if column not in left_alone} | {"name": declaration.name}


def upsert(values: Mapping[str, Any]) -> composing.Composed:
    """The statement that creates the row, or updates it where it is ours and differs."""
    return UPSERT.format(
        columns=identifiers(values),
        values=composing.SQL(", ").join(placeholder(column, value) for column, value in values.items()),
        excluded=identifiers(values, "excluded"),
        own=identifiers(values, "j"),
    )
