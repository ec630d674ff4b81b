"""Read the jobs of a job store of APScheduler 3."""

from __future__ import annotations

from datetime import datetime

from pgsched.core.model import Row as TableRow
from pgsched.errors import InputError
from pgsched.importers.apscheduler.jobs import MOST_BYTES, Row, import_export, import_rows
from pgsched.importers.imported import Imported
from pgsched.services.importing.sources import find_file, is_sqlite, read_tables
from pgsched.services.importing.text_files import read_text_file

MOST_LINES = 2_000_000  # export_jobs may indent what it writes


def read_apscheduler(source: str, table: str, now: datetime) -> Imported:
    """Return the jobs of a job store: a table of a database, a file of SQLite, or what `export_jobs` wrote.

    Raises InputError.
    """
    path = find_file(source)
    if path is not None and not is_sqlite(path):
        return import_export(read_text_file(path, MOST_BYTES, MOST_LINES), now)
    return import_rows(map(read_row, read_tables(source, [table])[0]), now)


def read_row(row: TableRow) -> Row:
    """Return a row of the table. Raises InputError for one of another table."""
    identity, state = row.get("id"), row.get("job_state")
    if not isinstance(identity, str) or not isinstance(state, bytes | memoryview):
        raise InputError("the table has no columns id and job_state: it is no job store of APScheduler", "source")
    return Row(identity, bytes(state))
