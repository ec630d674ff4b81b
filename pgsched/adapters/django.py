"""The rule: Django's `connection` (or one of its `connections`) stands for the psycopg connection it holds, in the
transaction it is in. Django is not imported to look at one: its objects are known by their classes."""

from __future__ import annotations

from typing import Any

from pgsched.adapters.sqlalchemy import made_by
from pgsched.errors import InputError


def django_held(given: Any) -> Any:
    """The driver's connection that a Django connection holds, opened if need be; anything else as it is.

    Raises InputError for a database other than PostgreSQL.
    """
    if not made_by(given, "django") or not hasattr(given, "ensure_connection"):
        return given
    if given.vendor != "postgresql":
        raise InputError(f"connection: it is of {given.vendor}, and runs are in PostgreSQL", "connection")
    given.ensure_connection()
    return given.connection
