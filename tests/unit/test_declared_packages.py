"""What is imported is declared, and each declaration says from which version on."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]


def named(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def test_every_declaration_has_a_floor() -> None:
    assert [one for one in DECLARED if named(one) != "pgsched" and ">=" not in one] == []


def test_every_package_that_is_imported_is_declared() -> None:
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "pgsched").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        )
    }  # fmt: skip
    foreign = imported - set(sys.stdlib_module_names) - {"pgsched", ""}
    brings = packages_distributions()
    declared = {named(one) for one in DECLARED}
    missing = {
        name for name in foreign if not declared & {one.lower().replace("_", "-") for one in brings.get(name, [name])}
    }
    assert missing == set()
