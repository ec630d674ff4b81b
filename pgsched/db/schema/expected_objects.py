"""Compare the database's functions, triggers and CHECKs with migrations/schema.sql, to find manual changes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.schema.dump import schema_path

FUNCTION = re.compile(
    r"^CREATE OR REPLACE FUNCTION pgsched\.(\w+)\(.*?\$function\$(.*?)\$function\$;", re.DOTALL | re.MULTILINE
)
TRIGGER = re.compile(r"^CREATE TRIGGER (\w+) .*? ON pgsched\.(\w+) ", re.MULTILINE)
CHECK = re.compile(r"^    CONSTRAINT (\w+) CHECK", re.MULTILINE)
FUNCTIONS = "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND prokind = 'f'"
TRIGGERS = """
SELECT g.tgname::text, c.relname::text FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
WHERE c.relnamespace = 'pgsched'::regnamespace AND NOT g.tgisinternal
"""
CHECKS = "SELECT conname::text FROM pg_constraint WHERE connamespace = 'pgsched'::regnamespace AND contype = 'c'"


@cache
def expected_objects() -> tuple[dict[str, str], frozenset[tuple[str, str]], frozenset[str]]:
    """Return the expected objects: the body of every function, every trigger with its table, and every CHECK."""
    text = schema_path().read_text(encoding="utf-8")
    return dict(FUNCTION.findall(text)), frozenset(TRIGGER.findall(text)), frozenset(CHECK.findall(text))


def differences(conn: Connection[Any]) -> list[str]:
    """Return what is missing or differs from migrations/schema.sql, each as one phrase."""
    bodies, triggers, checks = expected_objects()
    there: dict[str, set[str]] = {}
    for name, body in conn.execute(FUNCTIONS).fetchall():
        there.setdefault(name, set()).add(body)
    found = [f"function {name} is missing" for name in sorted(bodies.keys() - there.keys())]
    found += [f"function {name} is another than expected" for name in sorted(bodies.keys() & there.keys())
              if bodies[name] not in there[name]]  # fmt: skip
    existing_checks = {name for (name,) in conn.execute(CHECKS).fetchall()}
    found += [f"check {name} is missing" for name in sorted(checks - existing_checks)]
    missing = triggers - set(conn.execute(TRIGGERS).fetchall())
    return found + [f"trigger {name} of {table} is missing" for name, table in sorted(missing)]
