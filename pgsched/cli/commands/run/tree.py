"""`pgsched run tree`, and `--tree` of retry and cancel: a graph of runs as a whole.

The rule: each run is shown once, below the last of the runs that it waits for; the others are named beside it.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_json
from pgsched.errors import InputError
from pgsched.services.runs.tree import amount, lines, summary

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection

Row = dict[str, Any]
Id = Annotated[int, typer.Argument(metavar="ID", help="Any run of the graph.")]
Limit = Annotated[int, typer.Option(help="Show at most so many runs.", min=1)]


def tree(run_id: Id, limit: Limit = 200, dsn: Dsn = None, json: Json = False) -> None:
    """Show the graph that a run belongs to: which runs wait for which.

    Each run is shown once, below the last of those that it waits for.

    \b
    Example:
      pgsched run tree 4711
    """
    from pgsched.db.queries.runs import graphs

    with session(dsn) as conn:
        found = graphs.tree(conn, run_id)
    if json:
        return print_json(found)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, text in enumerate(map(str, lines(found, run_id))):
        if number == limit:
            typer.echo(f"and {len(found) - limit:,} more: --limit {len(found)} shows all", err=True)
            break
        print(text if width is None or len(text) <= width else text[: width - 1] + "…")
    print(summary(found))
    return None


def change(
    conn: Connection[Any], verb: str, run_ids: list[int] | None, reason: str | None, dry: bool, json: bool
) -> None:
    """What `--tree` does: retry or cancel the graph that one run belongs to."""
    from pgsched.db.queries.runs import graphs
    from pgsched.db.queries.runs.runs import CANCELLED, RETRIED

    if run_ids is None or len(run_ids) != 1:
        raise InputError("tree: name one run of the graph by its id", "tree")
    states = RETRIED if verb == "retry" else CANCELLED
    if dry:
        ids = [run["id"] for run in graphs.tree(conn, run_ids[0]) if run["state"] in states]
        print_json({"dry_run": True, "count": len(ids), "ids": ids}) if json else print(f"{verb}: {amount(len(ids))}")
        return
    if verb == "retry":
        done = graphs.retry(conn, run_ids[0])
        states_now = Counter(row["state"] for row in done)
        words = ", ".join(f"{count:,} {state}" for state, count in states_now.most_common())
        print_json({"retried": len(done), "runs": done}) if json else print(
            f"retried {amount(len(done))}" + (f": {words}" if words else "; none had ended without success")
        )
        return
    done = graphs.cancel(conn, run_ids[0], reason)
    asked = sum(row["after"] == "requested" for row in done)
    running = f" ({asked} of them run: their workers were asked to stop them)" if asked else ""
    print_json({"cancelled": len(done), "runs": done}) if json else print(f"cancelled {amount(len(done))}{running}")
