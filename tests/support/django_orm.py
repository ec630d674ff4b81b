"""Django's connection to the database of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import conninfo_to_dict


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    """Yield Django's default connection, set to this database."""
    import django
    from django.conf import settings
    from django.db import connections

    given = conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given.get("user", ""),
        "PASSWORD": given.get("password", ""), "HOST": given.get("host", ""), "PORT": given.get("port", ""),
        "CONN_MAX_AGE": 600,
    }  # fmt: skip
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    connections.settings["default"].update(database)  # updated in place: the connection of each thread reads this dict
    connections.close_all()
    yield connections["default"]
    connections.close_all()
