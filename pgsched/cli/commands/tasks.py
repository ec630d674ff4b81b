"""`pgsched task list` and `pgsched task show`: the tasks that apps have registered or workers offer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_tasks
from pgsched.cli.output.printing import print_fields, print_json, print_table

if TYPE_CHECKING:
    from pgsched.services.tasks import KnownTask

BAD, OK = ("dead", "missed"), ("succeeded",)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The task, as runs name it.", autocompletion=complete_tasks)]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(help="Tasks: list, show.", no_args_is_help=True, rich_markup_mode=None)
    noun.command("list")(list_tasks)
    noun.command("show")(show)
    app.add_typer(noun, name="task")


def list_tasks(dsn: Dsn = None, json: Json = False) -> None:
    """List the tasks that apps have registered or workers offer, with their runs.

    Open runs are counted now, ended ones in the last 24 hours.

    \b
    Example:
      pgsched task list
    """
    from pgsched.services import tasks

    with session(dsn) as conn:
        found = tasks.list_tasks(conn)
    if json:
        return print_json([task_object(one) for one in found])
    lines = [
        [one.task, one.app, one.queue, len(one.workers) or "none", sum(one.open.values()), count(one, OK),
         count(one, BAD), ", ".join(describe_argument(argument) for argument in one.arguments)]
        for one in found
    ]  # fmt: skip
    headers = ["TASK", "APP", "QUEUE", "WORKERS", "OPEN", "OK", "DEAD", "ARGUMENTS"]
    return print_table(headers, lines, "no tasks: start a `pgsched worker --app package.module:app`",
                       whole=["WORKERS", "OPEN", "OK", "DEAD"])  # fmt: skip


def show(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Show a task: its app, options, arguments, workers and runs.

    \b
    Example:
      pgsched task show shop.welcome
    """
    from pgsched.services import tasks

    with session(dsn) as conn:
        found = tasks.show_task(conn, name)
    if json:
        return print_json([task_object(one) for one in found])
    for number, one in enumerate(found):
        print() if number else None
        print_task(one)
    return None


def print_task(one: KnownTask) -> None:
    """Print the facts and the arguments of a task."""
    options = {name: value for name, value in one.options.items() if name != "queue"}
    print_fields(
        {
            "task": one.task,
            "app": one.app,
            "release": one.release or "not registered",
            "registered": one.since,
            "queue": one.queue,
            "options": ", ".join(f"{name} {value}" for name, value in options.items()) or None,
            "workers": ", ".join(one.workers) or "none: no live worker offers it",
            "open runs": describe_counts(one.open),
            "last 24 h": describe_counts(one.ended),
        }
    )
    lines = [
        [argument.name, argument.type, "required" if argument.required else default_text(argument.default)]
        for argument in one.arguments
    ]
    print() if lines else None
    print_table(["ARGUMENT", "TYPE", "DEFAULT"], lines)


def task_object(one: KnownTask) -> dict[str, Any]:
    """Return a task as an object for JSON."""
    return asdict(one) | {"queue": one.queue, "arguments": [asdict(argument) for argument in one.arguments]}


def count(one: KnownTask, states: tuple[str, ...]) -> int:
    """Return how many runs of a task ended lately in one of these states."""
    return sum(one.ended.get(state, 0) for state in states)


def describe_argument(argument: Any) -> str:
    """Return an argument as a list shows it: `amount integer`, in brackets if it has a default."""
    return f"{argument.name} {argument.type}" if argument.required else f"[{argument.name} {argument.type}]"


def default_text(default: Any) -> Any:
    """Return the default of an argument that is not required."""
    return "optional" if default is None else default


def describe_counts(counts: dict[str, int]) -> str:
    """Return counts by state in words."""
    return ", ".join(f"{number:,} {state}" for state, number in sorted(counts.items())) or "none"
