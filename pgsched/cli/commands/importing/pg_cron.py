"""`pgsched import pg_cron`: the jobs of the extension, from its table."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.commands.importing.group import Shadow, import_group, print_imported
from pgsched.cli.common import Json
from pgsched.errors import InputError

Source = Annotated[
    str | None, typer.Option("--dsn", metavar="DSN", help="Database with pg_cron. Default: PGSCHED_DSN, DATABASE_URL.")
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="NAME", help="Where pgsched's SQL jobs run. Default: the same database."),
]
Zone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="cron.timezone, if your role may not see the setting.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    import_group(app).command("pg_cron")(import_pg_cron)


def import_pg_cron(
    source: Source = None, database: Database = None, timezone: Zone = None, shadow: Shadow = False, json: Json = False
) -> None:
    """Print the jobs of pg_cron as a file of jobs, with a comment where one does not carry over exactly.

    The table cron.job is read by a connection that writes nothing. Your role sees its own jobs, a superuser all.

    \b
    Example:
      pgsched import pg_cron --dsn postgresql:///shop > jobs.yaml
    """
    from datetime import UTC, datetime

    from pgsched.config import find_dsn
    from pgsched.services.importing.pg_cron import read_pg_cron

    dsn = find_dsn(source)
    if dsn is None:
        raise InputError("which database has pg_cron? --dsn DSN", "dsn")
    found = read_pg_cron(dsn, datetime.now(UTC), timezone=timezone, database=database)
    print_imported(found, title="Jobs of pg_cron, from the table cron.job.", shadow=shadow, json=json)
