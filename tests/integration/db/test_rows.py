"""`values_of` builds values by the names of a row's columns, not by their order."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
import pytest

from pgsched.db.rows import values_of


class Pair(NamedTuple):
    first: int
    second: str


def pairs(db: psycopg.Connection[Any], text: str) -> list[Pair]:
    with db.cursor(row_factory=values_of(Pair)) as cursor:
        return cursor.execute(text.encode()).fetchall()


@pytest.mark.parametrize("columns", ["1 AS first, 'a' AS second", "'a' AS second, 1 AS first"])
def test_a_value_is_found_by_the_name_of_its_column(db: psycopg.Connection[Any], columns: str) -> None:
    assert pairs(db, f"SELECT {columns}") == [Pair(1, "a")]


@pytest.mark.parametrize("columns", ["1 AS first", "1 AS first, 'a' AS third", "1 AS first, 'a' AS second, 2 AS third"])
def test_columns_that_are_not_the_fields_are_refused(db: psycopg.Connection[Any], columns: str) -> None:
    with pytest.raises(TypeError):
        pairs(db, f"SELECT {columns}")
