"""Which errors the database may answer with: those that docs/reference/errors.md lists, and no others."""

from __future__ import annotations

import re

import psycopg

from tests.support.paths import ROOT

ERRORS = ROOT / "docs" / "reference" / "errors.md"
DOCUMENTED = set(re.findall(r"^\| `(\w{5})` \|", ERRORS.read_text(encoding="utf-8"), re.MULTILINE))
# How a message begins that refuses a user's value: with the name of what is wrong.
OURS = re.compile(r"^[a-z_ ]+\w*([.[].*?)?: ", re.DOTALL)  # a column or argument, or a part of it: args.argv[0]
WRONG_VALUE = "23514"
# Functions that users are not meant to call may answer with these too, when they get values that pgsched never passes.
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
    """Return whether the error is documented and, unless `raw`, names what is wrong in pgsched's own words."""
    ours = raw or error.sqlstate != WRONG_VALUE or OURS.match(error.diag.message_primary or "") is not None
    return error.sqlstate in DOCUMENTED and ours


def told(error: psycopg.Error) -> str:
    """Return the error as the message of a failed test."""
    where = (error.diag.context or "").replace("\n", " | ")[:400]
    return f"{error.sqlstate} {error.diag.message_primary}; {where}"
