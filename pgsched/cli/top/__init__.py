"""The `pgsched top` command: a live view of the whole system in a terminal, with keys to act on it.

The view is made for terminals of 80x24 cells or more.

Invariant: the screen is a pure function of what was read and which keys were pressed (`state`, `control`, `frame`).
Only `screen` knows the terminal, and only `reader` waits for the database.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched import gc_tuning
from pgsched.cli.common import Dsn, Json, migrated_database
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection

PAGES = ("overview", "running", "queues", "jobs", "failures", "workers")
FirstPage = Annotated[str, typer.Option("--page", metavar="NAME", help=f"The first page: {', '.join(PAGES)}.")]
Interval = Annotated[
    float, typer.Option("--interval", "-n", metavar="SECONDS", help="Between two looks.", min=0.2, max=3600)
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("top")(top)


def top(
    page: FirstPage = PAGES[0],
    interval: Interval = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look, and end.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Watch the whole system, live: throughput, queues, what runs, what comes next, errors.

    Keys open a run, job or queue, and pause, retry and cancel; ? shows them. q quits. With --json an object a look,
    one a line; that and --once need no terminal.

    \b
    Example:
      pgsched top
    """
    if page not in PAGES:
        raise InputError(f'page: "{page}" is not one of {", ".join(PAGES)}{did_you_mean(page, PAGES)}', "page")
    if not (json or once or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise InputError("top needs a terminal: use `pgsched status --json`, or `pgsched top --once`")
    from pgsched.services.top import connect_for_top

    with migrated_database(dsn) as address:
        conn = connect_for_top(address)
        if not once:
            gc_tuning.tune_for_long_run()
        if json:
            return print_objects(conn, page, interval, once)
        if once:
            return print_once(conn, page)
        from pgsched.cli.top.loop import run_screen

        return run_screen(address, conn, page, interval)


def print_objects(conn: Connection[Any], page: str, interval: float, once: bool) -> None:
    """Print a JSON object for each look at the system, one per line; with `once` a single object."""
    import json
    import time

    from pgsched.cli.output.printing import print_json
    from pgsched.core.payload import json_value
    from pgsched.services.top import Page, TopReader

    looking = TopReader()
    while True:
        found = looking.look(conn, Page(page)).to_dict()
        if once:
            return print_json(found)
        print(json.dumps(found, default=json_value), flush=True)
        time.sleep(interval)


def print_once(conn: Connection[Any], page: str) -> None:
    """Print one look at the system as text, in colours on a terminal."""
    import shutil

    from rich.console import Console

    from pgsched.cli.top.frame import frame
    from pgsched.cli.top.pieces import ASCII
    from pgsched.cli.top.state import State
    from pgsched.services.top import Page, TopReader

    size, encoding = shutil.get_terminal_size((80, 24)), sys.stdout.encoding or "utf-8"
    look = TopReader().look(conn, Page(page))
    console = Console(highlight=False, width=size.columns)
    for line in frame(State(size.columns, size.lines, tab=page, look=look))[:-1]:
        line.rstrip()
        if "utf" in encoding.lower():
            console.print(line, soft_wrap=True)
        else:
            print(line.plain.translate(ASCII).encode(encoding, "replace").decode(encoding))
