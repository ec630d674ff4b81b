"""Load named SQL statements from the files in `sql/`.

Invariant: code names a statement and never builds one from strings.

A block begins with a line `-- name: NAME`, then its comment header, then its text. A line `-- include: NAME` stands for
the text of a block that begins with `-- fragment: NAME`. So text that several statements share is written once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
INCLUDE = re.compile(r"^[ ]*-- include: (\w+)$", re.MULTILINE)
NO_STATEMENTS = {"roles.sql"}  # a script, not named statements


def folder(name: str) -> Path:
    """Return the `sql` or `migrations` folder: inside the installed wheel, or beside the package in a checkout."""
    installed = PACKAGE / f"_{name}"
    return installed if installed.is_dir() else PACKAGE.parent / name


def sql(name: str) -> bytes:
    """Return the text of a statement without its comment header, for psycopg (placeholders `%(name)s`).

    Raises KeyError for a name that no file has.
    """
    return statements()[name]


@cache
def statements() -> dict[str, bytes]:
    """Return every statement by its name. Raises ValueError if two blocks have one name."""
    found: dict[str, str] = {}
    fragments: dict[str, str] = {}
    for path in sorted(folder("sql").glob("*.sql")):
        if path.name in NO_STATEMENTS:
            continue
        _, *parts = BLOCK.split(path.read_text(encoding="utf-8"))
        for what, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if name in found or name in fragments:
                raise ValueError(f"two statements are named {name}, one of them in {path.name}")
            (found if what == "name" else fragments)[name] = without_header(text)
    return {name: INCLUDE.sub(lambda line: fragments[line[1]], text).encode() for name, text in found.items()}


def without_header(block: str) -> str:
    """Return a block's text without its leading comment lines and surrounding blank lines."""
    lines = block.strip().splitlines()
    first = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith("--")), len(lines))
    return "\n".join(lines[first:])
