"""`pgsched job preview`: describe a schedule in English and list its next slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_jobs
from pgsched.cli.output.printing import print_json, print_table, print_text
from pgsched.cli.times import read_instant
from pgsched.core.wording import format_short_duration
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.core.schedule.preview import PreviewSlot

Count = Annotated[int, typer.Option(help="So many slots.", min=1, max=10_000)]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="T", help="With --schedule: slots after this time. Default: now."),
]
Expression = Annotated[
    str | None, typer.Option("--schedule", metavar="EXPR", help="This schedule, not that of a job; needs no database.")
]
Zone = Annotated[str | None, typer.Option("--timezone", help="IANA time zone of --schedule. Default: UTC.")]


def register(app: typer.Typer) -> None:
    """Add the verb `preview` to `job`."""
    for group in app.registered_groups:
        if group.name == "job" and group.typer_instance is not None:
            group.typer_instance.command("preview")(preview)


def preview(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The job's name.", autocompletion=complete_jobs)
    ] = None,
    expression: Expression = None,
    timezone: Zone = None,
    start: From = None,
    count: Count = 10,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Say what a schedule means and show its next slots: of a job, or of --schedule.

    Of a job it considers the time zone, start, end, number of runs, jitter, pause and excluded dates. Slots within a
    week of a clock change say so. @every counts from --from here, from the job's start in a job.

    \b
    Example:
      pgsched job preview nightly --count 20
      pgsched job preview --schedule '30 2 * * *' --timezone Europe/Berlin --from 2026-10-24
    """
    if (name is None) == (expression is None):
        raise InputError("schedule: give either the name of a job or --schedule EXPR", "schedule")
    if expression is not None:
        return preview_expression(expression, timezone or "UTC", start, count, json)
    if timezone is not None or start is not None:
        raise InputError("from: --from and --timezone are for --schedule; a job has its own zone", "from")
    return preview_job(str(name), count, dsn, json)


def preview_expression(expression: str, timezone: str, start: str | None, count: int, json: bool) -> None:
    """Say what a schedule means and print its next slots."""
    from pgsched.core.schedule.cron import parse
    from pgsched.core.schedule.describe import describe
    from pgsched.core.schedule.preview import next_slots as next_fires
    from pgsched.core.schedule.zones import tzdata_version

    since = read_instant("from", start or "now")
    assert since is not None
    schedule = parse(expression, timezone, since)
    sentence, fires = describe(schedule), next_fires(schedule, since, count)
    if json:
        return print_json(
            {
                "expression": expression,
                "timezone": timezone,
                "sentence": sentence,
                "from": since,
                "tzdata": tzdata_version(),
                "fires": [without_job_fields(asdict(fire)) for fire in fires],
            }
        )
    print_text(sentence)
    nothing = "no slots: they depend on when runs end" if schedule.fixed_delay else "no slots after this"
    return print_slots(fires, nothing)


def preview_job(name: str, count: int, dsn: str | None, json: bool) -> None:
    """Say what a job's schedule means and print its next slots."""
    from pgsched.core.schedule import preview
    from pgsched.core.schedule.zones import tzdata_version
    from pgsched.db.queries.jobs import jobs

    with session(dsn) as conn:
        job = jobs.show_planned_job(conn, name)
    found = preview.preview_job(job, count)
    if json:
        return print_json({"job": name, "expression": job["schedule"], "timezone": found.timezone,
                           "sentence": found.sentence, "notes": found.notes, "tzdata": tzdata_version(),
                           "fires": [asdict(fire) for fire in found.fires]})  # fmt: skip
    print_text(found.sentence)
    for note in found.notes:
        print_text(f"- {note}", "  ")
    return print_slots(found.fires, "no slots to come")


def without_job_fields(fire: dict[str, Any]) -> dict[str, Any]:
    """Return a slot without jitter and excluded dates, which exist only for a job."""
    return {name: value for name, value in fire.items() if name not in ("starts_at", "excluded")}


def print_slots(fires: Iterable[PreviewSlot], nothing: str) -> None:
    """Print the slots as a table; the jitter has a column only if a slot has some."""
    found = list(fires)
    jittered = any(fire.starts_at not in (fire.at, None) for fire in found)
    clock = "%H:%M:%S" if any(fire.local.second for fire in found) else "%H:%M"
    lines = [
        [fire.at, f"{fire.local:%a %d {clock} %z}", *([describe_jitter(fire)] if jittered else []),
         "; ".join(filter(None, [fire.excluded and f"will be skipped: {fire.excluded}", *fire.remarks, fire.dst]))]
        for fire in found
    ]  # fmt: skip
    print()
    print_table(["SLOT", "LOCAL", *(["JITTER"] if jittered else []), "REMARK"], lines, nothing, wrap=True)


def describe_jitter(fire: PreviewSlot) -> str | None:
    """Return how far jitter moves the start of a slot; None without jitter."""
    return None if fire.starts_at is None else f"+{format_short_duration(fire.starts_at - fire.at)}"
