"""Everything that a schema is, as text: what pg_dump says of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TABLE = re.compile(r"^(CREATE TABLE \S+ \()\n(.*?)\n\)", re.DOTALL | re.MULTILINE)


def program(name: str) -> str:
    """One of PostgreSQL's programs: the embedded wheel's, else the system's."""
    try:
        from pgsched.db.embedded.server import bin_dir

        found = Path(bin_dir()) / name
        if found.exists():
            return str(found)
    except Exception:
        pass
    return shutil.which(name) or pytest.skip(f"no {name} here: the schemas are not compared")


def catalog(dsn: str) -> str:
    """The schema pgsched, with owners and grants."""
    dumped = subprocess.run(
        [program("pg_dump"), "--schema-only", "--schema=pgsched", dsn], capture_output=True, text=True
    )
    assert dumped.returncode == 0, dumped.stderr
    lines = (line for line in dumped.stdout.splitlines() if "restrict" not in line)  # a random word in each dump
    return TABLE.sub(columns_in_one_order, "\n".join(map(in_one_order, lines)))


def columns_in_one_order(table: re.Match[str]) -> str:
    """A column that is made anew, on the way back to an older version, is the last one."""
    return "\n".join([table[1], *sorted(line.rstrip(",") for line in table[2].splitlines()), ")"])


def in_one_order(line: str) -> str:
    """A table's storage parameters come in the order in which they were set."""
    found = re.fullmatch(r"WITH \((.*)\);", line)
    return line if found is None else f"WITH ({', '.join(sorted(found[1].split(', ')))});"


def apply_script(dsn: str, text: str) -> subprocess.CompletedProcess[str]:
    """Give a script to psql."""
    command = [program("psql"), "--no-psqlrc", dsn, "-f", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
