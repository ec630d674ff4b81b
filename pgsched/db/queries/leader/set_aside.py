"""Rows that a duty does without for a while, and duties that fail: `pgsched.set_aside`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, fetch_as, rows
from pgsched.db.statements import sql

LONGEST_TEXT = 1000  # characters, of at most four bytes each


@dataclass(frozen=True, slots=True)
class Noted:
    """A row of the table. `in_s`: seconds until it is tried again; negative where that is over."""

    duty: str
    row_id: str
    error: str
    tries: int
    in_s: float


def load(conn: Connection[Any]) -> list[Noted]:
    """All that is set aside."""
    return fetch_as(conn, Noted, "set_aside_all")


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that a duty does without for `in_s` seconds."""

    row_id: str
    error: str
    in_s: float


def note(conn: Connection[Any], duty: str, bad: Sequence[Bad]) -> dict[str, int]:
    """Set rows aside, or again; returns how many times that was done with each."""
    given = {one.row_id[:LONGEST_TEXT]: one for one in bad}
    values = {"row_ids": list(given), "errors": [one.error[:LONGEST_TEXT] for one in given.values()]}
    found = fetch(conn, "set_aside_note", values | {"duty": duty, "ins_s": [one.in_s for one in given.values()]})
    tries = {row["row_id"]: int(row["tries"]) for row in found}
    return {one.row_id: tries[one.row_id[:LONGEST_TEXT]] for one in bad}


def session_lost(conn: Connection[Any], duty: str, error: str, *, went_through: bool = False) -> None:
    """A leader lost its session in a duty. From the second time in a row on the duty is not done for one, five, thirty
    minutes. In a row: no leader has gone through it since (`went_through`: this one had, in the same term), and it has
    been allowed for no more than ten minutes."""
    values = {"duty": duty, "error": error[:LONGEST_TEXT], "went_through": went_through}
    conn.execute(sql("set_aside_session"), values)


def drop(conn: Connection[Any], duty: str, row_ids: Sequence[str]) -> None:
    """These are not set aside any more."""
    conn.execute(sql("set_aside_drop"), {"duty": duty, "row_ids": [row_id[:LONGEST_TEXT] for row_id in row_ids]})


def seen(conn: Connection[Any]) -> list[Row]:
    """All of it with its errors, for a person."""
    return rows(conn, "set_aside_seen")
