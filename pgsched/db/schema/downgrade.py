"""The rule: a revision that is taken back leaves every function as the revisions before it made it.

So `down/` need not name them: what a file of the revision creates, replaces or drops is made again from the newest text
of an earlier revision, and goes where there is none. No name has two functions in one revision (a test holds that).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

CREATED = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION pgsched\.(\w+)\(.*?\$\$.*?\$\$[^;]*;", re.DOTALL | re.MULTILINE)
DROPPED = re.compile(r"^\s*DROP FUNCTION (?:IF EXISTS )?pgsched\.(\w+)\(", re.MULTILINE)
FOUND = """
SELECT p.oid, p.oid::regprocedure::text, p.proname, p.ctid::text, p.prosecdef FROM pg_proc p
WHERE p.pronamespace = 'pgsched'::regnamespace
"""


def text_of(folder: Path) -> str:
    """All files of a revision, in order."""
    return "\n".join(file.read_text() for file in sorted(folder.glob("*.sql")))


def created(text: str) -> dict[str, str]:
    """The functions that these statements make: name and statement."""
    return {found[1]: found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
            for found in CREATED.finditer(text)}  # fmt: skip


def before(folder: Path) -> dict[str, str]:
    """The functions there were right before this revision: name and statement."""
    known: dict[str, str] = {}
    for earlier in sorted(folder.parent.glob("[0-9]*")):
        if earlier.name >= folder.name:
            break
        text = text_of(earlier)
        for name in DROPPED.findall(text):
            known.pop(name, None)
        known |= created(text)
    return known


def restore_functions(bind: Any, folder: Path) -> None:
    """Make the functions again that the revision changed, and drop those that it brought."""
    text = text_of(folder)
    known, changed = before(folder), {*created(text), *DROPPED.findall(text)}
    was = {row[0]: row for row in bind.exec_driver_sql(FOUND)}
    bind.exec_driver_sql("SET LOCAL check_function_bodies = off")
    for name in sorted(changed & set(known)):
        bind.exec_driver_sql(known[name])
    for oid, signature, name, place, _ in list(bind.exec_driver_sql(FOUND)):
        if name not in changed:
            continue
        if oid in was and was[oid][3] == place:  # nothing made it again
            bind.exec_driver_sql(f"DROP FUNCTION {signature}")
        elif oid in was and was[oid][4]:  # the roles' doing, which replacing it has undone
            bind.exec_driver_sql(f"ALTER FUNCTION {signature} SECURITY DEFINER")
