"""`pgsched limit`: how many runs of a key at once, and how many a minute."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import cell, duration, print_json, print_table
from pgsched.errors import InputError

RATE = re.compile(r"(\d{1,9})/(\d{0,9})(ms|s|m|h|d)")
SPAN = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
NONE = "none"
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
    from pgsched.db.queries.jobs import queues

    values = bounds("concurrency", concurrency, rate, burst)
    values |= {column: value for column, value in (("ordered", ordered), ("weight", weight)) if value is not None}
    if not values:
        raise InputError("limit set: give --concurrency, --rate, --burst, --ordered or --weight", "concurrency")
    with session(dsn) as conn:
        row = queues.set_limit(conn, name, values)
    print_json(row) if json else print(f"limit {cell(name)}: {told(row, row['concurrency'])}")


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
        [row["name"], row["keys"], row["admitted"], row["waiting"], row["weight"], told(row, row["concurrency"])]
        for row in found
    ]
    return print_table(["LIMIT", "KEYS", "ADMITTED", "WAITING", "WEIGHT", "EACH KEY"], lines, "no limits")


def remove(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Remove a limit. What it held goes on.

    \b
    Example:
      pgsched limit remove customer
    """
    from pgsched.db.queries.jobs import queues

    with session(dsn) as conn:
        queues.remove_limit(conn, name)
    print_json({"name": name, "removed": True}) if json else print(f"limit {cell(name)} is gone")


def bounds(column: str, concurrency: str | None, rate: str | None, burst: str | None) -> dict[str, Any]:
    """The columns that --concurrency, --rate and --burst set; None puts the default back."""
    found: dict[str, Any] = {}
    if concurrency is not None:
        found[column] = whole("concurrency", concurrency, 0)
    if rate == NONE:
        found |= {"rate": None, "rate_period": None, "rate_burst": None}
    elif rate is not None:
        found["rate"], found["rate_period"] = rate_of(rate)
    if burst is not None and rate != NONE:
        found["rate_burst"] = whole("burst", burst, 1)
    return found


def whole(option: str, text: str, least: int) -> int | None:
    """A whole number, or None for `none`."""
    if text == NONE:
        return None
    if not text.isdecimal() or not least <= int(text) <= 1_000_000_000:
        raise InputError(f'{option}: "{text}" is neither a whole number from {least} on nor none', option)
    return int(text)


def rate_of(text: str) -> tuple[int, timedelta]:
    """`100/m` or `5/10s`: how many, in what period."""
    found = RATE.fullmatch(text)
    if found is None or not int(found[1]) or found[2] == "0":
        raise InputError(f'rate: "{text}" is not N/PERIOD, such as 100/m or 5/10s', "rate")
    return int(found[1]), span("rate", (found[2] or "1") + found[3])


def span(option: str, text: str) -> timedelta:
    """`90s`, `10m`, `1h`: a stretch of time."""
    found = SPAN.fullmatch(text)
    try:
        if found is None or not int(found[1]):
            raise ValueError
        return timedelta(**{UNITS[found[2]]: int(found[1])})
    except (ValueError, OverflowError):
        raise InputError(f'{option}: "{text}" is not a time such as 90s, 10m, 1h or 2d', option) from None


def told(row: dict[str, Any], concurrency: int | None) -> str:
    """What a limit says, for people."""
    parts = []
    if concurrency is not None:
        parts.append(f"{concurrency} at once")
    if row["rate"] is not None:
        period = row["rate_s"] if "rate_s" in row else row["rate_period"]
        burst = row["rate_burst"] or max(1, row["rate"] // 10)
        parts.append(f"{row['rate']} in {duration(period)}, burst {burst}")
    if row.get("ordered"):
        parts.append("in order")
    return ", ".join(parts) or "not limited"
