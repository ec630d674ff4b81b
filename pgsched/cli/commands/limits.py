"""`pgsched limit`: set, list and remove limits of keys (concurrency, rate, order, weight)."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import format_cell, print_json, print_table
from pgsched.core.input_values import limit_columns
from pgsched.core.wording import describe_limit
from pgsched.errors import InputError

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A key, or what its keys begin with: customer binds customer:42.")
]
Concurrency = Annotated[
    str | None, typer.Option(metavar="N", help="At most so many admitted at once; `none` takes it away.")
]
Rate = Annotated[
    str | None, typer.Option(metavar="N/PERIOD", help="Starts in a period: 100/m, 5/10s; `none` takes it away.")
]
Burst = Annotated[
    str | None, typer.Option(metavar="N", help="Starts at once beyond an even pace. Default: a tenth of N, at least 1.")
]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(help="Limits of keys: set, list, remove.", no_args_is_help=True, rich_markup_mode=None)
    noun.command("set")(set_limit)
    noun.command("list")(list_limits)
    noun.command("remove")(remove)
    app.add_typer(noun, name="limit")


def set_limit(
    name: Name,
    concurrency: Concurrency = None,
    rate: Rate = None,
    burst: Burst = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--unordered", help="With a limit of 1: strictly first in, first out.")
    ] = None,
    weight: Annotated[int | None, typer.Option(min=1, max=1000, help="Share of a fair queue; default 1.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Limit the runs of a key. It holds for all workers together, within a second.

    A run has a key by its concurrency_key; a job gives one to each of its runs.

    \b
    Example:
      pgsched limit set customer --concurrency 2 --rate 100/m
    """
    from pgsched.services import settings

    values = limit_columns("concurrency", concurrency, rate, burst)
    values |= {column: value for column, value in (("ordered", ordered), ("weight", weight)) if value is not None}
    if not values:
        raise InputError("limit set: give --concurrency, --rate, --burst, --ordered or --weight", "concurrency")
    with session(dsn) as conn:
        row = settings.set_limit(conn, name, values)
    print_json(row) if json else print(f"limit {format_cell(name)}: {describe_limit(row, row['concurrency'])}")


def list_limits(dsn: Dsn = None, json: Json = False) -> None:
    """List the limits of keys, and how much each of them holds.

    \b
    Example:
      pgsched limit list
    """
    from pgsched.db.queries.jobs import queues

    with session(dsn) as conn:
        found = queues.list_limits(conn)
    if json:
        return print_json(found)
    lines = [
        [
            row["name"],
            row["keys"],
            row["admitted"],
            row["waiting"],
            row["weight"],
            row["declared_by"] or "",
            describe_limit(row, row["concurrency"]),
        ]
        for row in found
    ]
    columns = ["LIMIT", "KEYS", "ADMITTED", "WAITING", "WEIGHT", "DECLARED BY", "EACH KEY"]
    return print_table(columns, lines, "no limits")


def remove(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Remove a limit. What it held goes on.

    \b
    Example:
      pgsched limit remove customer
    """
    from pgsched.services import settings

    with session(dsn) as conn:
        settings.remove_limit(conn, name)
    print_json({"name": name, "removed": True}) if json else print(f"limit {format_cell(name)} is gone")
