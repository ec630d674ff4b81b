"""`pgsched worker list` and `pgsched worker drain`: the live workers, and the soft stop of some or all."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_workers
from pgsched.cli.messages import print_remark
from pgsched.cli.output.printing import format_cell, print_json, print_table
from pgsched.core.model import Row
from pgsched.core.units import format_count
from pgsched.core.wording import format_age, format_short_duration
from pgsched.errors import InputError

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME|ID", help="Live workers, as `worker list` shows them.", autocompletion=complete_workers
    ),
]
All = Annotated[bool, typer.Option("--all", help="All live workers, of every app and queue.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, though all are meant.")]
By = Annotated[str | None, typer.Option("--by", help="The person who asks. Default: the database's user.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to `worker`."""
    for group in app.registered_groups:
        if group.name == "worker" and group.typer_instance is not None:
            group.typer_instance.command("list")(list_workers)
            group.typer_instance.command("drain")(drain)


def list_workers(
    everything: Annotated[bool, typer.Option("--all", help="Also those that went within the last hour.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List the live workers: what they do, and what they offer.

    \b
    Example:
      pgsched worker list
    """
    from pgsched.services.charts import list_gone_workers, list_live_workers

    with session(dsn) as conn:
        alive = list_live_workers(conn)
        gone = list_gone_workers(conn) if everything else []
    if json:
        return print_json(
            [one | {"state": worker_state(one)} for one in alive] + [one | {"state": "gone"} for one in gone]
        )
    lines: list[list[Any]] = [
        [w["id"], w["name"], worker_state(w), f"{w['running']}/{w['concurrency']}",
         f"{format_short_duration(w['seen_s'])} ago", w["tasks"], w["app"], ",".join(w["queues"] or ["all"])]
        for w in alive
    ]  # fmt: skip
    for one in gone:
        state = "gone" if one["stopped_at"] is not None else "vanished"
        lines.append([one["id"], one["name"], state, None, format_age(one["seen_at"], one["now"]), None, None, None])
    headers = ["ID", "WORKER", "STATE", "BUSY", "SEEN", "TASKS", "APP", "QUEUES"]
    return print_table(headers, lines, "no live workers: start a `pgsched worker`", whole=["ID", "STATE", "SEEN"])


def worker_state(worker: dict[str, Any]) -> str:
    """Return the state of a live worker: `draining`, `asked to drain`, `blocked` or `alive`."""
    if worker["stopping"]:
        return "draining"
    if worker["drain_asked"]:
        return "asked to drain"
    return "blocked" if worker["blocked_s"] is not None else "alive"


def drain(
    names: Names = None,
    everything: All = False,
    yes: Yes = False,
    by: By = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Stop workers softly. They take nothing new, finish what runs, and end.

    A worker hears it within a third of its lease. What runs gets all the time it needs: no grace time ends it. A
    SIGTERM to the process does. In a process with several apps the workers drain together. What supervises a worker
    may start another one. With --all the workers are shown and confirmed first; those that drain already are left
    alone.

    \b
    Example:
      pgsched worker drain web-1:4711
    """
    from pgsched.services import workers

    if everything == bool(names):
        raise InputError("worker drain: name workers, or give --all for all of them", "all")
    with session(dsn) as conn:
        together = workers.find_joined(conn)
        if everything:
            found = workers.list_undrained(conn)
            confirm_all(found, yes, json)
        else:
            # an unknown name changes nothing
            found = [workers.find_worker(conn, name) for name in dict.fromkeys(names or ())]
        found = workers.drain_workers(conn, found, by)
    if json:
        return print_json([{"id": one["id"], "name": one["name"], "running": one["running"]} for one in found])
    for one in found:
        waits = []
        if one["running"]:
            waits.append(f"its {one['running']} runs" if one["running"] != 1 else "its run")
        if one["id"] in together:
            waits.append("the other workers of its process")
        end = f"it ends with {' and '.join(waits)}" if waits else "it ends"
        print(f"worker {format_cell(one['name'])} was asked to drain; {end}")
    print_remark("see them go: pgsched worker list" if found else "no worker is left to drain")
    return None


def confirm_all(found: list[Row], yes: bool, json: bool) -> None:
    """Show the workers and ask whether to drain them all; exit with code 1 if not.

    Raises InputError where a question is impossible (--json, or no terminal).
    """
    if yes or not found:
        return
    if json or not sys.stdin.isatty():
        raise InputError(f"drain {format_count(len(found), 'worker')}? Add --yes; `pgsched worker list` shows them")
    lines = [[one["id"], one["name"], f"{one['running']}/{one['concurrency']}", one["app"]] for one in found]
    print_table(["ID", "WORKER", "BUSY", "APP"], lines, "")
    if not typer.confirm(f"drain {format_count(len(found), 'worker')}?", err=True):
        raise typer.Exit(1)
