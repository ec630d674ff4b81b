"""Get the psycopg connection from Django's `connection` (or one of its `connections`), in its transaction.

Django is not imported for that: its objects are recognized by the names of their classes' modules.
"""

from __future__ import annotations

from typing import Any

from pgsched.adapters.sqlalchemy import is_from_package
from pgsched.errors import InputError


def django_driver_connection(given: Any) -> Any:
    """Return the driver's connection of a Django connection, opened if needed; any other object unchanged.

    Raises InputError for a database other than PostgreSQL.
    """
    if not is_from_package(given, "django") or not hasattr(given, "ensure_connection"):
        return given
    if given.vendor != "postgresql":
        raise InputError(f"connection: it is of {given.vendor}, and runs are in PostgreSQL", "connection")
    given.ensure_connection()
    return given.connection
