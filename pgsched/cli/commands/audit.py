"""`pgsched audit`: who changed what."""

from __future__ import annotations

import json as encoding
from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.option_values import moment
from pgsched.cli.output.printing import print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("audit")(audit)


def audit(
    what: Annotated[
        str | None, typer.Argument(help="job, run, backfill, queue, limit, pause, retention or worker.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Of which one: a job's name, a run's id.")] = None,
    who: Annotated[str | None, typer.Option(metavar="USER", help="Only what this person or database user did.")] = None,
    since: Annotated[str | None, typer.Option(help="Since then: 2h, 3d, or 2026-05-01T10:00 (UTC).")] = None,
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
    from pgsched.db.queries.reports.audit import entries

    with session(dsn) as conn:
        found = entries(conn, what, name, who=who, since=moment("since", since), before_id=before, limit=limit)
    if json:
        return print_json(found)
    lines = [[row["id"], row["at"], by(row), row["action"], thing(row), change(row)] for row in found]
    return print_table(("ID", "AT", "WHO", "DID", "WHAT", "CHANGE"), lines, "nobody changed anything", wrap=True,
                       whole=["AT"])  # fmt: skip


def thing(row: dict[str, Any]) -> str:
    """What it was done to."""
    return f"{row['what']} {row['name']}"


def by(row: dict[str, Any]) -> str:
    """The person, where a console named one; the user of the database, and the role that it acted as."""
    login = str(row["who"]) if row["acting_as"] is None else f"{row['who']} as {row['acting_as']}"
    return login if row["for_user"] is None else f"{row['for_user']} by {login}"


def change(row: dict[str, Any]) -> str:
    """An edit as `column: before -> after`; of what was made, the columns that say what it is."""
    values = row["change"] or {}
    if all(isinstance(pair, list) and len(pair) == 2 for pair in values.values()):
        return "; ".join(f"{column}: {short(pair[0])} -> {short(pair[1])}" for column, pair in values.items())
    told = ("task", "schedule", "run_at", "queue", "why", "reason", "state", "run", "job", "from", "to", "concurrency",
            "concurrency_limit", "rate", "max_depth", "resume_at")  # fmt: skip
    return "; ".join(f"{column}: {short(values[column])}" for column in told if values.get(column) is not None)


def short(value: Any) -> str:
    """A value in a table's cell."""
    text = value if isinstance(value, str) else encoding.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
