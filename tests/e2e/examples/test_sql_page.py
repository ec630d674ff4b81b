"""docs/reference/sql.md names only what exists, and its examples come from the programs that the tests run."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from tests.support.docs.languages import EXAMPLES

PAGE = (EXAMPLES.parents[1] / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")
FOLDERS = {"sql": "psql", "js": "node", "ruby": "ruby"}
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_each_line_of_an_example_is_in_a_tested_program(language: str, text: str) -> None:
    programs = [
        {line.strip().removesuffix(";") for line in path.read_text(encoding="utf-8").splitlines()}
        for path in (EXAMPLES / FOLDERS[language]).iterdir()
        if path.is_file()
    ]
    lines = {line.strip().removesuffix(";") for line in text.splitlines()}
    assert any(lines <= program for program in programs), text


def test_the_functions_have_the_parameters_that_the_page_names(db: psycopg.Connection[Any]) -> None:
    calls = re.findall(r"`(\w+)\((\w+(?:, \w+)*)(?:, \.\.\.)?\)`", PAGE)
    assert len(calls) == 57, calls
    for name, parameters in calls:
        row = db.execute("SELECT proargnames FROM pg_proc WHERE oid = ('pgsched.' || %s)::regproc", [name]).fetchone()
        assert row is not None
        given = parameters.split(", ")
        assert row[0][: len(given)] == given, name


def test_the_readers_have_the_columns_that_the_page_names(db: psycopg.Connection[Any]) -> None:
    section = PAGE.split("## Read from SQL")[1].split("\n## ")[0]
    tables = re.findall(r"^\| `(\w+)\(.*?\)` \| .*? \| (.*) \|$", section, re.MULTILINE)
    assert [name for name, _ in tables] == ["preview", "job_status", "recent_runs", "slots", "explain"]
    for name, columns in tables[:-1]:
        given = [
            found for found in re.findall(r"`(\w+)`", columns) if found not in ("active", "paused", "error", "done")
        ]
        row = db.execute("SELECT proargnames[cardinality(proargtypes::oid[]) + 1:] FROM pg_proc"
                         " WHERE oid = ('pgsched.' || %s)::regproc", [name]).fetchone()  # fmt: skip
        assert row is not None
        assert [column for column in row[0] if column != "error"] == given, name


def test_the_columns_that_the_page_names_exist(db: psycopg.Connection[Any]) -> None:
    section = PAGE.split("## What may be read")[1].split("\n- ")[0]
    tables = re.findall(r"^\| `(\w+)`(?: \(.*?\))? \| (.*) \|$", section, re.MULTILINE)
    assert [name for name, _ in tables] == ["runs", "attempts", "run_logs", "dependencies", "alerts", "audit"]
    for name, columns in tables:
        there = {row[0] for row in db.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = ('pgsched.' || %s)::regclass AND attnum > 0", [name]
        )}  # fmt: skip
        assert set(re.findall(r"`(\w+)`", columns)) <= there, name


def test_every_table_is_documented_or_named_as_subject_to_change(db: psycopg.Connection[Any]) -> None:
    sentence = PAGE.split("the tables `passed_over`")[1].split("the sequences")[0]
    may_change = {"passed_over", *re.findall(r"`(\w+)`", sentence)}
    docs = EXAMPLES.parents[1] / "docs"
    others = ("reference/jobs.md", "reference/jobs-file.md", "how-to/retention.md", "how-to/limits.md")
    told = PAGE + " ".join((docs / page).read_text() for page in others)
    there = {row[0] for row in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'pgsched'")}
    assert may_change <= there
    promised = {name for name in there if re.search(rf"`(pgsched\.)?{name}`", told)}
    assert there - promised - may_change == set()
