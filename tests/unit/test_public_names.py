"""Type checkers see the same public names of a package that programs get."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import pgsched
import pgsched.recipes


@pytest.mark.parametrize("package", [pgsched, pgsched.recipes], ids=lambda one: one.__name__)
def test_type_checkers_see_every_public_name(package: ModuleType) -> None:
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = [one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname: (one.module, alias.name)
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    assert {*seen} == {*package.__all__} - {"__version__"}
    for name, (module, original) in seen.items():
        assert module is not None
        assert getattr(import_module(module), original) is getattr(package, name)
