"""The rule: a job declared in code belongs to that code, and to nothing else.

Every column that code can declare takes the declared value or its default; rows of other apps, of owners who may not
declare, and rows made by SQL, are left alone. A row is locked and written only when something differs: a restart does
not move a schedule's anchor, and the start of a fleet makes no slot late. A row that somebody has locked stays as it
is, and is said to be held.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import psycopg
from psycopg import sql as composing

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.job_columns import SETTABLE, checked, identifiers, placeholder, refused
from pgsched.db.rows import one, rows, value
from pgsched.errors import InputError, LockTimeout

# An operator may pause what code declares; only a declaration that says so itself pauses or resumes a job.
LEFT_TO_OPERATORS = ("paused", "paused_reason", "paused_by", "resume_from")
UPSERT = composing.SQL("""
INSERT INTO pgsched.jobs AS j ({columns}, declared_by) VALUES ({values}, %(declared_by)s)
ON CONFLICT (name) DO UPDATE SET ({columns}) = ROW({excluded})
    WHERE j.declared_by = %(declared_by)s AND %(update)s AND ROW({own}) IS DISTINCT FROM ROW({excluded})
RETURNING xmax = 0 AS created""")
COMPARE = composing.SQL("""
SELECT j.declared_by, ROW({own}) IS DISTINCT FROM ROW({values}) AS differs
FROM pgsched.jobs j WHERE j.name = %(name)s""")
UNCHANGED, FOREIGN, HELD = "unchanged", "foreign", "held"
LOCK_WAIT_S = 1.0  # for all jobs of a declaration together
LEAST_WAIT_S = 0.01


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
    wait_s: float = LOCK_WAIT_S,
) -> dict[str, str]:
    """Make the table agree with the code: name -> created, updated, unchanged, foreign, removed, or held by whom: what
    somebody has locked is waited for `wait_s` seconds together, and is left as it is. Otherwise all or nothing.

    Without `remove`, jobs that are not declared are left as they are (and called left); without `update`, those that
    are there already.
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
    """As `declare`, in the caller's transaction, which has the lock of all that declare. `remove` only if it has: else
    a process that has just come may declare what would be taken away."""
    wanted = in_order(declarations)
    names = [declaration.name for declaration in wanted]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"name: declared twice: {', '.join(sorted(twice))}", "name")
    done = compare(conn, wanted, declared_by, update=update)
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
    """Until the transaction ends, or is told otherwise."""
    conn.execute("SELECT set_config('lock_timeout', %s, true)", [setting])


def remove_others(conn: Connection[Any], declared_by: str, names: list[str], remove: bool) -> dict[str, str]:
    """The jobs that this app declared before and declares no more: removed, or left (also where somebody has locked
    one: the leader takes them away later)."""
    values = {"declared_by": declared_by, "names": names}
    try:
        with conn.transaction():
            found = rows(conn, "declare_removed", values | {"remove": remove})
            return {row["name"]: "removed" if remove else "left" for row in found}
    except LockTimeout:
        return {row["name"]: "left" for row in rows(conn, "declare_removed", values | {"remove": False})}


def compare(
    conn: Connection[Any], declarations: Iterable[Declaration], declared_by: str, *, update: bool = True
) -> dict[str, str]:
    """The jobs that need not be, or must not be written: name -> unchanged, or foreign (and whose). Nothing is locked
    for that."""
    defaults = {row["name"]: composing.SQL(row["expression"]) for row in rows(conn, "declare_defaults")}
    wanted = list(declarations)
    taken = rows(conn, "declare_squatted", {"names": [one.name for one in wanted]})
    done = {str(row["name"]): f"{FOREIGN}: it is a job of {row['owner']}" for row in taken}
    for declaration in wanted:
        if declaration.name in done:  # whatever it says of itself: its owner reads what it runs, and changes it
            continue
        try:
            with conn.transaction():
                found = look_at(conn, declaration, defaults)
        except (psycopg.DataError, InputError):  # the database says which column it is, when the row is written
            continue
        if found is not None and found[0] != declared_by:
            done[declaration.name] = FOREIGN
        elif found is not None and not (found[1] and update):
            done[declaration.name] = UNCHANGED
    return done


def look_at(
    conn: Connection[Any], declaration: Declaration, defaults: Mapping[str, composing.SQL]
) -> tuple[str | None, bool] | None:
    """Whose the job is, and whether a column differs; None: there is no such job."""
    values = resolved(conn, declaration)
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
    values = resolved(conn, declaration)
    text, params = upsert(values), {**values, "declared_by": declared_by, "update": update}
    for _ in range(3):
        try:
            with conn.transaction():
                row = conn.execute(text, params).fetchone()
        except psycopg.errors.LockNotAvailable:
            holder = one(conn, "declare_holder", {"name": declaration.name})
            pid = holder["pid"] if holder is not None else None
            return HELD if pid is None else f"{HELD} by session {pid}"
        except psycopg.Error as error:
            told = refused(conn, error, values)
            if isinstance(told, InputError):
                told = InputError(f"job {declaration.name}: {told}")
            raise told from error  # what is no fault of the declaration keeps its exit code: a start may be tried again
        if row is not None:
            return "created" if row[0] else "updated"
        found = one(conn, "declared_by", {"name": declaration.name})
        if found is not None:
            return UNCHANGED if found["declared_by"] == declared_by else FOREIGN
        # somebody deleted the row that was in the way: insert again
    return FOREIGN


def resolved(conn: Connection[Any], declaration: Declaration) -> dict[str, Any]:
    """The columns, with the ids of the jobs that it waits for."""
    values = columns_of(declaration)
    if values["after_jobs"]:
        values["after_jobs"] = ids_of(conn, declaration.name, values["after_jobs"])
    return values


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
