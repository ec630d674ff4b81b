"""Fuzz test: any row of a table that people write is accepted, or refused with a documented error."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st

from tests.support.fuzz.profile import TABLE, fuzz
from tests.support.fuzz.setting import answer, furnish
from tests.support.fuzz.values import value

pytestmark = pytest.mark.long

COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity <> 'a'
"""
# the columns that a row must have
LEAST = {
    "jobs": {"name": "new", "task": "t"},
    "runs": {"task": "t"},
    "job_calendars": {"job_id": "1", "from_date": "2026-05-01", "until_date": "2026-05-02"},
    "calendars": {"name": "new"},
    "calendar_times": {"calendar": "furnished", "from_date": "2026-05-01", "until_date": "2026-05-02"},
    "queues": {"name": "new"},
    "limits": {"name": "new"},
    "pauses": {"what": "queue", "name": "new"},
    "dependencies": {"run_id": "9", "parent_id": "3"},
}
WRITTEN = [*LEAST, "backfills", "kept_keys", "workers"]
# A few columns at a time, because only the first of several wrong values is reported.
SOME = 4
OFTEN = 4  # inputs for each column, in CI
WORDED = {"jobs", "job_calendars", "calendars"}  # tables whose every refusal is in pgsched's own words


def columns(db: psycopg.Connection[Any], table: str) -> dict[str, str]:
    return dict(db.execute(COLUMNS, [f"pgsched.{table}"]).fetchall())


def some(found: dict[str, str]) -> st.SearchStrategy[dict[str, str | None]]:
    """Return a strategy for the values of a few columns."""

    def values(names: list[str]) -> st.SearchStrategy[dict[str, str | None]]:
        return st.fixed_dictionaries({name: value(found[name], name) for name in names})

    return st.lists(st.sampled_from(sorted(found)), min_size=1, max_size=SOME, unique=True).flatmap(values)


@pytest.mark.parametrize("table", WRITTEN)
def test_any_insert_is_accepted_or_refused_with_a_documented_error(db: psycopg.Connection[Any], table: str) -> None:
    furnish(db)
    found = columns(db, table)
    seen: set[str | None] = set()

    @fuzz((max(TABLE[0], OFTEN * len(found)), TABLE[1]), given=some(found))
    def insert(given: dict[str, str | None]) -> None:
        row = LEAST.get(table, {}) | given
        marks = ", ".join(f"%s::text::{found[name]}" for name in row)
        statement = f"INSERT INTO pgsched.{table} ({', '.join(row)}) VALUES ({marks})"
        seen.add(answer(db, statement, list(row.values()), raw=table not in WORDED))

    insert()
    assert None in seen or table not in LEAST, f"nothing was ever taken: {seen}"


@pytest.mark.parametrize("table", WRITTEN)
def test_any_update_is_accepted_or_refused_with_a_documented_error(db: psycopg.Connection[Any], table: str) -> None:
    furnish(db)
    found = columns(db, table)

    @fuzz((max(TABLE[0], OFTEN * len(found)), TABLE[1]), given=some(found), which=st.integers(0, 20))
    def update(given: dict[str, str | None], which: int) -> None:
        change = ", ".join(f"{name} = %s::text::{found[name]}" for name in given)
        nth = f"OFFSET {which} %% (SELECT count(*) + 1 FROM pgsched.{table}) LIMIT 1"
        row = f"(SELECT ctid FROM pgsched.{table} ORDER BY ctid {nth})"
        answer(db, f"UPDATE pgsched.{table} SET {change} WHERE ctid = {row}", list(given.values()))

    update()
