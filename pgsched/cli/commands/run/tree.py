"""`pgsched run tree`, and `--tree` of retry and cancel: show or change a whole graph of runs.

Invariant: each run is printed once, below the last of the runs that it waits for. The other runs that it waits for are
named beside it.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_remark
from pgsched.cli.output.printing import print_json
from pgsched.errors import InputError
from pgsched.services.runs.tree import format_run_count, lines, summary

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
        found = graphs.list_graph(conn, run_id)
    if json:
        return print_json(found)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, text in enumerate(map(str, lines(found, run_id))):
        if number == limit:
            print_remark(f"and {len(found) - limit:,} more: --limit {len(found)} shows all")
            break
        print(text if width is None or len(text) <= width else text[: width - 1] + "…")
    print(summary(found))
    return None


def change_graph(
    conn: Connection[Any], verb: str, run_ids: list[int] | None, reason: str | None, dry: bool, json: bool
) -> None:
    """Retry or cancel all runs of the graph that one run belongs to.

    Raises InputError unless exactly one run is named.
    """
    from pgsched.services.runs import changes

    if run_ids is None or len(run_ids) != 1:
        raise InputError("tree: name one run of the graph by its id", "tree")
    if dry:
        ids = changes.graph_choice(conn, changes.VERBS[verb], run_ids[0]).ids
        print_json({"dry_run": True, "count": len(ids), "ids": ids}) if json else print(
            f"{verb}: {format_run_count(len(ids))}"
        )
        return
    if verb == "retry":
        revived = changes.retry_graph(conn, run_ids[0])
        states_now = Counter(row["state"] for row in revived)
        words = ", ".join(f"{count:,} {state}" for state, count in states_now.most_common())
        print_json({"retried": len(revived), "runs": revived}) if json else print(
            f"retried {format_run_count(len(revived))}"
            + (f": {words}" if words else "; none had ended without success")
        )
        return
    rows = changes.cancel_graph(conn, run_ids[0], reason).rows
    print_json({"cancelled": len(rows), "runs": rows}) if json else print(
        f"cancelled {format_run_count(len(rows))}{changes.requested_words(rows)}"
    )
