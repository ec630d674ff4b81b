"""Every list of choices in the code has the same values as the check constraint of its column."""

from __future__ import annotations

import re

import psycopg
import pytest

from pgsched.core import policies
from pgsched.core.model import Kind
from pgsched.core.planning.backfill import MODES
from pgsched.db.queries.reports.audit import KINDS
from pgsched.web.pages.forms import job_form

LISTS = {
    ("jobs", "overlap"): policies.OVERLAP, ("jobs", "catch_up"): policies.CATCH_UP,
    ("jobs", "backoff"): policies.BACKOFF, ("jobs", "kind"): tuple(Kind),
    ("dependencies", "on_failure"): policies.ON_FAILURE, ("queues", "on_full"): policies.ON_FULL,
    ("backfills", "mode"): MODES, ("audit", "what"): KINDS, ("pauses", "what"): (*policies.PAUSED, "limit"),
    ("locks", "kind"): policies.LOCK_KINDS,
}  # fmt: skip


def checked(db: psycopg.Connection, table: str, column: str) -> set[str]:
    """Return the values that the check constraint of a column names."""
    found = db.execute(
        "SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid"
        " WHERE c.conrelid = %s::regclass AND c.contype = 'c' AND a.attname = %s AND c.conkey = ARRAY[a.attnum]",
        [f"pgsched.{table}", column],
    ).fetchall()
    lists = [set(re.findall(r"'(\w+)'::text", text)) for (text,) in found if "ANY" in text]
    if not lists:  # the trigger checks it
        (body,) = db.execute("SELECT prosrc FROM pg_proc WHERE oid = 'pgsched.job_error'::regproc").fetchone() or ("",)
        named = re.search(rf"not_one_of\('{column}', j\.{column}, ARRAY\[(.*?)\]", body)
        lists = [set(re.findall(r"'(\w+)'", named[1]))] if named else []
    assert len(lists) == 1, (table, column, found)
    return lists[0]


@pytest.mark.parametrize(("place", "values"), LISTS.items(), ids=lambda value: ".".join(map(str, value[:2])))
def test_a_list_of_choices_equals_its_check_constraint(
    db: psycopg.Connection, place: tuple[str, str], values: tuple[str, ...]
) -> None:
    assert checked(db, *place) == set(values)


def test_choices_of_the_job_form_equal_their_check_constraints(db: psycopg.Connection) -> None:
    for field in job_form.FIELDS.values():
        if field.choices:
            assert set(field.choices) == checked(db, "jobs", field.name), field.name
