"""`pgsched queue`, `pgsched pause` and `pgsched resume`: settings of queues, and pauses of anything but a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pgsched.cli.commands.limits import Burst, Concurrency, Rate
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_queues, complete_tasks
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import print_json, print_table
from pgsched.control_characters import escape_controls
from pgsched.core.input_values import NONE, limit_columns, parse_duration, parse_keep, parse_whole_number
from pgsched.core.wording import describe_queue, format_age, format_short_duration
from pgsched.errors import InputError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.", autocompletion=complete_queues)]
Reason = Annotated[str | None, typer.Option(help="Why; status and explain say it.")]
By = Annotated[str | None, typer.Option("--by", help="The person who pauses it. Default: the database's user.")]
Lasts = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="Resume by itself after 90s, 10m, 1h. Default: never.")
]
All = Annotated[bool, typer.Option("--all", help="Everything.")]
Queue = Annotated[str | None, typer.Option(help="A queue.", autocompletion=complete_queues)]
Task = Annotated[str | None, typer.Option(help="A task, as runs name it.", autocompletion=complete_tasks)]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs, and the two verbs for everything, to the command line."""
    noun = typer.Typer(help="Queues: list, set.", no_args_is_help=True, rich_markup_mode=None)
    noun.command("list")(list_queues)
    noun.command("set")(set_queue)
    app.add_typer(noun, name="queue")
    app.command("pause")(pause)
    app.command("resume")(resume)


def set_queue(
    name: Name,
    concurrency: Concurrency = None,
    rate: Rate = None,
    burst: Burst = None,
    fair: Annotated[bool | None, typer.Option("--fair/--first-come", help="Keys take turns.")] = None,
    ageing: Annotated[
        str | None, typer.Option(metavar="TIME", help="A priority rises by one for each such time waited; or `none`.")
    ] = None,
    max_depth: Annotated[
        str | None, typer.Option(metavar="N", help="At most so many runs wait to start; `none` takes it away.")
    ] = None,
    on_full: Annotated[str | None, typer.Option(metavar="reject|shed_oldest", help="What then.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="[OUTCOME=]TIME", help="Keep ended runs so long: 7d, dead=90d; or `none`."),
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Limit a queue. It holds for all workers together, within a second.

    \b
    Example:
      pgsched queue set emails --concurrency 20 --rate 100/s --fair
    """
    from pgsched.services import settings

    values = limit_columns("concurrency_limit", concurrency, rate, burst)
    if max_depth is not None:
        values["max_depth"] = parse_whole_number("max-depth", max_depth, 1)
    if ageing is not None:
        values["ageing"] = None if ageing == NONE else parse_duration("ageing", ageing)
    if keep:
        values["keep"] = None if keep == [NONE] else parse_keep(keep)
    values |= {column: value for column, value in (("fair", fair), ("on_full", on_full)) if value is not None}
    if not values:
        raise InputError("queue set: say what: see `pgsched queue set --help`", "name")
    with session(dsn) as conn:
        note = settings.unknown_queue(conn, name)
        row = settings.set_queue(conn, name, values)
    print_note(note) if note else None
    print_json(row) if json else print(f"queue {escape_controls(name)}: {describe_queue(row)}")


def describe_queue_state(row: dict[str, Any]) -> str:
    """Return whether runs of a queue may start: `open`, `paused` or `limit 0`."""
    if row["paused_at"]:
        return "paused"
    return "limit 0" if row["concurrency_limit"] == 0 else "open"


def list_queues(dsn: Dsn = None, json: Json = False) -> None:
    """List the queues that have settings, a pause, or runs that are queued, running or kept waiting by limits.

    \b
    Example:
      pgsched queue list
    """
    from pgsched.db.queries.jobs import queues

    with session(dsn) as conn:
        found = queues.list_queues(conn)
    if json:
        return print_json(found)
    lines = [
        [row["name"], row["depth"], row["running"], describe_queue_state(row), describe_queue(row)] for row in found
    ]
    return print_table(["QUEUE", "DEPTH", "RUNNING", "STATE", "SETTINGS"], lines, "no queues")


def pause(
    everything: All = False,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    by: By = None,
    lasts: Lasts = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Let nothing start: everything, a queue, or a task. What runs goes on.

    Slots are decided as ever: their runs wait. A job is paused with `pgsched job pause`.

    \b
    Example:
      pgsched pause --all --reason "incident 4711" --for 1h
    """
    pause_target_and_print(*pause_target(everything, queue, task), reason, by, lasts, dsn, json)


def resume(
    everything: All = False, queue: Queue = None, task: Task = None, dsn: Dsn = None, json: Json = False
) -> None:
    """End a pause. What was paused beside it stays paused.

    \b
    Example:
      pgsched resume --all
    """
    resume_target_and_print(*pause_target(everything, queue, task), dsn, json)


def pause_target(everything: bool, queue: str | None, task: str | None) -> tuple[str, str]:
    """Return what a pause is about, as kind (all, queue or task) and name.

    Raises InputError unless exactly one is given.
    """
    given = [("all", "")] if everything else []
    given += [(what, name) for what, name in (("queue", queue), ("task", task)) if name is not None]
    if len(given) != 1 or (given[0][0] != "all" and not given[0][1].strip()):
        raise InputError("give one of --all, --queue NAME, --task NAME", "all")
    return given[0]


def pause_target_and_print(
    what: str, name: str, reason: str | None, by: str | None, lasts: str | None, dsn: str | None, json: bool
) -> None:
    """Pause a queue, a task or everything, and print the result."""
    from pgsched.services import pauses

    given, target = None if lasts is None else parse_duration("for", lasts), pauses.Target(what, name)
    with session(dsn) as conn:
        note = pauses.note_unknown_target(conn, target)
        row = pauses.pause(conn, target, reason, by, given)
    print_note(note) if note else None
    if json:
        return print_json(row)
    until = "until it is resumed" if row["resume_at"] is None else f"for {format_short_duration(given)}"
    return print(f"{escape_controls(target.words)} is paused {until}")


def resume_target_and_print(what: str, name: str, dsn: str | None, json: bool) -> None:
    """End a pause and print the result."""
    from pgsched.services import pauses

    target = pauses.Target(what, name)
    with session(dsn) as conn:
        ended = pauses.resume(conn, target)
    if json:
        return print_json(ended.row)
    since = format_age(ended.row["paused_at"], ended.at)
    return print(
        f"{escape_controls(target.words)} goes on (it was paused {since} by {escape_controls(ended.row['paused_by'])})"
    )
