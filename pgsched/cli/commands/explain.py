"""`pgsched explain`: explain what happened to a slot of a job, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_json, print_text


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("explain")(explain)


def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name (or id, when it was deleted).")],
    at: Annotated[
        str | None,
        typer.Argument(metavar="[AT]", help="An instant, in the job's zone without offset. Default: the latest due."),
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

    with session(dsn) as conn:
        found = explain_slot(conn, job, at)
    print_json(asdict(found)) if json else print_text(found.text)
