"""`pgsched report`: what happened last night, job by job, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_remark
from pgsched.cli.output.printing import format_cell, print_json, print_table
from pgsched.cli.times import read_moment
from pgsched.core.wording import format_short_duration

if TYPE_CHECKING:
    from pgsched.services.report import JobSummary, Report

Since = Annotated[str, typer.Option(help="What ended since then: 12h, 22:00, yesterday 18:00, ISO.")]
Until = Annotated[str | None, typer.Option(help="And before then. Default: now.")]
Limit = Annotated[int, typer.Option(help="Show at most so many jobs.", min=1, max=10_000)]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("report")(report)


def report(since: Since = "12h", until: Until = None, limit: Limit = 50, dsn: Dsn = None, json: Json = False) -> None:
    """Say what happened last night: for each job what ran, failed, was missed, skipped or late, and how long it took.

    The worst jobs come first. Runs without a job are shown by task. Late: a slot that started later than the job's
    max_lateness, else a minute, after its time.

    \b
    Example:
      pgsched report --since 'yesterday 18:00'
    """
    from pgsched.services.report import read_report

    begin, end = read_moment("since", since), read_moment("until", until)
    assert begin is not None
    with session(dsn) as conn:
        found = read_report(conn, begin, end)
    print_json(found.to_dict()) if json else print_report(found, limit)


def print_report(found: Report, limit: int) -> None:
    """Print the totals, then a line for each job, then the newest errors."""
    totals = found.totals
    ran = totals["ok"] + totals["dead"]
    bad = ", ".join(
        f"{totals[name]:,} {name}" for name in ("dead", "missed", "skipped", "late", "cancelled") if totals[name]
    )
    print(f"since {format_cell(found.since)}: {ran:,} runs" + (f", {bad}" if bad else "; nothing failed"))
    if not found.exact:
        print_remark("durations and lateness are approximate: they come from the counted hours, as the runs are too"
                     " many, or pruned")  # fmt: skip
    if found.jobs:
        print()
    lines = [
        [one.job if one.job is not None else f"(task) {one.task}", one.ok, one.dead, one.missed, one.skipped, one.late,
         format_short_duration(one.took_50_s), describe_longest(one, found.exact)]
        for one in found.jobs[:limit]
    ]  # fmt: skip
    print_table(["JOB", "OK", "DEAD", "MISSED", "SKIPPED", "LATE", "P50", "MAX"], lines,
                whole=["OK", "DEAD", "MISSED", "SKIPPED", "LATE"])  # fmt: skip
    if len(found.jobs) > limit:
        print_remark(f"and {len(found.jobs) - limit:,} more: --limit {len(found.jobs)} shows all")
    print_errors([one for one in found.jobs[:limit] if one.error])


def describe_longest(one: JobSummary, exact: bool) -> str:
    """Return the longest duration of an attempt; a bound of it if it is not exact."""
    mark = "" if exact or one.took_max_s is None else "<"
    return mark + format_short_duration(one.took_max_s)


def print_errors(jobs: list[JobSummary]) -> None:
    """Print the newest error of each of these jobs."""
    if jobs:
        print()
    lines = [[one.job or one.task, (one.error or "").strip().partition("\n")[0]] for one in jobs]
    print_table(["DEAD", "NEWEST ERROR"], lines, wrap=True)
