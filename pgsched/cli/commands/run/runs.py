"""`pgsched run list` and `run show`; registers all verbs of `pgsched run`."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from pgsched.cli.commands.run import options
from pgsched.cli.commands.run.changes import cancel, retry
from pgsched.cli.commands.run.logs import logs
from pgsched.cli.commands.run.tree import tree
from pgsched.cli.commands.run.update import update_runs
from pgsched.cli.commands.run.watch import progress_words, watch
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_fields, print_json, print_table
from pgsched.control_characters import escape_controls
from pgsched.core.wording import due_at, format_age, format_short_duration, shorten

LONGEST_TASK = 30
EXPLAINED = 20  # a list says why its first 20 waiting runs wait
HEADERS = ["ID", "JOB", "STATE", "ATTEMPT", "SLOT", "TOOK", "TASK", "WHY"]
NARROW_HEADERS = ["ID", "JOB OR TASK", "STATE", "ATTEMPT", "SLOT", "TOOK", "WHY"]
Id = Annotated[int, typer.Argument(metavar="ID", help="The run's id, as `run list` shows it.")]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(
        help="Runs: list, show, watch, update, retry, cancel.", no_args_is_help=True, rich_markup_mode=None
    )
    noun.command("list")(list_runs)
    noun.command("show")(show)
    noun.command("tree")(tree)
    noun.command("update")(update_runs)
    noun.command("retry")(retry)
    noun.command("cancel")(cancel)
    noun.command("logs")(logs)
    noun.command("watch")(watch)
    app.add_typer(noun, name="run")


def list_runs(
    state: options.States = None,
    job: options.Job = None,
    queue: options.Queue = None,
    task: options.Task = None,
    kind: options.Kind = None,
    error: options.Error = None,
    tag: options.Tag = None,
    worker: options.Worker = None,
    since: options.Since = None,
    until: options.Until = None,
    ended_since: options.EndedSince = None,
    ended_until: options.EndedUntil = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 50,
    before: Annotated[int | None, typer.Option(help="The next page: runs with a smaller id.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List runs, the newest first.

    \b
    Example:
      pgsched run list --job nightly --state dead --since 2d
    """
    from pgsched.db.queries.reports import name_hints
    from pgsched.db.queries.runs import runs
    from pgsched.services.runs.waiting import explain_hold

    times = (since, until, ended_since, ended_until)
    wanted = options.filter_from_options(None, job, queue, task, kind, error, tag, worker, times)
    with session(dsn) as conn:
        states: list[str | None] = [*dict.fromkeys(state or ())] or [None]
        pages = [runs.list_runs(conn, replace(wanted, state=one, before_id=before, limit=limit + 1)) for one in states]
        found = sorted((run for page in pages for run in page), key=lambda run: -run["id"])
        found, more = found[:limit], len(found) > limit
        waiting = [run for run in found if run["state"] == "waiting" and run["available_at"] is not None][:EXPLAINED]
        for run in [] if json else waiting:
            run["reason"] = explain_hold(conn, run | {"ready_at": run["available_at"]}) or run["reason"]
        asked = {"queue": queue, "task": task, "tag": tag} if not found and not json else {}
        meant = {what: name_hints.similar_names_of_runs(conn, what, name) for what, name in asked.items() if name}
        unknown = {run["task"] for run in found if run["unroutable"] and run["kind"] == "task" and not json}
        hints = {name: name_hints.hint_offered_tasks(conn, name) for name in unknown}
    for run in found if hints else ():
        run["hint"] = hints.get(run["task"], "") if run["kind"] == "task" else ""
    if json:
        return print_json(found)
    slips = [f"{what} {asked[what]}: did you mean {' or '.join(names)}?" for what, names in meant.items() if names]
    print_runs(found, "; ".join(["no runs", *map(escape_controls, slips)]))
    if more:
        typer.echo(f"the next page: --before {found[-1]['id']}", err=True)
    return None


def print_runs(found: list[dict[str, Any]], empty: str = "") -> None:
    """Print runs as a table.

    A terminal has no room for the job and the task: the narrow table shows one of them, and keeps the room for the
    reason.
    """
    if sys.stdout.isatty():
        print_table(NARROW_HEADERS, [narrow_line(run) for run in found], empty, wrap=True, whole={"STATE"})
    else:
        print_table(HEADERS, [table_line(run) for run in found], empty)


def table_line(run: dict[str, Any]) -> list[Any]:
    """Return a run as a line of the full table."""
    slot = format_age(run["scheduled_at"] or due_at(run), run["now"])
    attempt = f"{run['attempt']}/{run['max_attempts']}"
    return [run["id"], run["job"], run["state"], attempt, slot, format_duration(run), run["task"], reason_of_state(run)]


def narrow_line(run: dict[str, Any]) -> list[Any]:
    """Return a run as a line of the narrow table for terminals."""
    name, state, attempt, slot, lasted, task, reason = table_line(run)[1:]
    return [run["id"], name or shorten(task, LONGEST_TASK), state, attempt, slot, lasted, reason]


def reason_of_state(run: dict[str, Any]) -> str | None:
    """Return the reason for a run's state: unroutable, an error, or why it waits."""
    if run["unroutable"]:
        return f"unroutable: no live worker offers it{run.get('hint', '')}"
    if run["state"] == "running":  # the reason says only why it did not start earlier
        return None
    text: str | None = run["error"] or run["reason"] if run["state"] == "dead" else run["reason"] or run["error"]
    return text


def format_duration(run: dict[str, Any]) -> str:
    """Return how long the last attempt took or has been running; `-` before a start and between attempts."""
    start: datetime | None = run["started_at"]
    end: datetime = run["finished_at"] or run["now"]
    open_attempt = run["finished_at"] is not None or run["state"] == "running"
    return format_short_duration(max(end - start, timedelta(0))) if start is not None and open_attempt else "-"


def show(run_id: Id, dsn: Dsn = None, json: Json = False) -> None:
    """Show one run. Attempts, errors, tracebacks and output included.

    \b
    Example:
      pgsched run show 4711
    """
    from pgsched.db.queries.runs import graphs, runs
    from pgsched.services.runs import detail, waiting

    with session(dsn) as conn:
        found = runs.show_run(conn, run_id)
        waited, conditions = graphs.waits_for(conn, run_id), detail.read_start_conditions(conn, found)
    found |= {"held_by": conditions.held_by, "unroutable": not conditions.offered, "waits_for": waited or None}
    if json:
        return print_json(found)
    attempts, now = found.pop("attempts"), found.pop("now")
    if found.pop("unroutable"):
        found["reason"] = (
            f"unroutable: no live worker offers {waiting.describe_offer(found)}"
            f" on queue {found['queue']}{conditions.hint}"
        )
    found["progress"] = progress_words(found["progress"], found["attempt"]) or None
    print_fields({name: value for name, value in found.items() if value is not None and value != 0})
    for attempt in attempts:
        print()
        show_attempt(attempt, now)
    if found["state"] == "dead":
        typer.echo(f"\nrevive it: pgsched run retry {run_id}", err=True)
    return None


def show_attempt(attempt: dict[str, Any], now: datetime) -> None:
    """Print the outcome, times, worker, error, traceback and output of one attempt."""
    start, end = attempt["started_at"], attempt["finished_at"]
    lasted = f", after {format_short_duration(max(end - start, timedelta(0)))}" if start is not None else ""
    who = escape_controls(attempt["worker"] or "an unknown worker")
    print(f"attempt {attempt['attempt']}: {attempt['outcome']}{lasted}, {format_age(end, now)}, on {who}")
    evidence = {"started": start, "finished": end, "error": attempt["error"], "traceback": attempt["traceback"]}
    print_fields({name: value for name, value in (evidence | {"output": attempt["log_tail"]}).items() if value})
