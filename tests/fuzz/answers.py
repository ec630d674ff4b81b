"""What the database may answer: the errors that docs/errors.md lists, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

ERRORS = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
DOCUMENTED = set(re.findall(r"^\| `(\w{5})` \|", ERRORS.read_text(encoding="utf-8"), re.MULTILINE))
# What a user's value was refused with: then the text begins with what was wrong.
OURS = re.compile(r"^[a-z_ ]+\w*: ")
RAW = re.compile(r"violates (check|not-null|unique|foreign key) constraint|violates row-level security")
# for what is not meant to be called by itself: it may not take what nobody gives it
INTERNAL = {
    "54000",
    "2201W",
    "22003",
    "22008",
    "22P02",
    "22004",
    "22023",
    "2202E",
    "22007",
    "22015",
    "42804",
    "22012",
    "39004",
    "22P05",
    "2201B",
}


def documented(error: psycopg.Error) -> bool:
    """Is this one of them, and does it say what is wrong?"""
    return error.sqlstate in DOCUMENTED


def told(error: psycopg.Error) -> str:
    """For a failing test."""
    where = (error.diag.context or "").replace("\n", " | ")[:400]
    return f"{error.sqlstate} {error.diag.message_primary}; {where}"
