r"""Every table, column and function that docs/reference/sql.md and jobs.md document has a comment.

`\d+` of psql shows the comments.
"""

from __future__ import annotations

import re

import psycopg

from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "reference"
ROW = re.compile(r"^\| `(\w+)`[^|]*\| (.*) \|$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
# tables of which other programs may write every column (sql.md), except those in OWN
WRITTEN = ("job_calendars", "calendars", "calendar_times", "queues", "limits", "pauses", "retention")
OWN = {"queues": {"applied_at", "limited"}, "limits": {"applied_at"}, "retention": {"name"}}
COMMENT = """
SELECT c.relname::text, a.attname::text, col_description(c.oid, a.attnum) FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind = 'r'
"""


def part(page: str, beginning: str, end: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert beginning in text
    return text.partition(beginning)[2].partition(end)[0]


def test_every_table_and_sequence_has_a_comment(db: psycopg.Connection) -> None:
    bare = db.execute("SELECT relname FROM pg_class WHERE relnamespace = 'pgsched'::regnamespace"
                      " AND relkind IN ('r', 'v', 'S') AND obj_description(oid, 'pg_class') IS NULL"
                      " AND relname <> 'alembic_version' AND relname NOT LIKE '%\\_id\\_seq'").fetchall()  # fmt: skip
    assert bare == []


def test_every_documented_column_has_a_comment(db: psycopg.Connection) -> None:
    comments = {(table, column): comment for table, column, comment in db.execute(COMMENT).fetchall()}
    columns: dict[str, set[str]] = {}
    for table, column in comments:
        columns.setdefault(table, set()).add(column)
    documented = {
        table: {name for name in NAME.findall(names) if name in columns[table]}
        for table, names in ROW.findall(part("sql.md", "## What may be read", "\n## "))
    }
    assert documented.keys() == {"runs", "attempts", "run_logs", "dependencies", "alerts", "audit"}
    assert len(documented["runs"]) > 30
    documented |= {table: columns[table] - OWN.get(table, set()) for table in WRITTEN}
    documented["jobs"] = columns["jobs"]
    bare = {f"{table}.{name}" for table, names in documented.items() for name in names if not comments[table, name]}
    assert bare == set()


def test_every_documented_function_has_a_comment(db: psycopg.Connection) -> None:
    lines = part("sql.md", "## Functions", "\n## ").splitlines()
    names = {name for line in lines if line.startswith("| `") for name in re.findall(r"`(\w+)\(", line.split("|")[1])}
    assert {"enqueue", "cancel", "retry", "retry_now", "backfill", "assert_claim"} <= names
    found = dict(db.execute("SELECT proname::text, obj_description(oid, 'pg_proc') FROM pg_proc"
                            " WHERE pronamespace = 'pgsched'::regnamespace").fetchall())  # fmt: skip
    assert {name for name in names if not found.get(name)} == set()
