"""`pgsched export`: print jobs and settings as a jobs file."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_owners
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import print_json
from pgsched.control_characters import escape_controls

Form = Annotated[str, typer.Option("--format", metavar="yaml|toml", help="The format of the file.")]
OnlyOwner = Annotated[
    str | None,
    typer.Option(
        "--owner", metavar="NAME", help="Only what this owner's file declares.", autocompletion=complete_owners
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("export")(export)


def export(file_format: Form = "yaml", owner: OnlyOwner = None, dsn: Dsn = None, json: Json = False) -> None:
    """Print jobs, settings, calendars, retention and alerts as a jobs file from which `plan` finds no difference.

    Columns with their default are left out, and so is what code declares. A note says what else a file cannot hold.

    \b
    Example:
      pgsched export > jobs.yaml
    """
    from pgsched.services.jobs_file import exporting

    with session(dsn) as conn:
        text, remarks = exporting.export(conn, file_format, owner)
    if json:
        return print_json({"format": file_format, "text": text, "notes": remarks})
    for remark in remarks:
        print_note(remark)
    sys.stdout.write(escape_controls(text, "\n\t") if sys.stdout.isatty() else text)
    return None
