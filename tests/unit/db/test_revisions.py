"""A revision's files run with the tables locked, so none of them reads a whole table."""

from __future__ import annotations

import re

from pgsched.db.schema.version import VERSIONS
from pgsched.db.statements import folder

COMMENT = re.compile(r"--[^\n]*")
CHECK = re.compile(r"\bADD CONSTRAINT \w+\s+CHECK\b")


def read_through(text: str) -> list[str]:
    """Return the statements that would read all existing rows.

    A CHECK is added NOT VALID, and validate.sql validates it after the locks are released.
    """
    found = [one.strip() for one in COMMENT.sub("", text).split(";")]
    return [one for one in found if "VALIDATE CONSTRAINT" in one or len(CHECK.findall(one)) > one.count("NOT VALID")]


def test_statements_that_read_a_table_are_found() -> None:
    added = "ALTER TABLE t ADD COLUMN c text, ADD CONSTRAINT a CHECK (c <> '')"
    assert read_through(f"{added};") == [added]
    assert read_through(f"{added} NOT VALID; CREATE TABLE u (CONSTRAINT b CHECK (true));") == []
    assert read_through("ALTER TABLE t VALIDATE CONSTRAINT a") != []


def test_no_revision_reads_a_whole_table_under_its_locks() -> None:
    for version in VERSIONS[1:]:
        for file in (folder("migrations") / version).glob("*.sql"):
            assert read_through(file.read_text(encoding="utf-8")) == [], file.name
