"""Read a whole table from a file of SQLite, which anybody may have made.

Invariant: nothing is written, and a hostile file costs a bounded time.

The file is opened read-only and its schema is not trusted. Whatever computes is refused: views, virtual tables and
generated columns. So a read only copies values, and it ends after LIMIT_S seconds.

Source: https://www.sqlite.org/security.html.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from pgsched.core.model import Row
from pgsched.db.sources.tables import MOST_ROWS, check_size
from pgsched.errors import InputError

MAGIC = b"SQLite format 3\0"
WITH_WAL = b"\2\2"  # the bytes 18 and 19 of a file that has a write-ahead log
LIMIT_S = 30.0
LONGEST_VALUE = 2 * 1024 * 1024
INSTRUCTIONS = 1000  # of SQLite's machine, between two looks at the clock
FIND_TABLE = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
GENERATED = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden <> 0"


def read_sqlite_table(path: Path, table: str) -> list[Row]:
    """Return the rows of a table as dicts. Raises InputError."""
    with explained(path), closing(open_read_only(path)) as conn:
        check_table(conn, path, table)
        quoted = table.replace('"', '""')
        statement = f'SELECT * FROM "{quoted}" LIMIT {MOST_ROWS + 1}'  # noqa: S608 (a table that exists)
        found: list[Row] = []
        size = 0
        for row in conn.execute(statement):
            found.append(dict(row))
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            check_size(table, len(found), size)
    return found


def check_table(conn: sqlite3.Connection, path: Path, table: str) -> None:
    """Raise InputError for a table that is not there, or that computes what it returns."""
    statement = conn.execute(FIND_TABLE, [table]).fetchone()
    if statement is None:
        raise InputError(f"there is no table {table} in {path}", "source")
    if not str(statement[0]).upper().startswith("CREATE TABLE") or conn.execute(GENERATED, [table]).fetchone()[0]:
        raise InputError(f"the table {table} in {path} computes its rows, as no table of a scheduler does", "source")


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a file of SQLite. Raises sqlite3.Error, OSError.

    SQLite makes two files beside one with a write-ahead log, also for reading. Where nothing has the file open, and so
    there is no log, it is told that the file does not change.
    """
    alone = "&immutable=1" if has_no_log(path) else ""
    conn = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro{alone}", uri=True, timeout=5)
    conn.row_factory = sqlite3.Row
    conn.text_factory = lambda data: data.decode("utf-8", "replace")
    conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    end = time.monotonic() + LIMIT_S
    conn.set_progress_handler(lambda: time.monotonic() > end, INSTRUCTIONS)
    conn.execute("PRAGMA trusted_schema = OFF")
    conn.execute("PRAGMA cell_size_check = ON")
    conn.execute("PRAGMA mmap_size = 0")
    return conn


def has_no_log(path: Path) -> bool:
    """Check whether a file is one with a write-ahead log, which it does not have at the moment. Raises OSError."""
    with path.open("rb") as file:
        return file.read(20)[18:] == WITH_WAL and not path.with_name(f"{path.name}-wal").exists()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise what SQLite refuses as InputError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"{path}: SQLite: {error}", "source") from None
