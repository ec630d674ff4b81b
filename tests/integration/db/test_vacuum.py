"""Tables with many writes and deletes are vacuumed soon, and without a pause between pages."""

from __future__ import annotations

import psycopg
import pytest

OPTIONS = "SELECT unnest(c.reloptions) FROM pg_class c WHERE c.oid = %s::regclass"
TOAST = """
SELECT unnest(t.reloptions) FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = %s::regclass
"""


def options(db: psycopg.Connection, query: str, table: str) -> dict[str, float]:
    found = db.execute(query.encode(), [f"pgsched.{table}"]).fetchall()
    return {name: float(value) for name, _, value in (text.partition("=") for (text,) in found)}


@pytest.mark.parametrize(
    ("query", "table"),
    [(OPTIONS, name) for name in ("runs", "jobs", "attempts", "run_logs", "dependencies")] + [(TOAST, "run_logs")],
)
def test_a_hot_table_is_vacuumed_soon_and_fast(query: str, table: str, db: psycopg.Connection) -> None:
    found = options(db, query, table)
    assert found["autovacuum_vacuum_cost_delay"] == 0
    assert found["autovacuum_vacuum_scale_factor"] <= 0.05
