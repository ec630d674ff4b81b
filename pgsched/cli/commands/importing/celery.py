"""`pgsched import celery`: the schedule of Celery beat, of an app or from the tables of django-celery-beat."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.commands.importing.report import Source, Start, check_start, find_noun, print_imported
from pgsched.cli.common import Json
from pgsched.cli.messages import print_note
from pgsched.errors import InputError

SITES = ("https://docs.celeryq.dev", "https://django-celery-beat.readthedocs.io")
File = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A database of SQLite with the tables of django-celery-beat.")
]
# Not PGSCHED_APP: importing an app runs its code, so it is named each time.
App = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:APP", help="The Celery app. It is imported: its code runs.")
]
Zone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="The zone of the app, if it does not say so itself.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    find_noun(app).command("celery")(import_celery)


def import_celery(
    file: File = None, app: App = None, source: Source = None, timezone: Zone = None, start: Start = "paused",
    json: Json = False,
) -> None:  # fmt: skip
    """Print the schedule of Celery beat as jobs.yaml.

    With --app it is the beat_schedule of an app, whose module is imported: that runs its code. With --from, or with a
    file of SQLite, it is what django-celery-beat has in its tables, and nothing of yours is imported or run.

    \b
    Example:
      pgsched import celery --app shop.celery:app > jobs.yaml
      pgsched import celery --from postgresql:///shop > jobs.yaml
    """
    from datetime import UTC, datetime

    from pgsched.services.importing.celery import read_beat_tables
    from pgsched.services.importing.celery_process import read_celery_apart

    given = [one for one in (file, app, source) if one is not None]
    if len(given) != 1:
        names = "--app MODULE:APP, --from DSN (PGSCHED_IMPORT_DSN), or a file of SQLite"
        raise InputError(f"name one source: {names}", "app")
    chosen, now = check_start(start), datetime.now(UTC)
    if app is not None:
        print_note(f"--app imports {app.partition(':')[0]}: its code runs, as in `celery beat`")
        found, title = read_celery_apart(app, now, timezone=timezone), f"Read from the beat_schedule of {app}"
    else:
        found, title = read_beat_tables(given[0], now, timezone=timezone), "Read from the tables of django-celery-beat"
    print_imported(found, title=f"{title} by pgsched import celery.", sites=SITES, mode=chosen, json=json)
