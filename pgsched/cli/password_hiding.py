"""Removal of secrets from the command line, which every user of the machine can read.

Invariant: a secret given on the command line does not stay there. The program executes itself again, as the same
process, with the secret in its environment. Only the user of the process can read its environment.

A secret can be read for the first tenths of a second, and later in the history of the shell. The docs therefore
recommend environment variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from pgsched.cli import MAY_HOLD_SECRETS
from pgsched.config import APPRISE, IMPORT_DSN, SINK_NAME, SQL_DSN, SQL_DSN_NAME, SQL_LOGIN
from pgsched.log import redact

# Moved only if the value has a password.
CONNECTION_OPTIONS = {"--dsn": "PGSCHED_DSN", "--from": IMPORT_DSN, "--sql-login": SQL_LOGIN}
SECRET_OPTIONS = {
    "--alert-webhook": "PGSCHED_ALERT_WEBHOOK",
    "--password-hash": "PGSCHED_WEB_PASSWORD_HASH",
}  # always moved
NAMED_CONNECTION_OPTIONS = ("--sql-dsn",)


def hide_passwords(dsn_variable: str = "PGSCHED_DSN") -> None:
    """Replace this process by one without secrets on its command line; return if there is no secret.

    `dsn_variable`: where the value of `--dsn` goes.
    """
    given = sys.argv[1:]
    found = move_secrets(given, os.environ, dsn_variable)
    if found is None:
        return
    args, environ = found
    before = sys.orig_argv[: len(sys.orig_argv) - len(given)]
    os.execve(sys.executable, [sys.executable, *before[1:], *args], environ)


def move_secrets(
    args: Sequence[str], environ: Mapping[str, str], dsn_variable: str = "PGSCHED_DSN"
) -> tuple[list[str], dict[str, str]] | None:
    """Return the arguments without secrets and the environment with them, or None if there are no secrets.

    What has a name (--sql-dsn NAME=DSN, --alert-apprise NAME=URL) keeps it as its argument. Several webhooks become one
    variable, separated by spaces; its name stays as the argument, which says that they were given here.
    """
    kept: list[str] = []
    moved: dict[str, str] = {}
    remaining = iter(args)
    for arg in remaining:
        if arg == "--":
            kept += [arg, *remaining]
            break
        flag, equals, value = arg.partition("=")
        if flag not in MAY_HOLD_SECRETS or not (equals or (value := next(remaining, ""))):
            kept.append(arg)
            continue
        if flag in SECRET_OPTIONS and value.strip() and " " not in value and value != SECRET_OPTIONS[flag]:
            variable = SECRET_OPTIONS[flag]
            before = moved.get(variable)
            if flag == "--alert-webhook" and not before:
                kept += [flag, variable]
            moved[variable] = f"{before} {value}" if before and flag == "--alert-webhook" else value
            continue
        if flag == "--alert-apprise" and (sink := variable_of_sink(value)) is not None:
            label, _, moved[sink] = value.partition("=")
            kept += [flag, label]
            continue
        name = variable_of_option(flag, value)
        if redact(value) == value or name is None:
            kept += [arg] if equals else [arg, value]
        elif flag in CONNECTION_OPTIONS:
            moved[dsn_variable if flag == "--dsn" else name] = value
        else:
            label, _, moved[name] = value.partition("=")
            kept += [flag, label]
    return (kept, {**environ, **moved}) if moved else None


def variable_of_option(flag: str, value: str) -> str | None:
    """Return the environment variable that stands for an option and its value; None if there is none."""
    if flag not in NAMED_CONNECTION_OPTIONS:
        return CONNECTION_OPTIONS.get(flag)
    name = value.partition("=")[0]
    return SQL_DSN + name.upper() if SQL_DSN_NAME.fullmatch(name) else None


def variable_of_sink(value: str) -> str | None:
    """Return the environment variable that stands for `--alert-apprise NAME=URL`; None if there is none."""
    name, sign, url = value.partition("=")
    return APPRISE + name.upper() if sign and url and SINK_NAME.fullmatch(name) else None
