"""The path of the checkout, and its Python modules for rules about the code.

To parse all modules takes seconds. A rule therefore parses only those whose text has what the rule is about.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("pgsched", "tests", "bench", "tools")


def python_files() -> Iterator[Path]:
    for top in CODE:
        yield from (path for path in sorted((ROOT / top).rglob("*.py")) if "__pycache__" not in path.parts)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def of_the_package() -> list[Path]:
    return [path for path in python_files() if relative(path).startswith("pgsched/")]


def parsed(paths: Iterable[Path], *, about: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the syntax trees of the modules in which this regular expression is found, each with its path."""
    wanted = re.compile(about, re.MULTILINE)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if wanted.search(text):
            yield path, ast.parse(text)
