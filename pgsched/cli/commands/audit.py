"""`pgsched audit`: list what people changed, when, and from which value to which."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_json, print_table
from pgsched.cli.times import read_moment


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("audit")(audit)


def audit(
    what: Annotated[
        str | None, typer.Argument(help="job, run, backfill, queue, limit, pause, retention, worker or lock.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Of which one: a job's name, a run's id.")] = None,
    who: Annotated[str | None, typer.Option(metavar="USER", help="Only what this person or database user did.")] = None,
    since: Annotated[str | None, typer.Option(help="Since then: 2h, 22:00, yesterday, monday 6:00, ISO.")] = None,
    before: Annotated[int | None, typer.Option(metavar="ID", help="Go on after the page that ended here.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 50,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List what people changed, the newest first: who, when, and each column before and after.

    \b
    Example:
      pgsched audit job nightly --since 7d
      pgsched audit --who alice --json
    """
    from pgsched.services.audit import changes, describe_author, describe_change

    with session(dsn) as conn:
        found = changes(conn, what, name, who=who, since=read_moment("since", since), before_id=before, limit=limit)
    if json:
        return print_json(found)
    lines = [
        [row["id"], row["at"], describe_author(row), row["action"], changed_thing(row), describe_change(row)]
        for row in found
    ]
    return print_table(("ID", "AT", "WHO", "DID", "WHAT", "CHANGE"), lines, "there are no changes", wrap=True,
                       whole=["AT"])  # fmt: skip


def changed_thing(row: dict[str, Any]) -> str:
    """Return the kind and the name of what was changed."""
    return f"{row['what']} {row['name']}"
