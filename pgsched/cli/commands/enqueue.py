"""`pgsched enqueue`: make a run of a task by its name, and with --wait see it end."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session_at
from pgsched.cli.completion import complete_tasks
from pgsched.cli.messages import print_error, print_note, print_remark
from pgsched.cli.option_values import parse_arguments, split_assignments
from pgsched.cli.output.printing import print_json
from pgsched.cli.run_options import option_parameters, read_options
from pgsched.core.input_values import parse_option_duration

if TYPE_CHECKING:
    from pgsched.core.model import Row
    from pgsched.db.connection.connect import Connection
    from pgsched.services.runs.follow import Seen

Task = Annotated[
    str, typer.Argument(metavar="TASK", help="The task, as `task list` shows it.", autocompletion=complete_tasks)
]
Args = Annotated[str | None, typer.Option("--args", metavar="JSON", help="JSON object or array; @FILE or - reads it.")]
Arg = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="NAME=VALUE", help="One argument: JSON, or text where the task takes text (repeatable)."
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Until it has ended; exit code 1 unless it succeeded.")]
WaitTimeout = Annotated[
    str | None, typer.Option("--wait-timeout", metavar="TIME", help="--wait, but at most so long: 30s, 10m.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line, with a flag for each option of an enqueue."""
    own = inspect.signature(enqueue, eval_str=True).parameters
    before = [parameter for name, parameter in own.items() if name != "options"]
    position = [parameter.name for parameter in before].index("wait")
    parameters = [*before[:position], *option_parameters(), *before[position:]]
    app.command("enqueue")(enqueue_with([one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]))


def enqueue_with(parameters: list[inspect.Parameter]) -> Any:
    """Return `enqueue` with these parameters as its signature."""

    def command(**given: Any) -> None:
        enqueue(**given)

    command.__name__, command.__doc__ = "enqueue", enqueue.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def enqueue(
    task: Task,
    args: Args = None,
    arg: Arg = None,
    wait: Wait = False,
    wait_timeout: WaitTimeout = None,
    dsn: Dsn = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Make a run of a task, and print its id.

    Arguments that do not fit the task are refused. A task that is not known yet is taken with a note. With --wait, the
    run is shown until it has ended, then its result is printed.

    \b
    Example:
      pgsched enqueue shop.welcome --arg user=7
      pgsched enqueue reports.build --args '{"region": "eu"}' --at 22:00 --tag eu
      pgsched enqueue shop.pay --args @order.json --unique-key order-7 --wait
    """
    from pgsched.services.runs import enqueueing

    chosen = read_options(options)
    given, named = parse_arguments(args), split_assignments(arg)
    limit_s = None if wait_timeout is None else parse_option_duration("wait-timeout", wait_timeout).total_seconds()
    with session_at(dsn) as (conn, address):
        values = enqueueing.merge_named_arguments(conn, task, given, named)
        run_id = enqueueing.enqueue_by_name(conn, task, values, chosen)
        note = enqueueing.note_unknown_task(conn, task)
        if note:
            print_note(note)
        if not run_id.created:
            print_note(f"run {run_id} is not new: {enqueueing.HOW.get(run_id.how, run_id.how)}")
        if wait or limit_s is not None:
            return wait_for_end(conn, address, run_id, limit_s, json)
    return print_json({"id": run_id, "how": run_id.how, "task": task}) if json else print(int(run_id))


def wait_for_end(conn: Connection[Any], address: str, run_id: Any, limit_s: float | None, json: bool) -> None:
    """Show a run until it has ended, then print its result; the exit code is 1 unless it succeeded."""
    from pgsched.db.run_waiter import RunWaiter
    from pgsched.services.runs.follow import looks

    waiter = RunWaiter(lambda: address)
    seen = looks(conn, run_id, note=print_note, pause=lambda seconds: waiter.wait([run_id], seconds))
    try:
        show(before(seen, limit_s), json)
    except KeyboardInterrupt:
        print_remark(f"run {run_id} goes on; to end it: pgsched run cancel {run_id}")
        raise
    finally:
        waiter.close()
    from pgsched.db.queries.runs.runs import show_run

    print_end(show_run(conn, run_id), run_id, limit_s, json)


def before(seen: Iterator[Seen], limit_s: float | None) -> Iterator[Seen]:
    """Yield the looks at a run until the time is over; None: until the run has ended."""
    end = None if limit_s is None else time.monotonic() + limit_s
    for look in seen:
        yield look
        if end is not None and time.monotonic() >= end:
            return


def show(seen: Iterator[Seen], json: bool) -> None:
    """Show a run as `run watch` does; nothing with --json."""
    from pgsched.cli.commands.run.watch import draw_live, print_changes

    if json:
        for _ in seen:
            pass
    elif sys.stdout.isatty():
        draw_live(seen, 10, ending=False)
    else:
        print_changes(seen, ending=False)


def print_end(run: Row, run_id: Any, limit_s: float | None, json: bool) -> None:
    """Print the result of a run on stdout, or the error on stderr."""
    state = run["state"]
    if json:
        shown = {name: run[name] for name in ("state", "task", "attempt", "result", "reason", "error")}
        print_json({"id": run_id, "how": run_id.how, **shown})
    elif state == "succeeded" and run["result"] is not None:
        print_json(run["result"])
    if state == "succeeded":
        return
    if run["finished_at"] is None:
        # Without a limit: it had ended, and was retried since.
        so_far = "is open again" if limit_s is None else f"has not ended within {limit_s:g} s"
        print_error(f"run {run_id} is {state} and {so_far}; it goes on: pgsched run watch {run_id}", 1, "timeout")
    else:
        why = ": ".join(text for text in (run["reason"], run["error"]) if text)
        print_error(f"run {run_id} is {state}" + (f": {why}" if why else ""), 1, "run_failed")
    raise typer.Exit(1)
