"""Get the psycopg connection from a connection of Django, in its transaction: `django.db.connection`, or an alias.

An alias is a key of Django's DATABASES, such as "default". Django is imported only for an alias: its objects are
recognized by the names of their classes' modules.

Sources: "Databases" in Django's reference (docs.djangoproject.com/en/stable/ref/databases/: persistent connections,
health checks), "Database transactions" in its topics (atomic blocks).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pgsched.adapters.sqlalchemy import is_from_package
from pgsched.errors import InputError


def find_django(given: Any) -> Any:
    """Return Django's connection for a connection of Django, or for an alias; None for any other object.

    Raises InputError for a text that is no alias.
    """
    if isinstance(given, str):
        return connection_of_alias(given)
    return given if is_from_package(given, "django") and hasattr(given, "ensure_connection") else None


def connection_of_alias(alias: str) -> Any:
    """Return this thread's connection of an alias. Raises InputError where Django has none of that name."""
    if "=" in alias or "/" in alias or not alias:  # a connection string may hold a password: it is not shown
        raise InputError(
            "connection: expected a connection, or an alias of Django's DATABASES, got a text", "connection"
        )
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.db import connections
    except ImportError:
        raise InputError(
            f"connection: {alias!r} would be an alias of Django, which is not installed", "connection"
        ) from None
    try:
        known = [*connections]
    except ImproperlyConfigured:
        raise InputError(f"connection: {alias!r} is an alias, but Django has no settings: call django.setup() first",
                         "connection") from None  # fmt: skip
    if alias not in known:
        raise InputError(f"connection: Django's DATABASES has no {alias!r}; it has {', '.join(known)}", "connection")
    return connections[alias]


def open_driver_connection(django: Any) -> Any:
    """Return the driver's connection of a Django connection; open one if needed, as Django does before each cursor.

    Raises InputError for a database other than PostgreSQL, and what Django's own cursors raise in a transaction that
    Django will roll back (TransactionManagementError): the driver knows nothing of that.
    """
    if django.vendor != "postgresql":
        raise InputError(f"connection: it is of {django.vendor}, and runs are in PostgreSQL", "connection")
    django.validate_no_broken_transaction()
    django.close_if_health_check_failed()
    django.ensure_connection()
    return django.connection


@contextmanager
def noting_failures(django: Any) -> Iterator[None]:
    """Tell Django of an error in the block: before the next request it then replaces a connection that is dead.

    By itself it knows of the errors of its own cursors only.
    """
    try:
        yield
    except Exception:
        django.errors_occurred = True
        raise


@contextmanager
def atomic_block(django: Any) -> Iterator[None]:
    """Open Django's own transaction for the block.

    Raises InputError where one is open already, and TransactionManagementError where Django would roll it back at its
    end without a word: after `set_rollback`, and after an error that was caught inside of it.
    """
    from django.db import transaction

    if not django.get_autocommit():
        raise InputError(
            "transaction: Django's connection is in a transaction already: leave `atomic` first, or write there with "
            "run.assert_claim(connection)",
            "conn",
        )
    with transaction.atomic(using=django.alias):
        yield
        if django.needs_rollback:
            raise transaction.TransactionManagementError(
                "transaction: Django rolls it back, because of set_rollback or of an error that was caught inside of it"
            ) from django.rollback_exc
