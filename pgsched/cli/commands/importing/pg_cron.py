"""`pgsched import pg_cron`: the jobs of the extension, from its table."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.commands.importing.report import Source, Start, check_start, find_noun, print_imported
from pgsched.cli.common import Json
from pgsched.errors import InputError

SITES = ("https://github.com/citusdata",)
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="NAME", help="Where pgsched's SQL jobs run. Default: the same database."),
]
Zone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="cron.timezone, if your role may not see the setting.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    find_noun(app).command("pg_cron")(import_pg_cron)


def import_pg_cron(
    source: Source = None, database: Database = None, timezone: Zone = None, start: Start = "paused", json: Json = False
) -> None:
    """Print the jobs of pg_cron as jobs.yaml. Nothing is run or changed.

    The table cron.job is read by a connection that writes nothing. Your role sees its own jobs, a superuser all.
    Without --from it is that of the database of pgsched: PGSCHED_DSN, DATABASE_URL.

    \b
    Example:
      pgsched import pg_cron --from postgresql:///shop > jobs.yaml
    """
    from datetime import UTC, datetime

    from pgsched.config import find_dsn
    from pgsched.services.importing.pg_cron import read_pg_cron

    dsn = find_dsn(source)
    if dsn is None:
        raise InputError("which database has pg_cron? --from DSN", "from")
    chosen = check_start(start)
    found = read_pg_cron(dsn, datetime.now(UTC), timezone=timezone, database=database)
    title = "Read from the table cron.job by pgsched import pg_cron."
    print_imported(found, title=title, sites=SITES, mode=chosen, json=json)
