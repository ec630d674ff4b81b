"""docs/reference/errors.md quotes error texts and constraint names that really exist."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
JOB = "INSERT INTO pgsched.jobs (name, task, schedule, priority) VALUES ('a', 't', %s, %s)"


@pytest.mark.parametrize("values", [("@daily", 11), ("99 * * * *", 5)])
def test_the_page_quotes_the_error_of_a_wrong_value(db: psycopg.Connection[Any], values: tuple[str, int]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        db.execute(JOB, values)
    assert f"`{refused.value.diag.message_primary}`" in PAGE


def test_the_constraints_that_the_page_names_exist(db: psycopg.Connection[Any]) -> None:
    named = re.findall(r"`(\w+_(?:key|fkey|check|bookkeeping))`", PAGE)
    assert len(named) == 4
    there = {row[0] for row in db.execute("SELECT conname FROM pg_constraint")}
    assert {*named} <= there


def test_writing_a_bookkeeping_column_violates_jobs_bookkeeping(db: psycopg.Connection[Any]) -> None:
    db.execute(JOB, ("@daily", 5))
    with pytest.raises(psycopg.errors.CheckViolation, match="jobs_bookkeeping"):
        db.execute("UPDATE pgsched.jobs SET run_count = -1")
