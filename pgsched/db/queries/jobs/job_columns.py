"""The columns of `jobs` that a person may set: their types, how values are sent, and the errors of refused values.

Invariant: a refusal names its column. Triggers name the column of every bad value. Where a text cannot be read as the
column's type at all, PostgreSQL does not name the column; `explain_refusal` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import errors
from psycopg import sql as composing
from psycopg.types.json import Jsonb

from pgsched.core import payload
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import UNSENDABLE, first_line, raise_explained
from pgsched.db.rows import acting_for_user
from pgsched.errors import InputError, PgschedError
from pgsched.log import redact

# column -> the PostgreSQL type that its text is read as (a test compares these with the catalog)
SETTABLE: Mapping[str, LiteralString] = {
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
    "max_lateness": "interval", "max_duration": "interval", "expect_every": "interval", "finish_by": "interval",
    "mode": "text", "calendar": "text", "on_excluded": "text", "after_match": "text",
    "pause_after_failures": "integer", "ping_url": "text", "alert_to": "text[]",
}  # fmt: skip

# A value is none of the column's type, or of a type that has no cast to it.
TYPE_ERRORS = (psycopg.DataError, errors.DatatypeMismatch, errors.CannotCoerce)


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

    Raises InputError for a column that people may not set, a payload that is too large, and a time without a zone.
    """
    for column, value in values.items():
        if column not in SETTABLE:
            raise InputError(f"{column}: is not a column to set; these are: {', '.join(SETTABLE)}", column)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise InputError(f"{column}: {value} has no time zone", column)
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
    """Return the SQL that stands for a value in VALUES (...): DEFAULT for None, else a placeholder.

    A text is cast to the column's type: some drivers send it as text, and not as an unknown type.
    """
    if value is None:
        return composing.DEFAULT
    return cast_to_column(column, column) if isinstance(value, str | Jsonb) else composing.Placeholder(column)


def cast_to_column(parameter: str, column: str, types: Mapping[str, LiteralString] = SETTABLE) -> composing.Composed:
    """Return the SQL that casts a parameter to the column's type. `types`: of the columns, as PostgreSQL names them."""
    return composing.SQL("{}::{}").format(composing.Placeholder(parameter), composing.SQL(types[column]))


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
        name=composing.Placeholder("job_to_change"),
    )
    try:
        # A savepoint where the caller has a transaction: `explain_refusal` sends further statements after an error.
        with conn.transaction(), acting_for_user(conn):
            return conn.execute(text, {**values, **more}).fetchone() is not None
    except psycopg.Error as error:
        raise explain_refusal(conn, error, values) from error


def explain_refusal(
    conn: Connection[Any],
    error: psycopg.Error,
    values: Mapping[str, Any],
    types: Mapping[str, LiteralString] = SETTABLE,
) -> PgschedError:
    """Turn a driver's error into ours, with the column's name where PostgreSQL leaves it out.

    PostgreSQL leaves it out where a value is none of the column's type, and a driver where it cannot send the value.
    Then each value is cast alone, to find the column.
    """
    if error.diag.constraint_name == "jobs_name_key":
        return InputError(f'name: there is a job named "{values.get("name")}" already', "name")
    if is_wrong_value(error):
        for column, value in values.items():
            problem = type_problem(conn, column, value, types)
            if problem is not None:
                return InputError(f"{column}: {problem}", column)
    try:
        with raise_explained():
            raise error
    except PgschedError as refusal:
        return refusal


def type_problem(
    conn: Connection[Any], column: str, value: Any, types: Mapping[str, LiteralString] = SETTABLE
) -> str | None:
    """Return what the database says of a value that it cannot read as the column's type; None if it can."""
    try:
        with conn.transaction():
            conn.execute(composing.SQL("SELECT {}").format(cast_to_column("value", column, types)), {"value": value})
    except psycopg.Error as error:
        if not is_wrong_value(error):
            raise
        return redact(first_line(error))
    return None


def is_wrong_value(error: psycopg.Error) -> bool:
    """Check whether a value was refused, by the driver or by the server."""
    return isinstance(error, TYPE_ERRORS) or (error.sqlstate is None and isinstance(error, UNSENDABLE))
