"""Type checkers see the same public names of pgsched that programs get."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pgsched


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(Path(pgsched.__file__).read_text(encoding="utf-8"))
    (block,) = [one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname: (one.module, alias.name)
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    assert {*seen} == {*pgsched.__all__} - {"__version__"}
    for name, (module, original) in seen.items():
        assert module is not None
        assert getattr(import_module(module), original) is getattr(pgsched, name)
