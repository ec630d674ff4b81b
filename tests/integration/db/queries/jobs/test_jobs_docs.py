"""docs/reference/jobs.md names every column of `jobs`, with the default that the table has."""

from __future__ import annotations

import re

import psycopg

from tests.support.paths import ROOT

DOC = ROOT / "docs" / "reference" / "jobs.md"
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|")


def documented() -> dict[str, str]:
    """Return the default that the page names, by column."""
    found: dict[str, str] = {}
    for line in DOC.read_text(encoding="utf-8").splitlines():
        if row := ROW.match(line):
            found |= dict.fromkeys(re.findall(r"`(\w+)`", row[1]), row[2].strip())
    return found


def test_every_column_is_explained(db: psycopg.Connection) -> None:
    columns = {
        row[0]
        for row in db.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'pgsched' AND table_name = 'jobs'"
        )
    }
    text = DOC.read_text(encoding="utf-8")
    assert {name for name in columns if f"`{name}`" not in text} == set()
    of_calendars = "SELECT column_name FROM information_schema.columns WHERE table_name = 'calendar_times'"
    assert set(documented()) <= columns | {row[0] for row in db.execute(of_calendars)}


def test_the_defaults_are_those_of_the_table(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('j', 't')")
    for column, told in documented().items():
        named = re.fullmatch(r"`(.*)`", told)
        if named is None:
            continue
        same = f"SELECT j.{column} = NULLIF(%(told)s::text, '')::{column_type(db, column)} FROM pgsched.jobs j"
        assert db.execute(same.encode(), {"told": named[1]}).fetchone() == (True,), column


def column_type(db: psycopg.Connection, column: str) -> str:
    row = db.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'pgsched.jobs'::regclass AND attname = %s",
        [column],
    ).fetchone()
    assert row is not None
    return str(row[0])
