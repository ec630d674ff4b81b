"""Every named statement lives in a file of its own in `sql/`; code names it and never builds one from strings."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """The `sql` or `migrations` folder: inside the installed wheel, else beside the package in a checkout."""
    installed = PACKAGE / f"_{name}"
    return installed if installed.is_dir() else PACKAGE.parent / name


@cache
def sql(name: str) -> bytes:
    """The text of `sql/<name>.sql` without its comment header, as psycopg takes it (placeholders `%(name)s`)."""
    text = (folder("sql") / f"{name}.sql").read_text(encoding="utf-8")
    lines = text.splitlines()
    while lines and (lines[0].startswith("--") or not lines[0].strip()):
        lines.pop(0)
    return "\n".join(lines).encode()
