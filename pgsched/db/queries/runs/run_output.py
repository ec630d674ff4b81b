"""Output and progress of attempts: written by their worker, read by people.

Invariant: a write is fenced by the claim's token and safe to send twice; a reader goes on behind the last row it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from pgsched.core.model import Key, Row
from pgsched.db.arrays import literal, plain
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.queries.runs.claims import fences
from pgsched.db.queries.runs.runs import checked, known
from pgsched.db.rows import first_row, rows
from pgsched.db.statements import sql
from pgsched.errors import InputError

READ_ROWS = 500
STREAMS = ("stdout", "stderr", "log")
Line = tuple[int, str, str]  # seq, stream, chunk


@dataclass(frozen=True, slots=True)
class Page:
    """New rows of an attempt's output.

    `base`: added to the seq of each row; None: not known yet
    `lo`, `hi`: rows from `lo` to before `hi` are deleted, because these replace them
    `lines`: the rows, (seq, stream, chunk)
    """

    key: Key
    attempt: int
    base: int | None
    lo: int
    hi: int
    lines: list[Line]


class ReadPosition(NamedTuple):
    """How far a reader has come: the last row that it has, and how many characters of it.

    The last row of an attempt may grow.
    """

    attempt: int = 0
    seq: int = -1
    characters: int = 0


BEGINNING = ReadPosition()


async def write_pages(conn: AsyncConnection[Any], pages: Sequence[Page]) -> list[int | None]:
    """Write pages; return the base of each, or None where its attempt may not write any more."""
    lines = [(n, *line) for n, page in enumerate(pages, 1) for line in page.lines]
    values = {
        **fences(page.key for page in pages),
        "attempts": plain(page.attempt for page in pages),
        "bases": [page.base for page in pages],
        "los": plain(page.lo for page in pages),
        "his": plain(page.hi for page in pages),
        "ns": plain(line[0] for line in lines),
        "seqs": plain(line[1] for line in lines),
        "streams": [line[2] for line in lines],
        "chunks": [line[3] for line in lines],
    }
    async with conn.cursor(row_factory=dict_row) as cursor:
        bases = {row["n"]: row["base"] for row in await (await cursor.execute(sql("run_log_write"), values)).fetchall()}
    return [bases.get(n) for n in range(1, len(pages) + 1)]


async def tell_progress(conn: AsyncConnection[Any], news: Sequence[tuple[Key, str]]) -> set[Key]:
    """Write the progress of attempts, a JSON object for each; return the keys whose progress was written.

    The other attempts own their run no longer, or another session has locked its row for the moment.
    """
    values = {**fences(key for key, _ in news), "progresses": literal(text for _, text in news)}
    async with conn.cursor(row_factory=dict_row) as cursor:
        return {news[row["n"] - 1][0] for row in await (await cursor.execute(sql("run_progress"), values)).fetchall()}


def state(conn: Connection[Any], run_id: int) -> Row:
    """Return the state, attempt, progress, worker and times of a run. Raises NotFound."""
    return known(run_id, first_row(conn, "run_watch", {"id": checked(run_id)}))


def read_output(
    conn: Connection[Any],
    run_id: int,
    after: ReadPosition = BEGINNING,
    attempt: int | None = None,
    stream: str | None = None,
) -> list[Row]:
    """Return the next rows of a run's output, oldest first; none when there is no more for now.

    `attempt`, `stream`: only of this one; None: all. Raises InputError, NotFound.
    """
    if stream is not None and stream not in STREAMS:
        raise InputError(f'stream: "{stream}" is not one of {", ".join(STREAMS)}', "stream")
    values = {"id": checked(run_id), "attempt": attempt, "stream": stream, "n": READ_ROWS}
    place = {"after_attempt": after.attempt, "after_seq": after.seq, "after_characters": after.characters}
    return rows(conn, "run_log_read", values | place)


def behind(found: Sequence[Row]) -> ReadPosition:
    """Return the place behind these rows."""
    return ReadPosition(found[-1]["attempt"], found[-1]["seq"], found[-1]["characters"])


def last(conn: Connection[Any], run_id: int, n: int) -> list[Row]:
    """Return the last `n` rows of a run's newest output, oldest first. A row has up to 64 KiB."""
    return rows(conn, "run_log_last", {"id": checked(run_id), "n": n})


async def keep_traces(
    conn: AsyncConnection[Any], ids: Sequence[int], attempts: Sequence[int], traces: Sequence[str]
) -> None:
    """Store the trace contexts of failed attempts in the rows of their runs, for the next attempts."""
    await conn.execute(sql("trace_keep"), {"ids": list(ids), "attempts": list(attempts), "traces": list(traces)})
