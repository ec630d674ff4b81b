"""What the database may answer: the errors that docs/reference/errors.md lists, and nothing else."""

from __future__ import annotations

import re

import psycopg

from tests.support.paths import ROOT

ERRORS = ROOT / "docs" / "reference" / "errors.md"
DOCUMENTED = set(re.findall(r"^\| `(\w{5})` \|", ERRORS.read_text(encoding="utf-8"), re.MULTILINE))
# What a user's value was refused with: then the text begins with what was wrong.
OURS = re.compile(r"^[a-z_ ]+\w*: ")
WRONG_VALUE = "23514"
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


def documented(error: psycopg.Error, raw: bool = True) -> bool:
    """Is this one of them; unless `raw`, does it also say what is wrong in our words?"""
    ours = raw or error.sqlstate != WRONG_VALUE or OURS.match(error.diag.message_primary or "") is not None
    return error.sqlstate in DOCUMENTED and ours


def told(error: psycopg.Error) -> str:
    """For a failing test."""
    where = (error.diag.context or "").replace("\n", " | ")[:400]
    return f"{error.sqlstate} {error.diag.message_primary}; {where}"
