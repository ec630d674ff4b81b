"""Generate docs/reference/exceptions.md: exit codes, exceptions, and reactions to errors of the database."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgsched import errors
from pgsched.cli import EXIT_CODES
from pgsched.db.connection.failures import REACTIONS, Reaction
from pgsched.errors import PgschedError
from pgsched.web.api.errors import status_of
from tools.reference.markdown import code, prose, table
from tools.reference.markdown import page as whole

EXCEPTIONS = """
All of them are in `pgsched.errors`; those that a program may meet can be imported from `pgsched`. Their text is one
line: what happened, why, and what to do next. The column *HTTP* is the status with which the
[HTTP API](http-api.md) refuses.
""".strip()
REACTION = """
What a worker or leader does when a statement fails, by SQLSTATE (two characters stand for a whole class). What a
statement of yours may be answered with: [errors of statements](errors.md).
""".strip()


def page() -> str:
    """Return the text of the page."""
    return whole(
        "Exit codes and exceptions",
        ["## Exit codes"],
        table(("code", "meaning", "exception"), exit_codes()),
        ["## Exceptions"],
        [EXCEPTIONS],
        table(("exception", "is a", "exit code", "HTTP", "meaning"), map(exception_row, classes(PgschedError))),
        ["## What a process does about an error of the database"],
        [REACTION],
        table(("SQLSTATE", "reaction"), reactions()),
    )


def exit_codes() -> Iterator[tuple[str, str, str]]:
    """Yield each exit code, its meaning in the help, and the exceptions that have it."""
    for number, said in re.findall(r"(\d+) (.+?)(?= {3}|\n|$)", EXIT_CODES):
        named = [code(one.__name__) for one in classes(PgschedError) if one.exit_code == int(number)]
        yield number, prose(said), ", ".join(named)


def classes(base: type[PgschedError]) -> list[type[PgschedError]]:
    """Return the class and its subclasses, in the order of the module."""
    return [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, base)]


def exception_row(one: type[PgschedError]) -> tuple[str, ...]:
    """Return the row of an exception."""
    base = "`Exception`" if one is PgschedError else code(one.__mro__[1].__name__)
    status = status_of(one.__new__(one))
    return code(one.__name__), base, str(one.exit_code), str(status), prose(one.__doc__ or "")


def reactions() -> Iterator[tuple[str, str]]:
    """Yield each reaction with its SQLSTATEs."""
    for reaction in Reaction:
        known = [code(state) for state, found in REACTIONS.items() if found is reaction]
        yield ", ".join(known) or "any other", prose(reaction.value)
