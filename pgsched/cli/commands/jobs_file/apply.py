"""`pgsched apply`: make the database as a file of jobs says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.commands.jobs_file.options import Adopt, File, Format, Owner, Prune, progress_bar, read_jobs_file
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_error, print_note
from pgsched.cli.output.printing import format_cell, print_json
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.core.jobs_file.difference import Difference
    from pgsched.core.jobs_file.model.entries import JobsFile
    from pgsched.services.jobs_file.planning import JobsPlan

DRIFT = 2  # the exit code of --check where the database is not as the file says
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Change nothing; exit code 2 if the database is not as the file says. --prune counts more."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("apply")(apply)


def apply(
    file: File,
    owner: Owner = None,
    prune: Prune = False,
    adopt: Adopt = False,
    check: Check = False,
    yes: Yes = False,
    file_format: Format = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Make jobs, queues, limits, pauses, calendars, retention and alerts as a file says: all of it, or nothing.

    A file owns what it declared, and changes nothing else: what exists and is not its own is refused. The changes are
    shown and confirmed first. A second apply finds nothing to change. `pgsched plan` shows more. A file with an error
    ends with exit code 2, too. Under --json the code of its error is input_error, and that of a difference drift.

    \b
    Example:
      pgsched apply jobs.yaml --owner ops --prune
    """
    from pgsched.services.jobs_file import applying, planning
    from pgsched.services.jobs_file.planning import Options

    read = read_jobs_file(file, file_format)
    options = Options(owner, prune, adopt)
    with session(dsn) as conn:
        if check:
            return report_drift(read, applying.find_drift(conn, read, options), json)
        shown = None
        if not yes:
            plan = planning.plan(conn, read, options)
            shown = plan.difference
            applying.refuse_foreign(shown)
            if shown.changes:
                confirm_changes(plan, json)
        with progress_bar(json) as report:
            done = applying.apply(conn, read, options, confirmed=shown, report=report)
    return report_applied(read, done, json, seen=not yes)


def confirm_changes(plan: JobsPlan, json: bool) -> None:
    """Show the changes with their slots, and ask whether to make them; exit with code 1 if not.

    Raises InputError where a question is impossible (--json, or no terminal).
    """
    from pgsched.cli.commands.jobs_file.changes import describe_counts
    from pgsched.cli.commands.jobs_file.showing import print_changes

    difference = plan.difference
    counts = describe_counts(difference)
    if json or not sys.stdin.isatty():
        raise InputError(f"apply: {counts}: add --yes to apply them; `pgsched plan` shows them", "yes")
    print_changes(plan)
    if not typer.confirm(f"apply to owner {format_cell(difference.owner)}: {counts}?", err=True):
        raise typer.Exit(1)


def report_drift(file: JobsFile, difference: Difference, json: bool) -> None:
    """Print what differs, also what an apply would refuse, and exit with code 2 if there is anything."""
    from pgsched.cli.commands.jobs_file.changes import describe_counts, difference_as_json, print_change

    if json:
        print_json(difference_as_json(file, difference))
    else:
        for change in difference.changes:
            print_change(change)
    if difference.changes:
        name = file.document.name
        then = "`pgsched apply` refuses it" if difference.refused else "`pgsched apply` changes it"
        text = f"{name}: the database is not as the file says: {describe_counts(difference)}; {then}"
        raise typer.Exit(print_error(text, DRIFT, "drift"))
    if not json:
        print_notes(difference)
        more = ", but for what it does not declare any more (--check --prune counts that)" if difference.left else ""
        print(f"the database is as {format_cell(file.document.name)} says{more}")


def report_applied(file: JobsFile, difference: Difference, json: bool, *, seen: bool) -> None:
    """Print what was done. `seen`: a person has seen the changes; else those of what existed before are printed."""
    from pgsched.cli.commands.jobs_file.changes import difference_as_json, print_change
    from pgsched.core.jobs_file.difference import Action

    if json:
        return print_json(difference_as_json(file, difference))
    for change in () if seen else difference.of(Action.CHANGE, Action.REMOVE, Action.ADOPT):
        print_change(change)
    print_notes(difference)
    done = describe_done(difference)
    return print(f"{format_cell(file.document.name)} (owner {format_cell(difference.owner)}): {done}")


def print_notes(difference: Difference) -> None:
    """Print what a reader of the file should know."""
    from pgsched.cli.commands.jobs_file.changes import notes

    for note in notes(difference):
        print_note(note)


def describe_done(difference: Difference) -> str:
    """Return what was done: `added 2, changed 1`."""
    from pgsched.core.jobs_file.difference import Action

    words: dict[Any, str] = {Action.ADD: "added", Action.CHANGE: "changed", Action.REMOVE: "removed",
                             Action.ADOPT: "adopted"}  # fmt: skip
    counts = [(word, len(difference.of(action))) for action, word in words.items()]
    return ", ".join(f"{word} {count}" for word, count in counts if count) or "nothing to change"
