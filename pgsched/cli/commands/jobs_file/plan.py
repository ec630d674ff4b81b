"""`pgsched plan`: show what an apply of a file of jobs would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from pgsched.cli.commands.jobs_file.options import Adopt, File, Format, Owner, Prune, progress_bar, read_jobs_file
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_json

if TYPE_CHECKING:
    from pgsched.core.jobs_file.coming import Slots
    from pgsched.core.jobs_file.model.entries import JobsFile
    from pgsched.services.jobs_file.planning import JobsPlan


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("plan")(plan)


def plan(
    file: File,
    owner: Owner = None,
    prune: Prune = False,
    adopt: Adopt = False,
    file_format: Format = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show what `pgsched apply` would change; nothing is written.

    Shows the next five slots, before and after, of each job that is new, or whose slots, mode or pause change. Shows
    what clock changes do to new and changed schedules. If anything changes, shows which jobs start in the same minute
    in the coming week. Exit code 1 if the file would be refused.

    \b
    Example:
      pgsched plan jobs.yaml --owner ops
    """
    from pgsched.cli.commands.jobs_file.showing import print_plan
    from pgsched.services.jobs_file import planning

    read = read_jobs_file(file, file_format)
    with session(dsn) as conn, progress_bar(json) as report:
        found = planning.plan(conn, read, planning.Options(owner, prune, adopt), report)
    print_json(plan_as_json(read, found)) if json else print_plan(read, found)
    if found.difference.refused:
        raise typer.Exit(1)


def plan_as_json(file: JobsFile, found: JobsPlan) -> dict[str, Any]:
    """Return a plan for JSON."""
    from pgsched.cli.commands.jobs_file.changes import change_as_json, difference_as_json
    from pgsched.core.jobs_file.model.columns import What

    changes = []
    for change in found.difference.changes:
        shown = change_as_json(file, change)
        slots = found.slots.get(change.key)
        if slots is not None:
            shown["slots"] = slots_as_json(slots)
        clocks = found.clocks.get(change.key, ())
        shown["clock_changes"] = [{"date": one.day, "slot": one.at, "remark": one.remark} for one in clocks]
        if change.key[0] is What.CALENDAR:
            moved = found.moved.get(change.key[1], {})
            shown["moved_jobs"] = [{"name": name, "slots": slots_as_json(one)} for name, one in moved.items()]
        changes.append(shown)
    collisions = found.collisions
    return difference_as_json(file, found.difference) | {
        "changes": changes,
        "collisions": {
            "from": collisions.begin,
            "starts": collisions.starts,
            "busiest_minute_by_hour": collisions.peaks_by_hour,
            "busiest": [
                {"at": one.at, "starts": one.starts, "jobs": one.jobs, "proposed_jitter": one.jitter}
                for one in collisions.busiest
            ],
            "jobs_not_counted": collisions.left_out,
        },
    }


def slots_as_json(slots: Slots) -> dict[str, Any]:
    """Return the slots before and after a change for JSON; `skipped`: those of them at excluded times."""
    from pgsched.core.jobs_file.coming import is_excluded

    return {
        "old": None if slots.old is None else [one.at for one in slots.old],
        "new": [one.at for one in slots.new],
        "skipped": {
            name: [one.at for one in found or () if is_excluded(one)]
            for name, found in (("old", slots.old), ("new", slots.new))
        },
    }
