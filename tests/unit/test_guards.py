"""tests/guards.toml and tests/attacks.toml name only tests and places that exist.

guards.toml lists every guard, and the test that fails without the guard. attacks.toml lists what one role may do to the
work of others, and the test that tries it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

from tests.support.paths import ROOT

TABLE = tomllib.loads((ROOT / "tests" / "guards.toml").read_text())["guard"]
ATTACKS = tomllib.loads((ROOT / "tests" / "attacks.toml").read_text())["attack"]
KINDS = {"lock", "token", "constraint", "mark", "limit", "grant"}
TAKE_OUT = {"cut", "text_without", "function_without", "change_function"}
ROW_LOCK = re.compile(r"\bFOR (?:NO KEY )?UPDATE\b|\bFOR (?:KEY )?SHARE\b")
PASSES_BY = re.compile(r"\bSKIP LOCKED\b|\bNOWAIT\b")
# the only statements that wait for a locked row, and how many of their locks wait
WAITING = {"rollup_lock": 1, "file_owner_lock": 1}  # the second: a person waits for another person's apply


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def functions_of(path: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(text_of(path)).body if isinstance(node, ast.FunctionDef)}


def test_every_test_of_the_tables_exists() -> None:
    tests = [row["test"].split("::") for row in TABLE + ATTACKS]
    assert [(path, name) for path, name in tests if f"\ndef {name}(" not in text_of(path)] == []


def test_tests_marked_long_are_listed_as_long_in_the_table() -> None:
    def is_long(test: str) -> bool:
        path, name = test.split("::")
        return "pytest.mark.long" in text_of(path) and any(
            "pytest.mark.long" in ast.unparse(mark) for mark in functions_of(path)[name].decorator_list
        )

    assert [row["test"] for row in TABLE if is_long(row["test"]) != row.get("long", False)] == []


def test_every_place_of_the_table_exists() -> None:
    statements = "".join(path.read_text() for path in (ROOT / "sql").glob("*.sql"))
    schema = "".join(path.read_text() for path in (ROOT / "migrations").rglob("*.sql"))
    kinds = r"CONSTRAINT|INDEX|TRIGGER|TABLE|SEQUENCE"
    names = {
        "statement": {*re.findall(r"-- name: (.+)\n", statements)},
        "function": {*re.findall(r"^CREATE FUNCTION pgsched\.(\w+)\(", schema, re.MULTILINE)},
    }
    objects = {*re.findall(rf"\b(?:{kinds}) (?:ONLY )?(?:pgsched\.)?(\w+)\b", schema)}

    def is_there(where: str) -> bool:
        sort, name = where.split(" ", 1)
        return (ROOT / name).exists() if sort == "module" else name in names.get(sort, objects)

    assert [row["where"] for row in TABLE if not is_there(row["where"])] == []
    assert {row["kind"] for row in TABLE} == KINDS


def test_every_test_that_takes_a_guard_out_of_a_statement_is_in_the_table() -> None:
    named = {row["test"] for row in TABLE}
    found = {
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        if any(f"{name}(" in path.read_text() for name in TAKE_OUT)  # parsing all modules takes seconds
        for name, node in functions_of(str(path.relative_to(ROOT))).items()
        if name.startswith("test_")
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in TAKE_OUT
    }
    assert len(found) > 40
    assert found - named == set()


def test_only_listed_statements_wait_for_a_locked_row() -> None:
    waiting = {}
    for path in (ROOT / "sql").glob("*.sql"):
        for block in re.split(r"^-- name: ", path.read_text(), flags=re.MULTILINE)[1:]:
            name, _, body = block.partition("\n")
            text = re.sub(r"--[^\n]*|/\*.*?\*/", "", body, flags=re.DOTALL)
            if count := len(ROW_LOCK.findall(text)) - len(PASSES_BY.findall(text)):
                waiting[name] = count
    assert waiting == WAITING
