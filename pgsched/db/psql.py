"""Build the psql command for a DSN.

Invariant: a password is passed in the environment, never in the list of processes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.db.connection.dsn import SECRETS_WITHOUT_VARIABLE, parameters
from pgsched.errors import InputError, PgschedError

# `SELECT * FROM jobs` works, and no other schema's functions are found: the user may be a superuser.
SESSION = "-c search_path=pgsched,pg_temp"


def environment(dsn: str) -> tuple[dict[str, str], str]:
    """Return the environment variables that libpq reads for this DSN, and a DSN of the rest, which has no variables."""
    given = {key: str(value) for key, value in parameters(dsn).items() if value is not None}
    given["options"] = f"{given.get('options', '')} {SESSION}".strip()
    given.setdefault("application_name", "pgsched psql")
    given.setdefault("connect_timeout", "5")
    names = {option.keyword.decode(): option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar}
    others = {key: value for key, value in given.items() if key not in names}
    return {names[key]: value for key, value in given.items() if key in names}, make_conninfo("", **others)


def command(dsn: str, arguments: Sequence[str], folder: Path | None = None) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment that open psql on this DSN.

    `folder`: the directory of psql; None: look in PATH.

    Raises PgschedError without psql, and InputError for a secret that only the command line could pass on.
    """
    program = shutil.which("psql", path=None if folder is None else str(folder))
    if program is None:
        where = "PATH" if folder is None else str(folder)
        raise PgschedError(f"there is no psql in {where}: install PostgreSQL's client programs")
    own, other_dsn = environment(dsn)
    if secrets := SECRETS_WITHOUT_VARIABLE & conninfo_to_dict(other_dsn).keys():
        name = min(secrets)
        text = f"{name}: every user of this machine would see it in psql's command line"
        raise InputError(f"{text}: put it into a service file (pg_service.conf) and give service=NAME", name)
    return [program, *((f"--dbname={other_dsn}",) if other_dsn else ()), *arguments], {**os.environ, **own}
