"""Read the jobs of a job store of APScheduler 3."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pgsched.core.model import Row as TableRow
from pgsched.db.sources.sqlite import is_sqlite
from pgsched.errors import InputError
from pgsched.importers.apscheduler.jobs import MOST_BYTES, Row, import_export, import_rows
from pgsched.importers.imported import Imported
from pgsched.services.importing.sources import find_file, read_tables


def read_apscheduler(source: str, table: str, now: datetime) -> Imported:
    """Return the jobs of a job store: a table of a database, a file of SQLite, or what `export_jobs` wrote.

    Raises InputError.
    """
    path = find_file(source)
    if path is not None and not is_sqlite(path):
        return import_export(read_export(path), now)
    return import_rows(map(read_row, read_tables(source, [table])[0]), now)


def read_export(path: Path) -> str:
    """Return the text of a file. Raises InputError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES // 2**20} MiB", "source")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path} is neither a database of SQLite nor a file of export_jobs", "source") from None


def read_row(row: TableRow) -> Row:
    """Return a row of the table. Raises InputError for one of another table."""
    identity, state = row.get("id"), row.get("job_state")
    if not isinstance(identity, str) or not isinstance(state, bytes | memoryview):
        raise InputError("the table has no columns id and job_state: it is no job store of APScheduler", "source")
    return Row(identity, bytes(state))
