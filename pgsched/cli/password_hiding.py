"""The rule: a password given on the command line does not stay there, where every user of the machine can read it.

The program begins again, as the same process, with the connection string in its environment, which only its user reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from pgsched.config import SQL_DSN, SQL_LOGIN
from pgsched.log import redact

WHOLE = {"--dsn": "PGSCHED_DSN", "--sql-login": SQL_LOGIN}
FLAGS = (*WHOLE, "--sql-dsn")


def hide_passwords() -> None:
    """Replace this process by one whose command line has no password; return if it has none."""
    given = sys.argv[1:]
    found = hidden(given, os.environ)
    if found is None:
        return
    args, environ = found
    before = sys.orig_argv[: len(sys.orig_argv) - len(given)]
    os.execve(sys.executable, [sys.executable, *before[1:], *args], environ)


def hidden(args: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]] | None:
    """The arguments without connection strings that have a password, and the environment with them; None: none has. Of
    one that has a name that stays."""
    kept: list[str] = []
    moved: dict[str, str] = {}
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            kept += [arg, *rest]
            break
        flag, equals, value = arg.partition("=")
        if flag not in FLAGS or not (equals or (value := next(rest, ""))):
            kept.append(arg)
            continue
        name = variable(flag, value)
        if redact(value) == value or name is None:
            kept += [arg] if equals else [arg, value]
        elif flag in WHOLE:
            moved[name] = value
        else:
            label, _, moved[name] = value.partition("=")
            kept += [flag, label]
    return (kept, {**environ, **moved}) if moved else None


def variable(flag: str, value: str) -> str | None:
    """The environment variable that means the same; None where there is none."""
    if flag in WHOLE:
        return WHOLE[flag]
    name = value.partition("=")[0]
    return SQL_DSN + name.upper() if name.replace("_", "").isalnum() and name == name.lower() else None
