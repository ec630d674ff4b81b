"""The columns of `jobs` that a person may set: their types, how values are sent, and the errors of refused values.

Invariant: a refusal names its column. Triggers name the column of every bad value. Where a text cannot be read as the
column's type at all, PostgreSQL does not name the column; `explain_refusal` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg import sql as composing
from psycopg.types.json import Jsonb

from pgsched.core import payload
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import explain_error, raise_explained
from pgsched.db.rows import acting_for_user
from pgsched.errors import InputError, PgschedError

# column -> the PostgreSQL type that its text is read as (a test compares these with the catalog)
SETTABLE = {
    "name": "text", "description": "text", "kind": "text", "task": "text", "args": "jsonb", "queue": "text",
    "priority": "smallint", "tags": "text[]", "schedule": "text", "timezone": "text", "run_at": "timestamptz",
    "starts_at": "timestamptz", "ends_at": "timestamptz", "max_runs": "integer", "jitter": "interval",
    "delete_after_run": "boolean", "overlap": "text", "max_buffer": "integer", "retry_within": "interval",
    "misfire_after": "interval", "catch_up": "text", "max_catch_up": "integer", "catch_up_window": "interval",
    "start_deadline": "interval", "max_attempts": "integer", "timeout": "interval", "kill_after": "interval",
    "backoff": "text", "backoff_base": "interval", "backoff_max": "interval", "backoff_jitter": "double precision",
    "success_codes": "integer[]", "retry_codes": "integer[]", "dead_codes": "integer[]", "concurrency_key": "text",
    "concurrency_limit": "integer", "after_jobs": "bigint[]", "paused": "boolean", "paused_reason": "text",
    "paused_by": "text", "resume_from": "text", "keep": "jsonb", "alert_after_failures": "integer",
    "max_lateness": "interval", "max_duration": "interval", "expect_every": "interval",
}  # fmt: skip


def json_text(args: Any) -> str:
    """Return the JSON text of a payload. Raises InputError where it cannot be stored.

    That is checked before it is sent: a refused payload may have ten megabytes.
    """
    try:
        return payload.encode(args)
    except ValueError as error:
        raise InputError(f"args: {error}", "args") from None


def prepare_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as they are sent.

    Raises InputError for a column that people may not set, and for a payload that is too large.
    """
    for column in values:
        if column not in SETTABLE:
            raise InputError(f"{column}: is not a column to set; these are: {', '.join(SETTABLE)}", column)
    as_sent = {"args": lambda v: None if v is None else json_text(v), "keep": encode_keep}
    return {c: as_sent[c](v) if c in as_sent else v for c, v in values.items()}


def encode_keep(value: Any) -> Any:
    """Return a `keep` setting (lengths of time by outcome) as the driver sends it; JSON text stays as it is.

    Raises InputError.
    """
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        raise InputError('keep: expected times by outcome, like {"dead": "90 days", "any": "7 days"}', "keep")
    try:
        text = payload.encode(dict(value))
    except ValueError as error:
        raise InputError(f"keep: {error}", "keep") from None
    return Jsonb(value, dumps=lambda _: text)


def placeholder(column: str, value: Any) -> composing.Composable:
    """Return the SQL that stands for a value in VALUES (...): DEFAULT for None, else a placeholder."""
    return composing.DEFAULT if value is None else composing.Placeholder(column)


def identifiers(columns: Iterable[str], *table: str) -> composing.Composed:
    """Return the quoted names of columns, separated by commas, each qualified by `table` if that is given."""
    return composing.SQL(", ").join(composing.Identifier(*table, column) for column in columns)


def write_job(conn: Connection[Any], statement: composing.SQL, values: dict[str, Any], more: dict[str, Any]) -> bool:
    """Send an INSERT or UPDATE of these columns; return whether it wrote a row.

    `more`: parameters beside the columns' values. Raises PgschedError; an InputError names the column.
    """
    text = statement.format(
        columns=identifiers(values),
        values=composing.SQL(", ").join(placeholder(column, value) for column, value in values.items()),
        name=composing.Placeholder("old name"),
    )
    try:
        # A savepoint where the caller has a transaction: `explain_refusal` sends further statements after an error.
        with conn.transaction(), acting_for_user(conn):
            return conn.execute(text, {**values, **more}).fetchone() is not None
    except psycopg.Error as error:
        raise explain_refusal(conn, error, values) from error


def explain_refusal(conn: Connection[Any], error: psycopg.Error, values: Mapping[str, Any]) -> PgschedError:
    """Turn a driver's error into ours, with the column's name where PostgreSQL leaves it out.

    PostgreSQL leaves it out where a text is no value of the column's type (SQLSTATE class 22). Then each value is cast
    alone, to find the column.
    """
    if error.diag.constraint_name == "jobs_name_key":
        return InputError(f'name: there is a job named "{values.get("name")}" already', "name")
    if error.sqlstate is not None and error.sqlstate.startswith("22"):
        for column, value in values.items():
            problem = type_problem(conn, column, value)
            if problem is not None:
                return InputError(f"{column}: {problem}", column)
    try:
        with raise_explained():
            raise error
    except PgschedError as refusal:
        return refusal


def type_problem(conn: Connection[Any], column: str, value: Any) -> str | None:
    """Return what the database says of a value that it cannot read as the column's type; None if it can."""
    cast = composing.SQL("SELECT {}::{}").format(composing.Placeholder("value"), composing.SQL(SETTABLE[column]))
    try:
        with conn.transaction():
            conn.execute(cast, {"value": Jsonb(value) if isinstance(value, dict) else value})
    except psycopg.DataError as error:
        return str(explain_error(error)) if error.sqlstate else str(error)
    return None
