"""The URLs by which SQLAlchemy names databases."""

from __future__ import annotations

from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict


def url(driver: str, dsn: str) -> str:
    """Return the URL of a DSN, with its password if it has one."""
    given = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    password = f":{given['password']}" if "password" in given else ""
    return (
        f"postgresql+{driver}://{given['user']}{password}@/{given['dbname']}?host={given['host']}&port={given['port']}"
    )
