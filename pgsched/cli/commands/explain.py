"""`pgsched explain`: explain what happened to a slot of a job, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_jobs
from pgsched.cli.output.printing import print_json, print_text
from pgsched.cli.times import fix_zone, localize


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("explain")(explain)


def explain(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="The job's name (or id, when it was deleted).", autocompletion=complete_jobs
        ),
    ],
    at: Annotated[
        str | None,
        typer.Argument(metavar="[AT]", help="02:00, yesterday 02:00, ISO; in the job's zone. Default: the latest due."),
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Explain what became of a slot of a job, and why.

    It is the slot nearest to AT.

    \b
    Example:
      pgsched explain nightly 2026-05-01T02:00
    """
    from pgsched.services.jobs.explain import explain_slot

    asked = None if at is None else fix_zone("at", at)
    with session(dsn) as conn:
        found = explain_slot(conn, job, asked)
    print_json(asdict(found)) if json else print_text(localize(found.text))
