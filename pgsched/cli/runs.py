"""`pgsched run`: what ran, what did not, and why; retry and cancel."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output import ago, clean, duration, print_fields, print_json, print_table
from pgsched.cli.values import moment

STATES = "waiting, scheduled, queued, running, succeeded, dead, cancelled, skipped or missed."
Id = Annotated[int, typer.Argument(metavar="ID", help="The run's id, as `run list` shows it.")]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(help="Runs: list, show, retry, cancel.", no_args_is_help=True, rich_markup_mode=None)
    noun.command("list")(list_runs)
    noun.command("show")(show)
    noun.command("retry")(retry)
    noun.command("cancel")(cancel)
    app.add_typer(noun, name="run")


def list_runs(
    state: Annotated[str | None, typer.Option(help=STATES)] = None,
    job: Annotated[str | None, typer.Option(help="Only runs of this job.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    since: Annotated[str | None, typer.Option(help="Made since then: 2h, 3d, or 2026-05-01T10:00 (UTC).")] = None,
    until: Annotated[str | None, typer.Option(help="Made before then.")] = None,
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
    from pgsched.db import history

    wanted = history.Filter(state, job, queue, task, moment("since", since), moment("until", until), before, limit)
    with session(dsn) as conn:
        found = history.list_runs(conn, wanted)
    if json:
        return print_json(found)
    headers = ["ID", "JOB", "STATE", "ATTEMPT", "SLOT", "TOOK", "TASK", "WHY"]
    print_table(headers, [line(run) for run in found], "no runs")
    if len(found) == limit:
        typer.echo(f"the next page: --before {found[-1]['id']}", err=True)
    return None


def line(run: dict[str, Any]) -> list[Any]:
    """A run in a table."""
    slot = ago(run["scheduled_at"] or run["available_at"], run["now"])
    attempt = f"{run['attempt']}/{run['max_attempts']}"
    return [run["id"], run["job"], run["state"], attempt, slot, took(run), run["task"], run["reason"] or run["error"]]


def took(run: dict[str, Any]) -> str:
    """How long the last attempt took, or has been going on."""
    start: datetime | None = run["started_at"]
    end: datetime = run["finished_at"] or run["now"]
    open_attempt = run["finished_at"] is not None or run["state"] == "running"
    return duration(max(end - start, timedelta(0))) if start is not None and open_attempt else "-"


def show(run_id: Id, dsn: Dsn = None, json: Json = False) -> None:
    """Show one run. Attempts, errors, tracebacks and output included.

    \b
    Example:
      pgsched run show 4711
    """
    from pgsched.db import history

    with session(dsn) as conn:
        found = history.show(conn, run_id)
    if json:
        return print_json(found)
    attempts, now = found.pop("attempts"), found.pop("now")
    print_fields({name: value for name, value in found.items() if value is not None and value != 0})
    for attempt in attempts:
        ended = ago(attempt["finished_at"], now)
        who = clean(attempt["worker"] or "an unknown worker")
        print(f"\nattempt {attempt['attempt']}: {attempt['outcome']}, {ended}, on {who}")
        evidence = {"error": attempt["error"], "traceback": attempt["traceback"], "output": attempt["log_tail"]}
        print_fields({name: value for name, value in evidence.items() if value})
    return None


def retry(run_id: Id, dsn: Dsn = None, json: Json = False) -> None:
    """Revive a run that ended badly. It gets at least one more attempt.

    For runs that are dead, cancelled, missed or skipped.

    \b
    Example:
      pgsched run retry 4711
    """
    from pgsched.db import history

    with session(dsn) as conn:
        state = history.retry(conn, run_id)
    print_json({"id": run_id, "state": state}) if json else print(f"run {run_id} is {state} again")


def cancel(
    run_id: Id,
    reason: Annotated[str | None, typer.Option(help="Why; kept with the run.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Cancel a run. If it runs already, its worker is asked to stop it.

    \b
    Example:
      pgsched run cancel 4711 --reason "wrong month"
    """
    from pgsched.db import history

    with session(dsn) as conn:
        what = history.cancel(conn, run_id, reason)
    words = {"cancelled": "is cancelled", "requested": "is running: its worker was asked to stop it"}
    text = words.get(what, f"had ended already: {what}")
    print_json({"id": run_id, "result": what}) if json else print(f"run {run_id} {text}")
