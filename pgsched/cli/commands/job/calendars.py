"""`pgsched job calendar`: a job's own excluded dates: add, remove or list them."""

from __future__ import annotations

from dataclasses import asdict, astuple
from datetime import date
from typing import Annotated

import typer

from pgsched.cli.commands.job.options import Name
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import format_cell, print_json, print_table
from pgsched.core.input_values import parse_dates
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

ACTIONS = ("add", "remove", "list")


def register(app: typer.Typer) -> None:
    """Add the verb `calendar` to `job`."""
    for group in app.registered_groups:
        if group.name == "job" and group.typer_instance is not None:
            group.typer_instance.command("calendar")(calendar)


def calendar(
    name: Name,
    action: Annotated[str, typer.Argument(metavar="add|remove|list", help="What to do.")] = "list",
    dates: Annotated[
        str | None, typer.Argument(metavar="DATE[..DATE]", help="A date, or the first and the last of several.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; each slot that is skipped for it says so.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Add, remove or list the excluded dates of one job, in its time zone. Several jobs share a `pgsched calendar`.

    What becomes of slots on these dates, on_excluded says: by default they are skipped, with the reason. Dates removed
    from the middle of a stretch leave its two ends.

    \b
    Example:
      pgsched job calendar nightly add 2026-12-24..2026-12-26 --reason Christmas
    """
    from pgsched.services.jobs import excluded_dates

    span = parse_action_dates(action, dates, reason)
    with session(dsn) as conn:
        if span is None:
            found = excluded_dates.entries(conn, name)
        elif action == "add":
            found = [excluded_dates.exclude(conn, name, *span, reason)]
        else:
            found = excluded_dates.allow(conn, name, *span)
    if json:
        return print_json([asdict(entry) for entry in found])
    if action != "list":
        verb = "does not run" if action == "add" else "runs again"
        print(f"job {format_cell(name)} {verb} on {format_cell(dates)}")
        return None
    return print_table(["FROM", "UNTIL", "REASON"], [astuple(entry) for entry in found], "no excluded dates")


def parse_action_dates(action: str, dates: str | None, reason: str | None) -> tuple[date, date] | None:
    """Return the first and the last date that an action is about; None for `list`.

    Raises InputError for an unknown action, and for dates or a reason that do not go with it.
    """
    if action not in ACTIONS:
        raise InputError(
            f'action: "{action}" is not one of {", ".join(ACTIONS)}{did_you_mean(action, ACTIONS)}', "action"
        )
    if reason is not None and action != "add":
        raise InputError("reason: is for `add` alone", "reason")
    if (dates is None) != (action == "list"):
        wanted = "takes none" if action == "list" else "needs a date, or the first and the last: 2026-12-24..2026-12-26"
        raise InputError(f"dates: {action} {wanted}", "dates")
    return None if dates is None else parse_dates(dates)
