"""Jobs declared in code: create, update and remove rows of `jobs` until they agree with an app's declarations.

Invariant: a job declared in code belongs to that code. Jobs of other apps, jobs of owners who may not declare, and jobs
made by SQL are left alone.

Every column that code can declare gets the declared value or its default. A row is locked and written only if something
differs. So a restart does not move a schedule's anchor, and the start of a fleet makes no slot late. A row that another
session has locked stays as it is and is reported as held.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import psycopg
from psycopg import sql as composing

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.job_columns import SETTABLE, explain_refusal, identifiers, placeholder, prepare_values
from pgsched.db.rows import first_row, rows, value
from pgsched.errors import InputError, LockTimeout

# What an operator may change of a declared job: a declaration changes these columns only if it sets them itself.
LEFT_TO_OPERATORS = ("paused", "paused_reason", "paused_by", "resume_from", "mode")
UPSERT = composing.SQL("""
INSERT INTO pgsched.jobs AS j ({columns}, declared_by) VALUES ({values}, %(declared_by)s)
ON CONFLICT (name) DO UPDATE SET ({columns}) = ROW({excluded})
    WHERE j.declared_by = %(declared_by)s AND %(update)s AND ROW({own}) IS DISTINCT FROM ROW({excluded})
RETURNING xmax = 0 AS created""")
COMPARE = composing.SQL("""
SELECT j.declared_by, ROW({own}) IS DISTINCT FROM ROW({values}) AS differs
FROM pgsched.jobs j WHERE j.name = %(name)s""")
UNCHANGED, FOREIGN, LOCKED = "unchanged", "foreign", "held"
LOCK_WAIT_S = 1.0  # for all jobs of one call together
LEAST_WAIT_S = 0.01  # for one statement, also when that time is used up


class Declaration(Protocol):
    """A job as code declares it."""

    @property
    def name(self) -> str:
        """Return the job's name."""

    @property
    def task(self) -> str:
        """Return what the job runs: a task's name, a program, a command line, SQL or a URL."""

    @property
    def schedule(self) -> str | None:
        """Return the cron expression or interval; None: the job runs once."""

    @property
    def timezone(self) -> str:
        """Return the name of the time zone in which the schedule is read."""

    @property
    def args(self) -> Any:
        """Return the arguments, a value that JSON can hold."""

    @property
    def policies(self) -> Mapping[str, Any]:
        """Return the values of further columns, by column (see `SETTABLE`)."""


def declare(
    conn: Connection[Any],
    declarations: Iterable[Declaration],
    declared_by: str,
    *,
    remove: bool = True,
    update: bool = True,
    wait_s: float = LOCK_WAIT_S,
) -> dict[str, str]:
    """Make the rows of `jobs` agree with the code; return what was done with each job, by name.

    The results are created, updated, unchanged, foreign (not this app's to declare), removed, left, and held (another
    session has locked the row). Locked rows are waited for, `wait_s` seconds for all jobs together, and then stay as
    they are. All other changes are made together or not at all.

    `remove`: delete the jobs that the app no longer declares; else they are left
    `update`: update existing rows that differ; else they count as unchanged
    """
    with conn.transaction():
        locked = value(conn, "declare_lock")
        return declare_in_turn(conn, declarations, declared_by, remove=remove and locked, update=update, wait_s=wait_s)


def declare_in_turn(
    conn: Connection[Any],
    declarations: Iterable[Declaration],
    declared_by: str,
    *,
    remove: bool,
    update: bool,
    wait_s: float = LOCK_WAIT_S,
) -> dict[str, str]:
    """Do what `declare` does, in the caller's transaction, which has taken the lock of declaring processes.

    Set `remove` only where that lock was taken. Without it a process that has just started may declare a job that this
    one removes. Raises InputError where a name is declared twice.
    """
    wanted = sort_by_dependencies(declarations)
    names = [declaration.name for declaration in wanted]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"name: declared twice: {', '.join(sorted(twice))}", "name")
    done = find_unwritten(conn, wanted, declared_by, update=update)
    (before,) = conn.execute("SELECT current_setting('lock_timeout')").fetchone()  # type: ignore[misc]
    until = time.monotonic() + wait_s
    for declaration in wanted:
        if declaration.name not in done:
            set_lock_timeout(conn, f"{1000 * max(LEAST_WAIT_S, until - time.monotonic()):.0f}ms")
            done[declaration.name] = reconcile(conn, declaration, declared_by, update)
    set_lock_timeout(conn, f"{1000 * max(LEAST_WAIT_S, until - time.monotonic()):.0f}ms")
    done |= remove_others(conn, declared_by, names, remove)
    set_lock_timeout(conn, before)
    return {name: done[name] for name in (*names, *(name for name in done if name not in names))}


def set_lock_timeout(conn: Connection[Any], setting: str) -> None:
    """Set lock_timeout until the transaction ends or the next call."""
    conn.execute("SELECT set_config('lock_timeout', %s, true)", [setting])


def remove_others(conn: Connection[Any], declared_by: str, names: list[str], remove: bool) -> dict[str, str]:
    """Remove, or only find, jobs that this app no longer declares; return name -> removed or left.

    Where another session has locked one of them, all are left: the leader removes them later (`registration.withdraw`).
    """
    values = {"declared_by": declared_by, "names": names}
    try:
        with conn.transaction():
            found = rows(conn, "declare_removed", values | {"remove": remove})
            return {row["name"]: "removed" if remove else "left" for row in found}
    except LockTimeout:
        return {row["name"]: "left" for row in rows(conn, "declare_removed", values | {"remove": False})}


def find_unwritten(
    conn: Connection[Any], declarations: Iterable[Declaration], declared_by: str, *, update: bool = True
) -> dict[str, str]:
    """Find the jobs that need not or must not be written: name -> unchanged, or foreign (and whose). Locks nothing."""
    defaults = {row["name"]: composing.SQL(row["expression"]) for row in rows(conn, "declare_defaults")}
    wanted = list(declarations)
    taken = rows(conn, "declare_squatted", {"names": [one.name for one in wanted]})
    done = {str(row["name"]): f"{FOREIGN}: it is a job of {row['owner']}" for row in taken}
    for declaration in wanted:
        if declaration.name in done:  # whatever its declared_by says: its owner can read and change what it runs
            continue
        try:
            with conn.transaction():
                found = compare_job(conn, declaration, defaults)
        except (psycopg.DataError, InputError):  # writing the row fails too, and that error names the column
            continue
        if found is not None and found[0] != declared_by:
            done[declaration.name] = FOREIGN
        elif found is not None and not (found[1] and update):
            done[declaration.name] = UNCHANGED
    return done


def compare_job(
    conn: Connection[Any], declaration: Declaration, defaults: Mapping[str, composing.SQL]
) -> tuple[str | None, bool] | None:
    """Return which app declares the job, and whether a column differs; None if the job does not exist.

    `defaults`: the SQL expression of each column's default.
    """
    values = resolve_columns(conn, declaration)
    null = composing.SQL("NULL")
    texts = [
        composing.SQL("({})::{}").format(
            defaults.get(column, null) if value is None else composing.Placeholder(column),
            composing.SQL(SETTABLE[column]),
        )
        for column, value in values.items()
    ]
    text = COMPARE.format(own=identifiers(values, "j"), values=composing.SQL(", ").join(texts))
    return conn.execute(text, values).fetchone()


def sort_by_dependencies(declarations: Iterable[Declaration]) -> list[Declaration]:
    """Sort declarations by name, but each job after the jobs that it waits for."""
    left = sorted(declarations, key=lambda declaration: declaration.name)
    found: list[Declaration] = []
    while left:
        names = {declaration.name for declaration in left}
        free = [one for one in left if not names & {*(one.policies.get("after_jobs") or ())}]
        found += free or left  # a circle has no order; the database refuses it
        left = [one for one in left if one not in found]
    return found


def ids_of(conn: Connection[Any], job: str, names: Iterable[str]) -> list[int]:
    """Return the ids of the jobs that `job` waits for, ascending. Raises InputError where one does not exist."""
    found = dict(conn.execute("SELECT name, id FROM pgsched.jobs WHERE name = ANY (%s)", [list(names)]).fetchall())
    if missing := sorted({*names} - {*found}):
        raise InputError(f'job {job}: after_jobs: there is no job named "{missing[0]}"', "after_jobs")
    return sorted(found.values())


def reconcile(conn: Connection[Any], declaration: Declaration, declared_by: str, update: bool) -> str:
    """Create one job, or update its row where it differs and `update` is set; return what was done."""
    values = resolve_columns(conn, declaration)
    text, params = upsert(values), {**values, "declared_by": declared_by, "update": update}
    for _ in range(3):
        try:
            with conn.transaction():
                row = conn.execute(text, params).fetchone()
        except psycopg.errors.LockNotAvailable:
            holder = first_row(conn, "declare_holder", {"name": declaration.name})
            pid = holder["pid"] if holder is not None else None
            return LOCKED if pid is None else f"{LOCKED} by session {pid}"
        except psycopg.Error as error:
            refusal = explain_refusal(conn, error, values)
            if isinstance(refusal, InputError):
                refusal = InputError(f"job {declaration.name}: {refusal}")
            # other errors than InputError keep their class, and so their exit code: a start may be retried
            raise refusal from error
        if row is not None:
            return "created" if row[0] else "updated"
        found = first_row(conn, "declared_by", {"name": declaration.name})
        if found is not None:
            return UNCHANGED if found["declared_by"] == declared_by else FOREIGN
        # another transaction has deleted the conflicting row: insert again
    return FOREIGN


def resolve_columns(conn: Connection[Any], declaration: Declaration) -> dict[str, Any]:
    """Return the declared columns, with the ids of the jobs in `after_jobs` instead of their names."""
    values = columns_of(declaration)
    if values["after_jobs"]:
        values["after_jobs"] = ids_of(conn, declaration.name, values["after_jobs"])
    return values


def columns_of(declaration: Declaration) -> dict[str, Any]:
    """Return every column that code can declare: the declared value, or None for its default."""
    given = {
        **prepare_values(declaration.policies),
        "task": declaration.task,
        "schedule": declaration.schedule,
        "timezone": declaration.timezone,
        **prepare_values({"args": declaration.args}),
    }
    # a job that runs once and declares no time runs at the instant of the first start, which must not move
    left_alone = {*LEFT_TO_OPERATORS, *(("run_at",) if declaration.schedule is None else ())} - {*given}
    return {column: given.get(column) for column in SETTABLE if column not in left_alone} | {"name": declaration.name}


def upsert(values: Mapping[str, Any]) -> composing.Composed:
    """Return the statement that inserts the row, or updates it where this app declares it and a column differs."""
    return UPSERT.format(
        columns=identifiers(values),
        values=composing.SQL(", ").join(placeholder(column, value) for column, value in values.items()),
        excluded=identifiers(values, "excluded"),
        own=identifiers(values, "j"),
    )
