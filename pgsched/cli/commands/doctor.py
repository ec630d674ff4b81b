"""`pgsched doctor`: report problems of the running system."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.commands.database import print_findings
from pgsched.cli.common import Dsn, Json


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("doctor")(doctor)


def doctor(
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Say what is wrong with the running system: which session blocks, what is missing, what will hurt.

    Everything that `pgsched check` says, then what shows only while work goes on. Changes nothing.

    Exit code: 0 if nothing failed (warnings do not count without --strict), else that of the first failure; 1 where
    work is held up or lost.

    \b
    Example:
      pgsched doctor --json
    """
    from pgsched.services import doctor as observe

    found = observe.doctor(dsn)
    code = observe.exit_code(found, strict)
    print_findings(found, code, json)
    raise typer.Exit(code)
