"""Every imported package is declared, and every declaration has a lowest version."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT, of_the_package, parsed

PYPROJECT = ROOT / "pyproject.toml"
PROJECT = tomllib.loads(PYPROJECT.read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DEVELOPERS = {"test", "lint", "bench", "sources"}
DECLARED = [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]
# packages whose names differ from those of their modules
PACKAGES = {"opentelemetry": "opentelemetry-api", "yaml": "pyyaml"}
BROUGHT = {
    "pytest": "loads pgsched.testing.plugin",
    "opentelemetry.sdk": "the user chooses it, with an exporter; without it `pgsched worker --otel` says so",
}
NOT_IMPORTED = {"sniffio": "httpcore looks for it in every request"}
IMPORTING = {"import_module", "find_spec", "__import__"}


def named(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def modules(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that this code imports, at its top or later, by statement or by call."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(module)), *_]
            ) if name in IMPORTING:
                yield module


def packages(tree: ast.AST) -> set[str]:
    """Return the third-party packages that this code needs."""
    foreign = {
        module
        for module in modules(tree)
        if module.partition(".")[0] not in {*sys.stdlib_module_names, "pgsched"}
        if not any(f"{module}.".startswith(f"{brought}.") for brought in BROUGHT)
    }
    tops = {module.partition(".")[0] for module in foreign}
    return {PACKAGES.get(top, top.replace("_", "-").lower()) for top in tops}


@pytest.fixture(scope="module")
def imported() -> set[str]:
    ours = "|".join([*sys.stdlib_module_names, "pgsched"])
    others = rf"^\s*(?:import|from) (?!(?:{ours})\b)\w|{'|'.join(IMPORTING)}"
    return {name for _, tree in parsed(of_the_package(), about=others) for name in packages(tree)}


@pytest.fixture(scope="module")
def for_users() -> set[str]:
    """Return the packages that a user gets with pgsched and all its extras."""
    extras = [one for name, extra in EXTRAS.items() if name not in DEVELOPERS for one in extra]
    return {named(one) for one in [*PROJECT["dependencies"], *extras]} - {"pgsched"}


def test_every_declaration_has_a_lowest_version() -> None:
    assert [one for one in DECLARED if named(one) != "pgsched" and ">=" not in one] == []


def test_every_package_that_is_imported_is_declared(imported: set[str], for_users: set[str]) -> None:
    assert imported - for_users == set(), "declare these in pyproject.toml"


def test_every_package_that_is_declared_is_imported(imported: set[str], for_users: set[str]) -> None:
    assert for_users - imported == set(NOT_IMPORTED), "users install these in vain"


@pytest.mark.parametrize(
    "text",
    [
        "import a_b.c",
        "from a_b.c import d",
        "def f():\n    try:\n        import a_b\n    except ImportError:\n        pass",
        "import importlib.util\nimportlib.util.find_spec('a_b')",
        "from importlib import import_module\nimport_module('a_b.c')",
    ],
)
def test_optional_imports_are_found_too(text: str) -> None:
    assert packages(ast.parse(text)) == {"a-b"}


def test_the_lowest_versions_are_those_that_the_project_allows() -> None:
    lowest = runpy.run_path(str(ROOT / ".ci" / "lowest"))["lowest"]
    assert (ROOT / "requirements.lowest").read_text() == lowest(PYPROJECT), ".ci/lowest > requirements.lowest"


def test_the_lowest_version_of_everything_that_users_install_is_tested(for_users: set[str]) -> None:
    pinned = re.findall(r"^([a-z0-9-]+)==[0-9][0-9.]*$", (ROOT / "requirements.lowest").read_text(), re.MULTILINE)
    assert set(pinned) == for_users


def test_every_declared_version_of_python_is_tested() -> None:
    classified = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if ":: Python :: 3." in one}
    assert set(re.findall(r"\b3\.[0-9]+\b", (ROOT / ".ci" / "long").read_text())) == classified
    assert PROJECT["requires-python"].removeprefix(">=") in classified
