"""`pgsched run update`: change priority, due time or queue of runs that have not started."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_note, print_remark
from pgsched.cli.output.printing import format_cell, print_json
from pgsched.cli.times import read_instant
from pgsched.errors import InputError, PgschedError

if TYPE_CHECKING:
    from pgsched.services.runs.changes import Updated

Ids = Annotated[list[int], typer.Argument(metavar="ID...", help="Runs by id, as `run list` shows them.")]
Priority = Annotated[int | None, typer.Option(help="0-9, lower first.")]
At = Annotated[str | None, typer.Option(help="Due then: now, 22:00, tomorrow 6:00, in 2 hours, ISO.")]
Queue = Annotated[str | None, typer.Option(help="Wait in this queue.")]


def update_runs(
    run_ids: Ids, priority: Priority = None, at: At = None, queue: Queue = None, dsn: Dsn = None, json: Json = False
) -> None:
    """Change runs that have not started, and show what they were before.

    A run that runs or has ended is left alone. Exit code: 1 if one of several was left alone.

    \b
    Example:
      pgsched run update 4711 --priority 0 --at now
      pgsched run update 4711 4712 --queue slow
    """
    from pgsched.services import settings
    from pgsched.services.runs import changes

    instant = read_instant("at", at, ahead=True)
    if priority is None and instant is None and queue is None:
        raise InputError("nothing to change: give --priority, --at or --queue", "priority")
    done: list[Updated] = []
    left: list[dict[str, Any]] = []
    with session(dsn) as conn:
        note = None if queue is None else settings.unknown_queue(conn, queue)
        for run_id in dict.fromkeys(run_ids):
            try:
                done.append(changes.update_shown(conn, run_id, priority=priority, at=instant, queue=queue))
            except PgschedError as error:
                if len(run_ids) == 1:
                    raise
                left.append({"id": run_id, "skipped": str(error)})
    if note:
        print_note(note)
    if json:
        print_json([asdict(one) for one in done] + left)
    else:
        for one in done:
            print(describe_update(one))
        for row in left:
            print_remark(f"left alone: {row['skipped']}")
    if left:
        raise typer.Exit(1)


def describe_update(one: Updated) -> str:
    """Return what was changed: `run 4711: priority 5 -> 0, queue default -> slow; it is queued`."""
    changed = [
        f"{name} {format_cell(one.before[name])} -> {format_cell(one.after[name])}"
        for name in one.before
        if one.before[name] != one.after[name] and name != "state"
    ]
    return f"run {one.id}: {', '.join(changed) or 'nothing changed'}; it is {one.after['state']}"
