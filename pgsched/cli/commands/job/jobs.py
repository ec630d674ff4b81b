"""`pgsched job`: add, change, pause, resume, run and delete jobs.

Each verb does what a plain INSERT, UPDATE or DELETE of the table `jobs` does, and refuses with the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any

import typer

from pgsched.cli.commands.job.options import (
    Args,
    Attempts,
    CatchUp,
    Expect,
    Failures,
    FinishBy,
    Jitter,
    Keep,
    Kind,
    Lateness,
    Like,
    Longest,
    Name,
    Overlap,
    PauseAfter,
    Priority,
    QueueName,
    RunAt,
    Schedule,
    Set,
    Timeout,
    Zone,
)
from pgsched.cli.commands.job.views import list_jobs, show
from pgsched.cli.common import Dsn, Json, print_with_notes, session
from pgsched.cli.messages import print_note
from pgsched.cli.option_values import merge_columns, parse_arguments
from pgsched.cli.output.printing import format_cell, print_fields, print_json
from pgsched.cli.times import read_instant
from pgsched.core.input_values import parse_keep
from pgsched.core.policies import apply_preset
from pgsched.core.wording import shorten

NEW = ("kind", "task", "schedule", "timezone", "queue", "run_at", "overlap", "catch_up", "max_attempts", "timeout",
       "alert_after_failures", "max_lateness", "max_duration", "expect_every", "finish_by",
       "pause_after_failures")  # fmt: skip
DRY_RUN_SLOTS = 5


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(
        help="Jobs: add, list, show, update, pause, resume, mode, run, delete.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for verb in (add, show, update, pause, resume, mode, delete):
        noun.command()(verb)
    noun.command("reset-mark")(reset_mark)
    noun.command("list")(list_jobs)
    noun.command("run")(run)
    app.add_typer(noun, name="job")


def add(
    name: Name,
    task: Annotated[str, typer.Option(help="Registered name, program, command line, SQL or URL: see --kind.")],
    kind: Kind = None,
    schedule: Schedule = None,
    timezone: Zone = None,
    args: Args = None,
    queue: QueueName = None,
    run_at: RunAt = None,
    overlap: Overlap = None,
    catch_up: CatchUp = None,
    like: Like = None,
    max_attempts: Attempts = None,
    timeout: Timeout = None,
    priority: Priority = None,
    jitter: Jitter = None,
    keep: Keep = None,
    alert_after_failures: Failures = None,
    max_lateness: Lateness = None,
    max_duration: Longest = None,
    expect_every: Expect = None,
    finish_by: FinishBy = None,
    pause_after_failures: PauseAfter = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create it paused.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would be, and when it would run.")
    ] = False,
    assignments: Set = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Create a job. Without --schedule and --run-at it runs once, now.

    \b
    Example:
      pgsched job add nightly --task reports.build --schedule '0 2 * * *' \\
          --timezone Europe/Berlin --args '{"region": "eu"}' --set max_runs=10
      pgsched job add report --like cron --task reports.build --schedule @daily --dry-run
    """
    from pgsched.services.jobs import job_changes

    given = locals()
    options = {column: given[column] for column in (*NEW, "priority", "jitter")}
    options |= {"name": name, "args": parse_arguments(args), "paused": paused or None, "keep": parse_keep(keep)}
    options["run_at"] = read_instant("run_at", run_at, ahead=True)
    values = merge_columns(assignments, options)
    with session(dsn) as conn:
        job = job_changes.add(conn, values, like, dry_run=dry_run)
        notes = job_changes.notes(conn, job, values, like)
    if dry_run:
        return report_dry_run(job, json, notes, {**values, **apply_preset(like, values)})
    return report_change(job, "created", json, notes)


def update(
    name: Name,
    task: Annotated[str | None, typer.Option(help="A new task.")] = None,
    kind: Kind = None,
    schedule: Schedule = None,
    timezone: Zone = None,
    args: Args = None,
    queue: QueueName = None,
    run_at: RunAt = None,
    overlap: Overlap = None,
    catch_up: CatchUp = None,
    like: Like = None,
    max_attempts: Attempts = None,
    timeout: Timeout = None,
    priority: Priority = None,
    jitter: Jitter = None,
    keep: Keep = None,
    alert_after_failures: Failures = None,
    max_lateness: Lateness = None,
    max_duration: Longest = None,
    expect_every: Expect = None,
    finish_by: FinishBy = None,
    pause_after_failures: PauseAfter = None,
    assignments: Set = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Change a job. A new schedule starts now; what already ran or waits is left alone.

    \b
    Example:
      pgsched job update nightly --schedule '30 3 * * *' --set tags='{eu,slow}'
    """
    from pgsched.services.jobs import job_changes

    given = locals()
    options = {column: given[column] for column in (*NEW, "priority", "jitter")} | {"args": parse_arguments(args)}
    options |= {"keep": parse_keep(keep), "run_at": read_instant("run_at", run_at, ahead=True)}
    changes = merge_columns(assignments, options)
    with session(dsn) as conn:
        job = job_changes.update(conn, name, changes, like)
        notes = job_changes.notes(conn, job, changes, like)
    report_change(job, "updated", json, notes)


def report_change(job: dict[str, Any], what: str, json: bool, notes: Iterable[str]) -> None:
    """Print the notes, then the job that was changed; `what` is created or updated."""
    for note in notes:
        print_note(note)
    if json:
        return print_json(job)
    when = (
        f"schedule {job['schedule']} ({job['timezone']})"
        if job["schedule"]
        else f"once, at {format_cell(job['run_at'])}"
    )
    print(
        f"{what} job {format_cell(job['name'])}: {job['kind']} {shorten(format_cell(job['task']), 60)},"
        f" {format_cell(when)}"
        + (", paused" if job["paused"] else "")
        + (", shadow" if job["mode"] == "shadow" else "")
    )
    return None


def report_dry_run(job: dict[str, Any], json: bool, notes: Iterable[str], columns: Iterable[str]) -> None:
    """Print the notes, the job that would be created, the columns that are set for it, and its next slots."""
    from pgsched.cli.commands.job.preview import print_slots
    from pgsched.core.schedule.preview import preview_job

    number = job.pop("id")
    shown = {column: value for column, value in job.items() if column not in ("calendar_times", "shifts")}
    report_change(shown, "would create", json, notes)
    if json:
        return
    print_fields({column: job[column] for column in columns if column != "name" and job[column] is not None})
    if job["schedule"] is not None:
        # Jitter follows from the number, and the job that is made later has another one.
        print_slots(preview_job(job | {"id": number, "jitter": timedelta(0)}, DRY_RUN_SLOTS).fires, "no slots to come")


def pause(
    name: Name,
    reason: Annotated[str | None, typer.Option(help="Why; kept until it is resumed.")] = None,
    by: Annotated[str | None, typer.Option(help="The person who pauses it. Default: the database's user.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Stop a job's schedule. Runs that exist go on.

    \b
    Example:
      pgsched job pause nightly --reason "incident 7"
    """
    from pgsched.services.jobs import job_changes

    with session(dsn) as conn:
        job = job_changes.pause(conn, name, reason, by)
    print_with_notes(job, json, f"job {format_cell(name)} is paused by {format_cell(job['paused_by'])}")


def resume(
    name: Name,
    since: Annotated[
        str, typer.Option("--from", metavar="now|pause", help="pause: what came due meanwhile is caught up.")
    ] = "now",
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Start a paused job's schedule again. What came due meanwhile is recorded as skipped.

    With --from pause the job's catch-up policy decides it instead.

    \b
    Example:
      pgsched job resume nightly --from pause
    """
    from pgsched.services.jobs import job_changes

    with session(dsn) as conn:
        job = job_changes.resume(conn, name, since)
    print_with_notes(job, json, f"job {format_cell(name)} is active")


def mode(
    name: Name,
    mode: Annotated[str, typer.Argument(metavar="run|shadow", help="shadow: slots are recorded, and nothing runs.")],
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Let a job's slots run, or only record them while another scheduler runs the work.

    In mode shadow each slot becomes a row `skipped` with the reason shadow; runs that exist go on. With `run`, slots
    up to now stay skipped, and the next one runs. `pgsched shadow report` compares them with the other scheduler's log.

    \b
    Example:
      pgsched job mode nightly shadow
    """
    from pgsched.services.jobs import job_changes

    with session(dsn) as conn:
        job = job_changes.set_mode(conn, name, mode)
    what = "runs its slots" if job["mode"] == "run" else "is in mode shadow: its slots are recorded, and nothing runs"
    print_with_notes(job, json, f"job {format_cell(name)} {what}")


def reset_mark(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Let a job go on whose slots count as decided until an instant in the future.

    A clock that was ahead leaves such a mark; `pgsched status` tells of it. The mark is set to now, or to the newest
    slot that has a row, if that is later: no slot runs twice.

    \b
    Example:
      pgsched job reset-mark nightly
    """
    from pgsched.services.jobs import job_changes

    with session(dsn) as conn:
        found = job_changes.reset_mark(conn, name)
    if json:
        return print_json({"name": name, **found})
    until = format_cell(found["mark"])
    if found["mark"] == found["before"]:
        why = "its newest slot has a row" if found["mark"] > found["now"] else "that is not ahead of the clock"
        return print(f"job {format_cell(name)}: its slots stay decided until {until}: {why}")
    return print(
        f"job {format_cell(name)} goes on: its slots are decided until {until},"
        f" no more until {format_cell(found['before'])}"
    )


def run(
    name: Name,
    args: Args = None,
    overlap: Annotated[
        str,
        typer.Option(metavar="POLICY", help="The policy it obeys towards unfinished runs: see --overlap of job add."),
    ] = "allow",
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; exit code 1 unless it succeeded.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Run a job now, beside its schedule; prints the run's id.

    It runs whatever else does, unless --overlap names a policy. A run that is not to be is recorded as skipped.

    \b
    Example:
      pgsched job run nightly --args '{"region": "us"}' --overlap skip --wait
    """
    from pgsched.db.queries.runs import runs
    from pgsched.services.jobs import job_changes
    from pgsched.services.runs import waiting

    payload = parse_arguments(args)
    with session(dsn) as conn:
        run_id = job_changes.run(conn, name, payload, overlap)
        found = waiting.until_ended(conn, run_id, print_note) if wait else runs.show_run(conn, run_id)
    state, why = found["state"], found["reason"] or found["error"]
    shown = {"id": run_id, "job": name, "state": state, "reason": found["reason"], "error": found["error"]}
    print_json(shown) if json else print(
        f"run {run_id} of job {format_cell(name)} is {state}" + (f": {format_cell(why)}" if why else "")
    )
    if wait and state != "succeeded":
        raise typer.Exit(1)


def delete(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Delete a job and cancel its unstarted runs; its history stays until it is pruned.

    \b
    Example:
      pgsched job delete nightly
    """
    from pgsched.services.jobs import job_changes

    with session(dsn) as conn:
        done = job_changes.delete(conn, name)
    gone = done.result
    if done.declared_by is not None:
        print_note(f"the code of {done.declared_by} declares this job: the next start of its workers makes it again")
    still = f"; {gone['running']} of its runs still running" if gone["running"] else ""
    print_json(gone) if json else print(f"deleted job {format_cell(name)}{still}")
