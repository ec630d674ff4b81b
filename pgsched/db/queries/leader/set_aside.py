"""Rows that a duty of the leader leaves out for a while, and duties that fail: the table `pgsched.set_aside`."""

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
class SetAsideRow:
    """A row of the table.

    `duty`: the duty's name
    `row_id`: what is left out; empty: the duty failed as a whole; session: the duty cost the leader its session
    `error`: the last error
    `tries`: how many times in a row it failed
    `in_s`: seconds until it is tried again, negative once they are over
    """

    duty: str
    row_id: str
    error: str
    tries: int
    in_s: float


def list_set_aside(conn: Connection[Any]) -> list[SetAsideRow]:
    """Return all rows of the table."""
    return fetch_as(conn, SetAsideRow, "set_aside_all")


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that a duty leaves out for `in_s` seconds, because of `error`."""

    row_id: str
    error: str
    in_s: float


def set_aside_rows(conn: Connection[Any], duty: str, bad: Sequence[FailedRow]) -> dict[str, int]:
    """Set rows aside, for the first time or again; return how many times in a row each was, by row id."""
    given = {one.row_id[:LONGEST_TEXT]: one for one in bad}
    values = {"row_ids": list(given), "errors": [one.error[:LONGEST_TEXT] for one in given.values()]}
    found = fetch(conn, "set_aside_note", values | {"duty": duty, "ins_s": [one.in_s for one in given.values()]})
    tries = {row["row_id"]: int(row["tries"]) for row in found}
    return {one.row_id: tries[one.row_id[:LONGEST_TEXT]] for one in bad}


def session_lost(conn: Connection[Any], duty: str, error: str, *, went_through: bool = False) -> None:
    """Record that a leader lost its session in a duty.

    From the second loss in a row on, the duty is not done for 1, 5, then 30 minutes. Two losses are in a
    row if no leader has completed the duty between them. The second one must also come within ten minutes after the
    duty was allowed again.

    `went_through`: this leader had completed the duty in the same term, before it lost its session
    """
    values = {"duty": duty, "error": error[:LONGEST_TEXT], "went_through": went_through}
    conn.execute(sql("set_aside_session"), values)


def drop(conn: Connection[Any], duty: str, row_ids: Sequence[str]) -> None:
    """Delete rows of a duty: they are not set aside any more."""
    conn.execute(sql("set_aside_drop"), {"duty": duty, "row_ids": [row_id[:LONGEST_TEXT] for row_id in row_ids]})


def list_for_people(conn: Connection[Any]) -> list[Row]:
    """Return what is set aside with its errors, for a person: at most a hundred rows, whole duties first."""
    return rows(conn, "set_aside_seen")
