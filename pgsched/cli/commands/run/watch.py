"""`pgsched run watch`: show one run live until it has ended; the exit code is its outcome."""

from __future__ import annotations

import json as encoding
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.commands.run.logs import Id, Printer, escape_output, print_lines
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_remark
from pgsched.cli.output.printing import STATES
from pgsched.control_characters import escape_controls
from pgsched.core.payload import json_value
from pgsched.core.progress import parse_progress
from pgsched.core.wording import format_short_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pgsched.services.runs.follow import Seen

KEPT_CHARACTERS = 20_000
FACTS = ("state", "attempt", "progress", "worker")
Row = dict[str, Any]


def watch(
    run_id: Id,
    lines: Annotated[int, typer.Option(help="So many of the last lines of output.", min=0, max=1000)] = 10,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Watch a run: state, progress bar, last lines of output.

    Ends when the run has ended: exit code 0 if it succeeded, 1 if not. Ctrl-C ends only the watching. In a pipe it
    prints a line for every change and all of the output; with --json an object for each.

    \b
    Example:
      pgsched run watch 4711
    """
    from pgsched.services.runs.follow import looks

    with session(dsn) as conn:
        seen = looks(conn, run_id, note=print_remark)
        try:
            run = (
                print_json_lines(seen)
                if json
                else draw_live(seen, lines)
                if sys.stdout.isatty()
                else print_changes(seen)
            )
        except KeyboardInterrupt:
            print_remark(f"run {run_id} goes on; to end it: pgsched run cancel {run_id}")
            raise
    raise typer.Exit(0 if run["state"] == "succeeded" else 1)


def print_json_lines(looks: Iterable[Seen]) -> Row:
    """Print a JSON object for each change of the run and each piece of output; return the run's last row."""
    before: Row = {}
    for look in looks:
        print_lines(look.rows)
        if watched_values(look.run) != before:
            before = watched_values(look.run)
            print(encoding.dumps(look.run, default=json_value), flush=True)
    return look.run


def print_changes(looks: Iterable[Seen], *, ending: bool = True) -> Row:
    """Print a line for each change, and the output as it came; return the run's last row.

    `ending`: also print why it did not succeed.
    """
    before: Row = {}
    printer = Printer()
    for look in looks:
        if look.last:
            printer.print(look.rows)
        if watched_values(look.run) != before:
            before = watched_values(look.run)
            print_remark(" ".join(filter(None, [describe_run(look.run), progress_words(look.run["progress"])])))
        if not look.last:
            printer.print(look.rows)
    if ending and (reason := failure_reason(look.run)):
        print_remark(reason)
    return look.run


def draw_live(looks: Iterator[Seen], lines: int, *, ending: bool = True) -> Row:
    """Draw state, progress and the last lines of output at each look; return the run's last row.

    `ending`: also draw why it did not succeed.
    """
    from rich.console import Console
    from rich.live import Live

    text = ""
    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as screen:
        for look in looks:
            text = (text + "".join(row["chunk"] for row in look.rows))[-KEPT_CHARACTERS:]
            shown = escape_output(text).splitlines()[-lines:] if lines else []
            screen.update(draw_look(look.run, shown, ending=ending), refresh=True)
    return look.run


def draw_look(run: Row, last_lines: list[str], *, ending: bool = True) -> RenderableType:
    """Return one look at a run as a renderable for a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(describe_run(run), style=STATES.get(run["state"], ""), no_wrap=True)]
    if (found := parse_progress(run["progress"])) is not None:
        parts.append(bar(found, run["state"]))
    parts += [Text("  " + line.expandtabs(4), style="dim", no_wrap=True, overflow="ellipsis") for line in last_lines]
    if ending and (reason := failure_reason(run)):
        parts.append(Text(reason, style=STATES.get(run["state"], "")))
    return Group(*parts)


def bar(progress: Row, state: str) -> RenderableType:
    """Return a progress bar with its text."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    total = progress.get("total")
    grid = Table.grid(padding=(0, 1, 0, 0))
    filled = ProgressBar(total=total or None, completed=progress["done"], width=30, pulse=not total)
    if total or state == "running":
        grid.add_row(filled, Text(progress_words(progress), no_wrap=True, overflow="ellipsis"))
    else:
        grid.add_row(Text(progress_words(progress), no_wrap=True, overflow="ellipsis"))
    return grid


def watched_values(run: Row) -> Row:
    """Return the values of a run that are watched for changes."""
    return {name: run[name] for name in FACTS}


def describe_run(run: Row) -> str:
    """Describe a run on one line: `run 4711 nightly: running, attempt 1/3, for 12s, on web-1:77`."""
    parts = [run["state"]]
    if run["attempt"]:
        parts.append(f"attempt {run['attempt']}/{run['max_attempts']}")
    if run["started_at"] is not None and (run["finished_at"] is not None or run["state"] == "running"):
        parts.append(
            f"for {format_short_duration(max((run['finished_at'] or run['now']) - run['started_at'], timedelta(0)))}"
        )
    if run["state"] == "running" and run["worker"]:
        parts.append(f"on {run['worker']}")
    return escape_controls(f"run {run['id']} {(run['job'] or run['task'])[:40]}: {', '.join(parts)}")


def failure_reason(run: Row) -> str:
    """Return the reason and the error of a run that ended without success; empty for other runs."""
    bad = run["finished_at"] is not None and run["state"] != "succeeded"
    texts = [text for text in (run["reason"], run["error"]) if text]
    return escape_controls(": ".join(texts)) if bad else ""


def progress_words(progress: Any, attempt: int | None = None) -> str:
    """Describe progress as `42% (42/100) copying`; empty if it is not about this attempt."""
    if (found := parse_progress(progress, attempt)) is None:
        return ""
    done, total = found["done"], found["total"]
    counted = f"{format_thousands(done)}/{format_thousands(total)}" if total is not None else format_thousands(done)
    share = f"{min(100, int(100 * done / total))}% " if total else ""
    return escape_controls(f"{share}({counted})" if share else counted) + escape_controls(f" {found['note']}".rstrip())


def format_thousands(value: float) -> str:
    """Format a count with commas between thousands."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
