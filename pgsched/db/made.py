"""The rule: functions and triggers are what the revisions' texts say; where one is not, somebody else made it so."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pgsched.db.connect import Connection
from pgsched.db.statements import folder
from pgsched.db.taking_back import DROPPED, created, text_of

MADE = re.compile(
    r"^CREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER (\w+)\s.*?\bON pgsched\.(\w+)", re.DOTALL | re.MULTILINE
)
GONE = re.compile(r"^DROP TRIGGER (?:IF EXISTS )?(\w+) ON pgsched\.(\w+)", re.MULTILINE)
FUNCTIONS = "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND prokind = 'f'"
TRIGGERS = """
SELECT g.tgname::text, c.relname::text FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
WHERE c.relnamespace = 'pgsched'::regnamespace AND NOT g.tgisinternal
"""


@cache
def expected() -> tuple[dict[str, str], frozenset[tuple[str, str]]]:
    """The body of every function, and every trigger with its table, after all revisions."""
    bodies: dict[str, str] = {}
    triggers: set[tuple[str, str]] = set()
    for revision in sorted((folder("migrations")).glob("[0-9]*")):
        text = text_of(revision)
        for name in DROPPED.findall(text):
            bodies.pop(name, None)
        bodies |= {name: body.split("$$")[1] for name, body in created(text).items()}
        triggers -= set(GONE.findall(text))
        triggers |= {(found[1], found[2]) for found in MADE.finditer(text)}
    return bodies, frozenset(triggers)


def differences(conn: Connection[Any]) -> list[str]:
    """What is missing or another than the texts say, each as one phrase."""
    bodies, triggers = expected()
    there: dict[str, set[str]] = {}
    for name, body in conn.execute(FUNCTIONS).fetchall():
        there.setdefault(name, set()).add(body)
    found = [f"function {name} is missing" for name in sorted(bodies.keys() - there.keys())]
    found += [f"function {name} is another than expected" for name in sorted(bodies.keys() & there.keys())
              if bodies[name] not in there[name]]  # fmt: skip
    missing = triggers - set(conn.execute(TRIGGERS).fetchall())
    return found + [f"trigger {name} of {table} is missing" for name, table in sorted(missing)]
