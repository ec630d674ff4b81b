"""Make pgsched's connection string of an entry of Django's DATABASES.

Invariant: it leads to the database, and to the login, that Django itself uses. It is made when it is needed, because
Django's tests change NAME.

Source: "PostgreSQL notes" in Django's reference (docs.djangoproject.com/en/stable/ref/databases/#postgresql-notes) and
the setting DATABASES (.../ref/settings/#databases).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connections

from pgsched.core.text import did_you_mean
from pgsched.db.connection.dsn import write_dsn
from pgsched.errors import InputError

NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def dsn_of(alias: str) -> str:
    """Return the connection string of an alias. Raises InputError for an unknown one, and for another engine."""
    known = [*connections]
    if alias not in known:
        raise InputError(f"DATABASES has no {alias!r}{did_you_mean(alias, known)}", "database")
    if connections[alias].vendor != "postgresql":
        raise InputError(wrong_engine(alias), "database")
    return dsn_of_settings(alias, connections[alias].settings_dict)


def wrong_engine(alias: str) -> str:
    """Return the line about a database of another product."""
    engine = connections[alias].settings_dict["ENGINE"]
    return f"DATABASES[{alias!r}] has the engine {engine}, and pgsched needs PostgreSQL: django.db.backends.postgresql"


def dsn_of_settings(alias: str, settings: Mapping[str, Any]) -> str:
    """Return the connection string of one entry of DATABASES. Raises InputError for one without a database."""
    options = dict(settings.get("OPTIONS") or {})
    options.pop("client_encoding", None)  # ours is UTF-8, as Django's
    found = {**options, **{ours: settings[name] for name, ours in NAMES.items() if settings.get(name)}}
    if "dbname" not in found and "service" not in found:
        raise InputError(f"DATABASES[{alias!r}] names no database: give NAME, or OPTIONS['service']", "database")
    if role := options.get("assume_role"):
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        found["options"] = f"{options.get('options') or ''} -c role={escaped}".strip()
    return write_dsn(found)
