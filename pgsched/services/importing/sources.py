"""Where the tables of a source are: a PostgreSQL database, or a file of SQLite."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from pgsched.core.model import Row
from pgsched.database_urls import split_url
from pgsched.db.sources.sqlite import MAGIC, read_sqlite_table
from pgsched.db.sources.tables import open_source, read_table
from pgsched.errors import InputError
from pgsched.services.importing.text_files import read_bytes

SQLITE = ("sqlite", "sqlite3", "spatialite")


def find_file(source: str) -> Path | None:
    """Return the path of a source that is a file: `jobs.sqlite`, `sqlite:///jobs.sqlite`; None for a DSN."""
    url = split_url(source)
    if url is None:
        return None if "=" in source and not Path(source).exists() else Path(source)
    if url.scheme not in SQLITE:
        return None
    return Path(unquote(url.address.partition("?")[0].removeprefix("/")))


def is_sqlite(path: Path) -> bool:
    """Check whether a file begins as a database of SQLite. Raises InputError where it cannot be read."""
    return read_bytes(path, len(MAGIC)) == MAGIC


def read_tables(source: str, tables: list[str]) -> list[list[Row]]:
    """Return the rows of each table of a source. Raises InputError."""
    path = find_file(source)
    if path is None:
        with open_source(source) as conn:
            return [read_table(conn, table) for table in tables]
    if not is_sqlite(path):
        raise InputError(f"{path} is no database of SQLite", "source")
    return [read_sqlite_table(path, table) for table in tables]
