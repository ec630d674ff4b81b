"""`pgsched run tree`, and `--tree` of retry and cancel: a graph of runs as a whole.

The rule: each run is shown once, below the last of the runs that it waits for; the others are named beside it.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_json
from pgsched.control_characters import clean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection

Row = dict[str, Any]
Id = Annotated[int, typer.Argument(metavar="ID", help="Any run of the graph.")]
Limit = Annotated[int, typer.Option(help="Show at most so many runs.", min=1)]
DEEPEST = 36  # columns of lines to the left of a run
NAMED = 5


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
    for number, text in enumerate(lines(found, run_id)):
        if number == limit:
            typer.echo(f"and {len(found) - limit:,} more: --limit {len(found)} shows all", err=True)
            break
        print(text if width is None or len(text) <= width else text[: width - 1] + "…")
    print(summary(found))
    return None


def lines(found: list[Row], wanted: int) -> Iterator[str]:
    """The tree as text, a line for each run."""
    runs = {run["id"]: run for run in found}
    below: dict[int | None, list[int]] = defaultdict(list)
    for run in found:
        below[max((parent["id"] for parent in run["parents"]), default=None)].append(run["id"])
    todo = [(run_id, "", "", True) for run_id in reversed(below[None])]
    while todo:
        run_id, before, branch, last = todo.pop()
        lead = before + branch
        lead = lead if len(lead) <= DEEPEST else "… " + lead[-DEEPEST + 2 :]
        yield lead + told(runs[run_id], run_id == wanted)
        inner = before + ("" if not branch else "   " if last else "│  ")
        children = below[run_id]
        for child in reversed(children):
            end = child == children[-1]
            todo.append((child, inner, "└─ " if end else "├─ ", end))


def told(run: Row, wanted: bool) -> str:
    """One run: id, state, task, what else it waits for, and why it is where it is."""
    if run["state"] is None:
        return f"{run['id']}  (pruned)"
    mark = "*" if wanted else ""
    others = sorted(run["parents"], key=lambda parent: parent["id"])[:-1]
    parts = [f"{run['id']}{mark}", run["state"], clean(run["task"])]
    if others:
        named = ", ".join(str(parent["id"]) for parent in others[:NAMED])
        parts.append(f"(also after {named}{f' and {len(others) - NAMED} more' if len(others) > NAMED else ''})")
    if any(parent["any_of"] for parent in run["parents"]):
        parts.append("(one of them is enough)")
    why = run["error"] if run["state"] == "dead" else run["reason"]
    return "  ".join(parts) + (f"  {clean(' '.join(why.split()))}" if why else "")


def summary(found: list[Row]) -> str:
    """How many runs, and how they are."""
    counts = Counter(run["state"] or "pruned" for run in found)
    return f"{amount(len(found))}: " + ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def amount(count: int) -> str:
    """So many runs, in words."""
    return f"{count:,} run{'' if count == 1 else 's'}"


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
