"""`pgsched job list` and `pgsched job show`: print jobs."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Annotated, Any

import typer

from pgsched.cli.commands.job.options import Name
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import format_cell, print_fields, print_json, print_table
from pgsched.core.wording import format_age


def list_jobs(
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    state: Annotated[str | None, typer.Option(help="active, paused, error, done or shadow.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=100_000)] = 200,
    after: Annotated[str | None, typer.Option(help="The next page: names after this one.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List jobs by name, with the next slot that will run and how the last run stands.

    \b
    Example:
      pgsched job list --state error
    """
    from pgsched.db.queries.jobs import jobs

    with session(dsn) as conn:
        found = jobs.list_jobs(conn, queue=queue, state=state, after=after, limit=limit + 1)
    found, more = found[:limit], len(found) > limit
    if json:
        return print_json(found)
    lines = [
        [j["name"], j["state"], j["schedule"] or "once", j["timezone"], format_age(next_slot(j), j["now"]),
         j["last_run_state"], j["error"] or j["task"]]
        for j in found
    ]  # fmt: skip
    print_table(["NAME", "STATE", "SCHEDULE", "ZONE", "NEXT", "LAST RUN", "TASK"], lines, "no jobs")
    if more:
        typer.echo(f"the next page: --after {shlex.quote(format_cell(found[-1]['name']))}", err=True)
    return None


def next_slot(job: dict[str, Any]) -> datetime | None:
    """Return the next slot that will run; None for a paused job, and for one in mode shadow."""
    return None if job["state"] in ("paused", "shadow") else job["next_allowed_at"]


def show(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Show one job with all its policies, and its newest runs.

    \b
    Example:
      pgsched job show nightly
    """
    from pgsched.cli.commands.run.runs import format_duration
    from pgsched.db.queries.jobs import jobs

    with session(dsn) as conn:
        job = jobs.show_job(conn, name)
        recent = jobs.recent_runs(conn, job["id"])
    if json:
        return print_json(job | {"recent": recent})
    now, put_off = job.pop("now"), job["next_allowed_at"] != job["next_run_at"]
    hidden = ("excluded",) if put_off else ("excluded", "next_allowed_at")  # `job calendar list` shows the dates
    job = {column: value for column, value in job.items() if column not in hidden}
    print_fields({column: value for column, value in job.items() if value is not None})
    print()
    lines = [
        [
            r["id"],
            r["state"],
            format_age(r["scheduled_at"], now),
            format_duration(r),
            r["origin"],
            r["reason"] or r["error"],
        ]
        for r in recent
    ]
    print_table(["RUN", "STATE", "SLOT", "TOOK", "ORIGIN", "WHY"], lines, "no runs yet")
    return None
