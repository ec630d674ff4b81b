"""`pgsched import apscheduler`: the jobs of a job store of APScheduler 3."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.commands.importing.report import Source, Start, check_start, find_noun, print_imported
from pgsched.cli.common import Json
from pgsched.errors import InputError

SITES = ("https://apscheduler.readthedocs.io",)
File = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A job store of SQLite, or a file that export_jobs wrote.")
]
Table = Annotated[str, typer.Option("--table", metavar="NAME", help="The table of the job store.")]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    find_noun(app).command("apscheduler")(import_apscheduler)


def import_apscheduler(
    file: File = None, source: Source = None, table: Table = "apscheduler_jobs", start: Start = "paused",
    json: Json = False,
) -> None:  # fmt: skip
    """Print the jobs of a job store of APScheduler 3 as jobs.yaml. Nothing is run or changed.

    The pickles in it are read as data: nothing that they name is imported or called.

    \b
    Example:
      pgsched import apscheduler jobs.sqlite > jobs.yaml
      pgsched import apscheduler --from postgresql:///office > jobs.yaml
    """
    from datetime import UTC, datetime

    from pgsched.services.importing.apscheduler import read_apscheduler

    given = [one for one in (file, source) if one is not None]
    if len(given) != 1:
        names = "--from DSN (PGSCHED_IMPORT_DSN), a file of SQLite, or one that export_jobs wrote"
        raise InputError(f"name one source: {names}", "file")
    chosen = check_start(start)
    found = read_apscheduler(given[0], table, datetime.now(UTC))
    title = "Read from a job store by pgsched import apscheduler."
    print_imported(found, title=title, sites=SITES, mode=chosen, json=json)
