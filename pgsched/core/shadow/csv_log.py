"""Read starts from a CSV of names and times.

The first row may name the columns; else the first column that holds a time is the time, and the other one the name.
Commas, semicolons and tabs part the columns. Invariant: a row that cannot be read is an error that names its line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from pgsched.core.shadow.stamps import StampReader
from pgsched.core.shadow.starts import Start
from pgsched.errors import InputError

NAMES = frozenset({"name", "job", "job_name", "jobname", "task", "command", "dag_id"})
TIMES = frozenset({"time", "at", "start", "started", "start_time", "started_at", "start_date", "timestamp", "date"})


class CsvReader:
    """Reads the starts of a CSV. `begin_s`, `end_s`: the times of the earliest and the latest row."""

    def __init__(self, stamps: StampReader) -> None:
        self._stamps = stamps
        self.begin_s: float | None = None
        self.end_s: float | None = None

    def read(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Start]:
        """Yield the starts in the order of the rows. Raises InputError for a row that cannot be read."""
        columns: tuple[int, int] | None = None
        separator = ","
        for number, line in lines:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r")
            if columns is None:
                separator = max(",;\t", key=text.count)
            row = split_row(text, separator, number)
            if columns is None:
                columns, is_head = self._columns(row, number)
                if is_head:
                    continue
            if len(row) <= max(columns):
                raise InputError(
                    f"log: line {number}: {len(row)} columns, at least {max(columns) + 1} are needed", "log"
                )
            name, time = (row[column].strip() for column in columns)
            at_s = self._stamps.read_start(time, name)
            if at_s is None:
                raise InputError(f'log: line {number}: "{time[:50]}" is not a time such as 2026-05-01T02:00:00Z', "log")
            self.begin_s = at_s if self.begin_s is None else min(at_s, self.begin_s)
            self.end_s = at_s if self.end_s is None else max(at_s, self.end_s)
            yield Start(name, at_s)

    def _columns(self, row: list[str], number: int) -> tuple[tuple[int, int], bool]:
        """Return the columns of name and time, and whether this first row only names them."""
        heads = [cell.strip().lower() for cell in row]
        name = next((n for n, head in enumerate(heads) if head in NAMES), None)
        time = next((n for n, head in enumerate(heads) if head in TIMES), None)
        if name is not None and time is not None:
            return (name, time), True
        time = next((n for n, cell in enumerate(row) if self._stamps.read(cell.strip()) is not None), None)
        if time is None or len(row) < 2:
            raise InputError(
                f"log: line {number}: expected a name and a time, or their names such as name and started_at", "log"
            )
        return (1 if time == 0 else 0, time), False


def split_row(text: str, separator: str, number: int) -> list[str]:
    """Return the cells of a row. Raises InputError for one that is no CSV; no cell may go over several lines."""
    try:
        return next(csv.reader([text], delimiter=separator, strict=True), [])
    except csv.Error as error:
        raise InputError(f"log: line {number}: {error}", "log") from None
