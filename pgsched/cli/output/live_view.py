"""The live view of `pgsched demo` for a terminal of 80 columns: leader, workers, jobs and newest runs."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pgsched.cli.times import to_zone
from pgsched.core.wording import format_short_duration
from pgsched.services.live_view import Live

COLOURS = {"succeeded": "green", "running": "cyan", "queued": "yellow", "scheduled": "yellow", "waiting": "yellow"}


def render(moment: Live, seconds_left: float | None) -> RenderableType:
    """Return the whole view: header, jobs and newest runs.

    `seconds_left`: until the demo ends by itself; None if it runs until Ctrl-C.
    """
    return Group(header(moment, seconds_left), jobs_table(moment), runs_table(moment))


def header(moment: Live, seconds_left: float | None) -> Text:
    """Return one line with the database's time, the leader, the workers and the seconds left."""
    text = Text(f"{to_zone(moment.now):%H:%M:%S %Z}  ", style="bold")
    leader = moment.leader
    if leader is None or leader["resigned"] or leader["seen_s"] > 5:
        text.append("no leader", style="red")
    else:
        text.append(f"leader {leader['holder']} (term {leader['term']})", style="green")
    slots = sum(worker["concurrency"] for worker in moment.workers)
    busy = sum(worker["running"] for worker in moment.workers)
    text.append(f"  workers {len(moment.workers)}, busy {busy}/{slots}")
    if seconds_left is not None:
        text.append(f"  ends in {max(0, seconds_left):.0f} s", style="dim")
    return text


def coloured_state(name: str | None) -> Text:
    """Return the name of a state in its colour."""
    return Text(name or "-", style=COLOURS.get(name or "", "red" if name else "dim"))


def jobs_table(moment: Live) -> Table:
    """Return a table of one line per job: kind, schedule, outcomes, lateness and next slot."""
    table = Table(
        title="jobs", title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in ("job", "kind", "schedule", "ok", "bad", "late p50", "worst", "next"):
        table.add_column(column, justify="left" if column in ("job", "kind", "schedule") else "right", no_wrap=True)
    for job in moment.jobs:
        table.add_row(
            Text(job["name"]),
            job["kind"],
            Text(job["schedule"]),
            str(job["ok"]),
            Text(str(job["failed"]), style="red" if job["failed"] else ""),
            format_short_duration(job["p50_s"]),
            format_short_duration(job["worst_s"]),
            describe_next_slot(moment, job),
        )
    return table


def describe_next_slot(moment: Live, job: dict[str, Any]) -> Text:
    """Return the time until the next slot of a job, or why there is none."""
    if job["error"]:
        return Text("error", style="red")
    if job["paused"]:
        return Text("paused", style="yellow")
    if job["next_run_at"] is None:
        return Text("done", style="dim")
    if job["mode"] == "shadow":
        return Text("shadow", style="yellow")
    return Text("in " + format_short_duration(max(0.0, (job["next_run_at"] - moment.now).total_seconds())))


def runs_table(moment: Live) -> Table:
    """Return a table of the newest runs."""
    table = Table(
        title="newest runs",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("run", justify="right", no_wrap=True)
    table.add_column("job", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("try", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("result or error", no_wrap=True, overflow="ellipsis", max_width=30)
    for run in moment.runs:
        detail = (run["detail"] or "").replace("\n", " ")
        tries = f"{run['attempt']}/{run['max_attempts']}"
        table.add_row(
            str(run["id"]),
            Text(run["name"][:20]),
            coloured_state(run["state"]),
            tries,
            format_short_duration(run["took_s"]),
            Text(detail),
        )
    return table
