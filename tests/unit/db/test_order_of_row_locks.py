"""The functions of the recipes wait for locked rows in one order, so that no two of them wait for each other.

The order: the row of a lock or of a root of the store, but not of both; then rows of sessions. Whoever has locked a row
of a lock or root with SKIP LOCKED waits for no other one, unless it had waited for one before.

What follows is read from the text of the functions, with the functions that they call in their places. A table that
was locked is not looked at again: later statements there are about the same row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

TEXTS = sorted((ROOT / "migrations" / "1003_recipes").glob("[56]*.sql"))
FUNCTION = re.compile(r"^CREATE FUNCTION pgsched\.(\w+)\(.*?AS \$\$(.*?)\$\$", re.MULTILINE | re.DOTALL)
TABLES = ("locks", "store_roots", "sessions")
# writes that lock the row of a session for their foreign key
BOUND = ("lock_places", "lock_losses", "store")
EVENT = re.compile(
    rf"(?P<writes>(?:UPDATE|DELETE FROM) pgsched\.(?:{'|'.join(TABLES)})\b)"
    rf"|(?P<locks>FROM pgsched\.(?:{'|'.join(TABLES)})\b[^;]*?\bFOR (?:NO KEY )?(?:UPDATE|SHARE)|"
    rf"FROM pgsched\.(?:{'|'.join(TABLES)})\b[^;]*?\bFOR KEY SHARE)"
    rf"|(?P<bound>INSERT INTO pgsched\.(?:{'|'.join(BOUND)})\b)"
    r"|pgsched\.(?P<calls>\w+)\("
)
Event = tuple[str, bool]  # the table, and whether the call waits for a locked row of it


def functions() -> dict[str, str]:
    """Return the functions of the recipes with their texts, without comments."""
    found = FUNCTION.findall("\n".join(path.read_text() for path in TEXTS))
    return {name: re.sub(r"--[^\n]*", "", body) for name, body in found}


def events(
    name: str, bodies: dict[str, str], passed: frozenset[str] = frozenset(), callers: tuple[str, ...] = ()
) -> Iterator[Event]:
    """Yield which tables a function locks rows of, in the order of its text.

    `passed`: tables of which the callers have locked rows with SKIP LOCKED. `callers`: the functions that call it.
    """
    mine = set(passed)
    for statement in bodies[name].split(";"):
        for found in EVENT.finditer(statement):
            if (called := found["calls"]) is not None:
                if called in bodies and called not in callers:
                    yield from events(called, bodies, frozenset(mine), (*callers, called))
                continue
            table = "sessions" if found["bound"] else re.findall(r"pgsched\.(\w+)", found[0])[0]
            waits = "SKIP LOCKED" not in statement
            if table not in mine:
                yield table, waits
            if not waits:
                mine.add(table)


def faults(sequence: list[Event]) -> set[str]:
    """Return what is wrong with the order in which rows are locked."""
    wrong, waited, skipped = set(), list[str](), set[str]()
    for table, waits in sequence:
        if waits and table not in waited:
            if table != "sessions" and "sessions" in waited:
                wrong.add(f"{table} after sessions")
            elif table != "sessions" and waited:
                wrong.add(f"{table} after {waited[0]}")
            if table != "sessions" and table in skipped:
                wrong.add(f"{table} after others of {table}")
            waited.append(table)
        elif not waits:
            skipped.add(table)
    return wrong


def test_no_function_waits_for_rows_in_another_order() -> None:
    bodies = functions()
    assert {name: found for name in bodies if (found := faults(list(events(name, bodies))))} == {}


def test_the_order_is_read_from_the_texts() -> None:
    bodies = functions()
    waits = {
        name: list(dict.fromkeys(table for table, waits in events(name, bodies) if waits))
        for name in ("lock_acquire", "lock_break", "kv_put", "restored", "session_end", "kv_changes", "assert_lock")
    }
    assert waits == {
        "lock_acquire": ["locks", "sessions"],
        "lock_break": ["locks", "sessions"],
        "kv_put": ["store_roots", "sessions"],
        "restored": ["store_roots", "sessions"],
        "session_end": ["sessions"],
        "kv_changes": [],
        "assert_lock": [],
    }


OPEN = "PERFORM pgsched.session_open(token, ttl);"


@pytest.mark.parametrize(
    ("function", "line", "fault"),
    [
        ("lock_acquire", OPEN, "locks after sessions"),
        ("lock_acquire", "PERFORM pgsched.leave_lines(NULL);", "locks after others of locks"),
        ("lock_break", "UPDATE pgsched.store_roots SET keys = 0;", "locks after store_roots"),
        ("kv_put", OPEN, "store_roots after sessions"),
    ],
)
def test_another_order_is_found(function: str, line: str, fault: str) -> None:
    bodies = functions()
    bodies[function] = bodies[function].replace("BEGIN", f"BEGIN {line}", 1)
    assert fault in faults(list(events(function, bodies)))
