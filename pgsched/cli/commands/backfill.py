"""`pgsched backfill`: ask the leader to run past slots again, and watch, list or cancel backfills."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_jobs
from pgsched.cli.messages import print_note, print_remark
from pgsched.cli.output.printing import format_cell, print_fields, print_json, print_table
from pgsched.cli.times import fix_zone
from pgsched.core.text import similar_names
from pgsched.core.wording import format_age

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection
    from pgsched.db.queries.jobs.backfills import Request
    from pgsched.services.jobs.backfilling import BackfillPreview, Together

Id = Annotated[int, typer.Argument(metavar="ID", help="The backfill's id, as `backfill list` shows it.")]
EXAMPLE = """\b
Example:
  pgsched backfill start nightly --from 2026-05-01 --to 2026-06-01"""


class StartFirst(TyperGroup):
    """The group of commands about backfills; for a job's name it says that `start` goes before it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand. Fails with the whole command where a job is named instead."""
        if args[0] not in self.commands and not similar_names(args[0], self.commands):
            ctx.fail(f"No such command {args[0]!r}; did you mean: {ctx.command_path} start {args[0]}?")
        return super().resolve_command(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(
        cls=StartFirst, epilog=EXAMPLE, no_args_is_help=True, rich_markup_mode=None,
        help="Backfills: start, list, show, cancel.",
    )  # fmt: skip
    for name, verb in (("start", start), ("list", list_backfills), ("show", show), ("cancel", cancel)):
        noun.command(name)(verb)
    app.add_typer(noun, name="backfill")


def start(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.", autocompletion=complete_jobs)],
    begin: Annotated[str, typer.Option("--from", metavar="A", help="First instant; in the job's zone without offset.")],
    end: Annotated[str, typer.Option("--to", metavar="B", help="The instant before which it ends.")],
    mode: Annotated[
        str | None,
        typer.Option(
            help="missing: no run started (default); failed: one started and did not succeed; unsuccessful: both "
            "(default with other jobs); all: any."
        ),
    ] = None,
    max_active: Annotated[int, typer.Option(help="At most so many unfinished runs at a time.", min=1, max=1000)] = 1,
    reverse: Annotated[bool, typer.Option("--reverse", help="The newest slot first.")] = False,
    priority: Annotated[int, typer.Option(help="Priority of its runs: 0-9, lower first.", min=0, max=9)] = 9,
    with_downstream: Annotated[
        bool, typer.Option("--with-downstream", help="Also the jobs that wait for it (after_jobs), after it.")
    ] = False,
    with_upstream: Annotated[
        bool, typer.Option("--with-upstream", help="Also the jobs that it waits for (after_jobs), before it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List every slot and its decision; do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch it until it ends.")] = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Run a job for its past slots in [A, B).

    The leader does it, so it goes on when this command is interrupted. Exit code 1 if a run did not succeed. With other
    jobs, each begins when the one before it has ended, and `cancel` ends all of them. Then `unsuccessful` repairs a
    chain: a job that failed, and those that were skipped for it.

    \b
    Example:
      pgsched backfill start nightly --from 2026-05-01 --to 2026-06-01 --mode failed --max-active 4
      pgsched backfill start load --from 2026-05-01 --to 2026-05-08 --with-downstream --dry-run
    """
    from pgsched.db.queries.jobs.backfills import Request
    from pgsched.services.jobs import backfilling

    others = backfilling.Together(with_upstream, with_downstream)
    mode = mode or ("unsuccessful" if others else "missing")
    request = Request(fix_zone("from", begin), fix_zone("to", end), mode, max_active, reverse, priority)
    with session(dsn) as conn:
        if others:
            return start_together(conn, job, request, others, dry_run=dry_run, wait=wait, json=json)
        if dry_run:
            return print_preview(backfilling.preview(conn, job, request), json)
        added = backfilling.start(conn, job, request)
        print_undecided_note(added["undecided_from"])
        found = show_bar(conn, added, json) if wait else added
    print_json(found) if json else print(describe_backfill(found))
    if wait and not all_succeeded(found):
        raise typer.Exit(1)
    return None


def start_together(
    conn: Connection[Any], job: str, request: Request, others: Together, *, dry_run: bool, wait: bool, json: bool
) -> None:
    """Do as `start`, for several jobs."""
    from pgsched.services.jobs import backfilling

    if dry_run:
        return print_previews(*backfilling.preview_together(conn, job, request, others), json)
    added = backfilling.start_together(conn, job, request, others)
    for one in added.backfills:
        print_undecided_note(one["undecided_from"], one["job"])
    print_left_out(added.left_out)
    found = [show_bar(conn, one, json) for one in added.backfills] if wait else added.backfills
    if json:
        print_json({"backfills": found, "left_out": added.left_out})
    else:
        for one in found:
            print(describe_backfill(one))
    if wait and not all(map(all_succeeded, found)):
        raise typer.Exit(1)
    return None


def print_previews(previews: list[BackfillPreview], left_out: dict[str, str], json: bool) -> None:
    """Print every slot of every job, in the order in which the backfills would be done."""
    for one in previews:
        print_undecided_note(one.range.undecided_from, one.range.job["name"])
    print_left_out(left_out)
    if json:
        listed = [
            {"job": one.range.job["name"], "from": one.range.start, "to": one.range.end, "slots": one.range.slots,
             "undecided_from": one.range.undecided_from, "choices": [asdict(choice) for choice in one.choices]}
            for one in previews
        ]  # fmt: skip
        return print_json({"backfills": listed, "left_out": left_out})
    lines = [
        [format_cell(one.range.job["name"]), format_cell(choice.slot), choice.action, choice.reason]
        for one in previews
        for choice in one.choices
    ]
    print_table(["JOB", "SLOT", "DECISION", "BECAUSE"], lines)
    asked = sum(line[2] != "leave" for line in lines)
    print(f"{asked} of {len(lines)} slots of {len(previews)} jobs would run, one job after the other")
    return None


def print_left_out(left_out: dict[str, str]) -> None:
    """Print a note on stderr for each job that has no part in the backfill, and why."""
    for name, why in left_out.items():
        print_note(f"job {format_cell(name)} is left out: {why}")


def print_preview(foreseen: BackfillPreview, json: bool) -> None:
    """Print every slot of the range and what the backfill would do with it."""
    found, choices = foreseen.range, foreseen.choices
    print_undecided_note(found.undecided_from)
    if json:
        summary = {"job": found.job["name"], "from": found.start, "to": found.end, "slots": found.slots}
        listed = [asdict(choice) for choice in choices]
        return print_json(summary | {"undecided_from": found.undecided_from, "choices": listed})
    lines = [[format_cell(choice.slot), choice.action, choice.reason] for choice in choices]
    print_table(["SLOT", "DECISION", "BECAUSE"], lines)
    asked = sum(choice.action != "leave" for choice in choices)
    print(f"{asked} of {len(choices)} slots of job {format_cell(found.job['name'])} would run")
    return None


def print_undecided_note(undecided_from: Any, job: str | None = None) -> None:
    """Print a note on stderr if the range ends with slots that are not decided yet.

    `job`: its name, where there are several.
    """
    if undecided_from is not None:
        text = f"slots from {format_cell(undecided_from)} on are not decided yet: they are left to the schedule"
        print_note(text if job is None else f"job {format_cell(job)}: {text}")


def show_bar(conn: Connection[Any], added: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """Show a bar until the backfill has ended; return its last state. `quiet`: without the bar.

    An interrupt ends the watching, not the backfill.
    """
    from pgsched.services.jobs.backfilling import watch

    number, shown = added["id"], added
    label = f"backfill {number}"
    try:
        with nullcontext() if quiet else typer.progressbar(length=added["slots"], label=label, file=sys.stderr) as bar:
            for shown in watch(conn, number, print_note):
                if bar is not None:
                    bar.update(max(0, shown["considered"] - shown["open"] - bar.pos))
    except KeyboardInterrupt:
        print_remark(f"it goes on: pgsched backfill show {number}, pgsched backfill cancel {number}")
        raise
    return shown


def all_succeeded(found: dict[str, Any]) -> bool:
    """Check whether the backfill finished and all runs that it started succeeded."""
    return found["state"] == "finished" and not any(found[state] for state in ("dead", "cancelled", "missed"))


def describe_backfill(found: dict[str, Any]) -> str:
    """Describe a backfill in one sentence."""
    counts = ", ".join(f"{found[name]} {name}" for name in ("open", "succeeded", "dead", "cancelled", "missed")
                       if found[name])  # fmt: skip
    left = found["considered"] - found["started"]
    state = found["state"] + (f" ({found['error']})" if found["error"] else "")
    done = f"{found['considered']} of {slot_count(found)} slots, {found['started']} started, {left} left alone"
    return f"backfill {found['id']} of job {format_cell(found['job'])} is {format_cell(state)}: {done}" + (
        f"; {counts}" if counts else ""
    )


def slot_count(found: dict[str, Any]) -> Any:
    """Return the number of slots of a backfill, or `?` while it is not known.

    A client that cannot count the slots leaves counting to the leader.
    """
    return "?" if found["slots"] is None else found["slots"]


def list_backfills(
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 50,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List backfills, the newest first.

    \b
    Example:
      pgsched backfill list
    """
    from pgsched.db.queries.jobs import backfills

    with session(dsn) as conn:
        found = backfills.list_backfills(conn, limit)
    if json:
        return print_json(found)
    lines = [
        [b["id"], b["job"], b["state"], b["mode"], b["from_at"], b["to_at"], f"{b['considered']}/{slot_count(b)}",
         b["open"], b["succeeded"], b["dead"], format_age(b["created_at"], b["now"])]
        for b in found
    ]  # fmt: skip
    headers = ["ID", "JOB", "STATE", "MODE", "FROM", "TO", "SLOTS", "OPEN", "OK", "DEAD", "ASKED"]
    return print_table(headers, lines, "no backfills")


def show(number: Id, dsn: Dsn = None, json: Json = False) -> None:
    """Show one backfill and how its runs stand.

    \b
    Example:
      pgsched backfill show 3
    """
    from pgsched.db.queries.jobs import backfills

    with session(dsn) as conn:
        found = backfills.show_backfill(conn, number)
    print_json(found) if json else print_fields(
        {name: value for name, value in found.items() if value is not None and name not in ("now", "leading")}
    )


def cancel(
    number: Id,
    reason: Annotated[str | None, typer.Option(help="Why; kept with it and with its runs.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Cancel a backfill as one thing. Its unstarted runs are cancelled, its running ones asked to stop.

    Backfills that were started together with it are cancelled, too.

    \b
    Example:
      pgsched backfill cancel 3 --reason "wrong month"
    """
    from pgsched.services.jobs import backfilling

    with session(dsn) as conn:
        done = backfilling.cancel(conn, number, reason)
    print_json(asdict(done)) if json else print(f"backfill {number} {done.words}")
