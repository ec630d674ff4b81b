"""Functions and operators in `public` that fit a call better than those of pg_catalog, and record being called.

PostgreSQL calls the function whose argument types match exactly, in any schema of the search path. A call of a
built-in function may match only through a polymorphic type, VARIADIC "any" or a cast. For each such way, `public` gets
a function with exactly the types of the call. `public` also gets one for each function of pgsched, which catches a
call that does not name the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import psycopg

from pgsched.db.statements import folder

CALL = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")
PACKAGE = Path(__file__).resolve().parents[3] / "pgsched"
ELEMENTS = (
    *("text", "bigint", "integer", "smallint", "jsonb", "timestamptz", "uuid", "interval", "double precision"),
    *("numeric", "boolean", "name", "regclass", "regprocedure", "oid", '"char"'),
)
POLYMORPHIC = {
    **dict.fromkeys(("anyelement", "anynonarray", "anycompatible", "anycompatiblenonarray"), "{}"),
    **dict.fromkeys(("anyarray", "anycompatiblearray"), "{}[]"),
}
NEARLY = {
    "bigint": ("integer", "smallint", "numeric"),
    "integer": ("bigint", "smallint"),
    "numeric": ("integer", "bigint", "double precision"),
    "double precision": ("numeric", "integer", "bigint"),
    "text": ("name", "character varying", '"char"'),
    "name": ("text",),
    "timestamp with time zone": ("date", "timestamp"),
    "regclass": ("text", "oid"),
    "oid": ("integer", "bigint", "regclass", "name"),
    "jsonb": ("json",),
    "json": ("jsonb",),
}
SIGNATURES = """
SELECT p.proname, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY a(t, n) ORDER BY n),
    format_type(p.prorettype, NULL)
FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (%s)
"""
OPERATORS = ("=", "<>", "<", ">", "<=", ">=", "||", "@>", "<@", "&&")
OURS = """
SELECT p.proname, pg_get_function_identity_arguments(p.oid), format_type(p.prorettype, NULL), p.proretset
FROM pg_proc p WHERE p.pronamespace = 'pgsched'::regnamespace AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
    AND pg_get_function_identity_arguments(p.oid) !~ 'OUT '
"""
TRAP = """BEGIN
    PERFORM pg_catalog.setval('public.caught', %s);
    RAISE EXCEPTION 'caught: %s';
END"""


class Traps:
    """The traps of one database."""

    def __init__(self, admin: psycopg.Connection[Any]) -> None:
        """Set the traps.

        `admin` is a superuser whose search path has no `public`. Any role that may create functions in `public` could
        set the same traps.
        """
        self._admin = admin
        self.signatures: dict[str, int] = {}
        admin.execute("CREATE SEQUENCE public.caught MINVALUE 0")
        admin.execute("GRANT ALL ON SEQUENCE public.caught TO PUBLIC")
        admin.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        with admin.transaction():
            admin.execute("SET LOCAL check_function_bodies = off")
            self._make(self._overloads())
            self._make(self._shadows())
            self._operators()

    def caught(self) -> str | None:
        """Return the signature of the trap that was called last, None if no trap was called."""
        last, called = self._admin.execute("SELECT last_value, is_called FROM public.caught").fetchone() or (0, False)
        return [*self.signatures][last] if called else None

    def _make(self, wanted: Iterator[tuple[str, str, str]]) -> None:
        for name, arguments, returns in wanted:
            if (text := f"{name}({arguments})") in self.signatures:
                continue
            body = TRAP % (len(self.signatures), text.replace("'", ""))
            self.signatures[text] = len(self.signatures)
            how = f"RETURNS {returns} LANGUAGE plpgsql AS $t${body}$t$"
            self._attempt(f'CREATE FUNCTION public."{name}"({arguments}) {how}')

    def _attempt(self, statement: str) -> None:
        """Create a trap; ignore an error, because what a superuser cannot create (a pseudo-type) no role can."""
        try:
            with self._admin.transaction():
                self._admin.execute(statement.encode())
        except psycopg.errors.DatabaseError:
            pass

    def _overloads(self) -> Iterator[tuple[str, str, str]]:
        rows = self._admin.execute(SIGNATURES, [sorted(called(self._admin))]).fetchall()
        builtin = {f"{name}({', '.join(types)})" for name, types, _ in rows}
        for name, types, returns in rows:
            for made, result in variations(types, returns):
                if f"{name}({', '.join(made)})" not in builtin:
                    yield name, ", ".join(made), result

    def _shadows(self) -> Iterator[tuple[str, str, str]]:
        for name, arguments, returns, many in self._admin.execute(OURS).fetchall():
            yield name, arguments, f"SETOF {returns}" if many else returns

    def _operators(self) -> None:
        for element, sign in product(ELEMENTS, OPERATORS):
            array = f"{element}[]"
            result = array if sign == "||" else "boolean"
            for left, right in ((array, array), (array, element), (element, array))[: 3 if sign == "||" else 1]:
                name = f"trap_{len(self.signatures)}"
                self._make(iter([(name, f"{left}, {right}", result)]))
                sides = f"LEFTARG = {left}, RIGHTARG = {right}"
                self._attempt(f"CREATE OPERATOR public.{sign} ({sides}, FUNCTION = public.{name})")


def called(admin: psycopg.Connection[Any]) -> set[str]:
    """Return all words that may be names of functions which a statement or a function of pgsched calls."""
    bodies = admin.execute("SELECT prosrc FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace").fetchall()
    files = [*folder("sql").glob("*.sql"), *folder("migrations").rglob("*.sql"), *PACKAGE.rglob("*.py")]
    texts = [str(row[0]) for row in bodies] + [file.read_text(encoding="utf-8") for file in files]
    return {name for text in texts for name in CALL.findall(text)}


def variations(types: list[str], returns: str) -> Iterator[tuple[list[str], str]]:
    """Yield the argument types that a call of a built-in function may have, each with the type it returns then."""
    if any(one in POLYMORPHIC for one in types):
        for element in ELEMENTS:
            made = [POLYMORPHIC.get(one, one).format(element) for one in types]
            yield made, POLYMORPHIC.get(returns, returns).format(element)
    elif '"any"' in types:
        fixed = [one for one in types if one != '"any"']
        for count in (1, 2, 3):
            for chosen in product(ELEMENTS, repeat=count) if count < 3 else ((one,) * 3 for one in ELEMENTS):
                yield [*fixed, *chosen], returns
    for place, one in enumerate(types):
        for other in NEARLY.get(one, ()):
            yield [*types[:place], other, *types[place + 1 :]], returns
