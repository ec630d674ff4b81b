"""The statements of pgsched depend neither on a session's search path nor on settings that a role may change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgsched.db.connection import sealed
from pgsched.db.connection.connect import session_settings
from pgsched.db.psql import SESSION
from pgsched.db.statements import folder, statements
from tests.support.paths import ROOT

SCHEMA = (folder("migrations") / "schema.sql").read_text(encoding="utf-8")
FUNCTION = re.compile(
    r"^CREATE (?:OR REPLACE )?FUNCTION pgsched\.(\w+)\(.*?AS \$function\$(.*?)\$function\$", re.S | re.M
)
TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|(?P<escaped>\b[eE])?'(?:(?(escaped)\\.|(?!))|''|[^'])*'", re.S)
# a call without a schema: a name before a parenthesis, except keywords and names after a schema (pgsched.runs)
NO_CALL = "coalesce|nullif|exists|values|as|in|any|and|or|on|from|then|when|x|e|a"
CALL = re.compile(rf"(?<![.\w%$])(?!(?:{NO_CALL})\b)([a-z_]\w*)\s*\(", re.I)
PUBLIC = re.compile(r"search_path[^\n]*\bpublic\b")


def functions() -> Iterator[tuple[str, str, str]]:
    """Yield the name, head and body of each function of the schema."""
    for found in FUNCTION.finditer(SCHEMA):
        whole = found[0]
        yield found[1], whole[: whole.index("AS $function$")], found[2]


def scripts() -> Iterator[tuple[str, str]]:
    """Yield the name and text of all SQL: statements, scripts of folders, and bodies of functions."""
    yield from ((name, text.decode()) for name, text in statements().items())
    yield "roles.sql", (folder("sql") / "roles.sql").read_text(encoding="utf-8")
    yield from ((path.name, path.read_text(encoding="utf-8")) for path in folder("migrations").glob("*.sql"))
    yield from ((name, body) for name, _, body in functions())


def literals(text: str) -> list[str]:
    """Return the plain literals of a text: those in quotes without an E before them."""
    found = (one for one in TOKEN.finditer(text) if not one[0].startswith(("--", "/*")))
    return [one[0] for one in found if not one["escaped"]]


def test_functions_and_their_literals_are_found() -> None:
    assert len({name for name, _, _ in functions()}) > 100
    assert literals(r"-- it's" "\n" r"SELECT 'a\b', E'c\'d', 'e''f' /* ' */") == [r"'a\b'", "'e''f'"]


def test_functions_of_pgsched_are_called_with_their_schema() -> None:
    names = "|".join({name for name, _, _ in functions()})
    bare = re.compile(rf"(?<![.\w%$])({names})\s*\(")
    wrong = {name: bare.findall(TOKEN.sub("''", text)) for name, text in scripts()}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_a_backslash_means_the_same_under_every_setting() -> None:
    """In a function it stands in E'', or the function sets standard_conforming_strings (85_settings.sql).

    In statements for sessions of others, and in scripts for psql, it always stands in E''.
    """
    wrong = {name for name, head, body in functions()
             if "standard_conforming_strings" not in head and backslashes(body)}  # fmt: skip
    elsewhere = {"roles.sql", "validate.sql", "drop_invalid.sql"} | {*blocks("enqueue.sql")}
    wrong |= {name for name, text in scripts() if name in elsewhere and backslashes(text)}
    assert wrong == set()


def test_statements_in_sessions_of_others_name_every_schema() -> None:
    """An application sends these statements on its own connections, with any search path."""
    foreign = [*blocks("enqueue.sql"), "dependencies_runs", "dependencies_add"]
    found = {name: CALL.findall(TOKEN.sub("''", statements()[name].decode())) for name in foreign}
    assert {name: calls for name, calls in found.items() if calls} == {}


def blocks(file: str) -> list[str]:
    """Return the names of a file's statements."""
    return re.findall(r"^-- name: (\w+)", (folder("sql") / file).read_text(encoding="utf-8"), re.M)


def backslashes(text: str) -> bool:
    """Check whether a plain literal contains a backslash."""
    return any("\\" in one for one in literals(text))


def test_no_search_path_of_pgsched_contains_public() -> None:
    files = [*(ROOT / "pgsched").rglob("*.py"), *(ROOT / "pgsched").rglob("*.sql"), *folder("sql").glob("*.sql"),
             *Path(folder("migrations")).rglob("*.sql")]  # fmt: skip
    assert [str(file) for file in files if PUBLIC.search(file.read_text(encoding="utf-8"))] == [
        str(ROOT / "pgsched/db/schema/migrate.py")  # what stands there already, when pgsched is added
    ]
    assert SESSION.endswith("search_path=pgsched,pg_temp")


@pytest.mark.parametrize("purpose", ["worker", "leader", "cli", "web", "migrate"])
def test_every_session_of_pgsched_has_the_sealed_settings(purpose: str) -> None:
    given = session_settings(purpose, 5, {"enable_seqscan": "off"})
    assert {name: given.get(name) for name in sealed.SETTINGS} == sealed.SETTINGS
    assert sealed.SEARCH_PATH == "pg_catalog,pg_temp"
    theirs = session_settings("run", 0, sealed.THEIRS)
    assert (
        not theirs.keys() & sealed.OURS.keys()
        and theirs.items() >= (sealed.STYLES | sealed.SESSIONS | sealed.RIGHTS).items()
    )
