"""`pgsched calendar`: calendars that jobs share: list, show, add, remove, delete, import."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import format_cell, print_fields, print_json, print_table
from pgsched.core.calendars.times import describe_time, parse_calendar_time
from pgsched.errors import InputError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The calendar's name.")]
Times = Annotated[
    list[str] | None,
    typer.Argument(metavar="TIME", help="Together one time: 2026-12-24..2026-12-26, sat,sun, 18:00-24:00."),
]
MOST_BYTES = 5_000_000


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(
        help="Calendars that jobs share, the times at which they do not run: list, show, add, remove, delete, import.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, verb in (
        ("list", list_calendars),
        ("show", show_calendar),
        ("add", add_time),
        ("remove", remove_time),
        ("delete", delete_calendar),
        ("import", import_file),
    ):
        noun.command(name)(verb)
    app.add_typer(noun, name="calendar")


def list_calendars(dsn: Dsn = None, json: Json = False) -> None:
    """List the calendars, and how many jobs use each.

    \b
    Example:
      pgsched calendar list
    """
    from pgsched.services.jobs import shared_calendars as calendars

    with session(dsn) as conn:
        found = calendars.list_calendars(conn)
    if json:
        return print_json(found)
    lines = [[row["name"], row["times"], row["first_date"], row["last_date"], row["jobs"], row["owner"],
              row["description"]] for row in found]  # fmt: skip
    columns = ["CALENDAR", "TIMES", "FIRST DATE", "LAST DATE", "JOBS", "OWNER", "DESCRIPTION"]
    return print_table(columns, lines, "no calendars")


def show_calendar(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Show a calendar: its times, and the jobs that use it.

    \b
    Example:
      pgsched calendar show holidays
    """
    from pgsched.services.jobs import shared_calendars as calendars

    with session(dsn) as conn:
        found = calendars.show_calendar(conn, name)
    if json:
        times = [{"id": key, **asdict(time)} for key, time in found.times]
        jobs = [{"name": job, "on_excluded": policy} for job, policy in found.jobs]
        return print_json({**found.calendar, "times": times, "jobs": jobs})
    shown = ("name", "description", "owner", "created_at")
    print_fields({field: found.calendar[field] for field in shown if found.calendar[field] is not None})
    print()
    print_table(["ID", "EXCLUDED", "WHY"], [[key, describe_time(time), time.reason] for key, time in found.times],
                "no times: it excludes nothing")  # fmt: skip
    print()
    return print_table(["JOB", "ON_EXCLUDED"], found.jobs, "no job uses it")


def add_time(
    name: Name,
    times: Times = None,
    reason: Annotated[str | None, typer.Option(help="Why; each slot that is skipped for it says so.")] = None,
    description: Annotated[str | None, typer.Option(help="What the calendar is, for people.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Exclude a time: jobs of the calendar do not run then. The calendar is made if there is none.

    A time is made of dates, weekdays and hours, alone or together, in each job's time zone. Without one, the calendar
    is made or described.

    \b
    Example:
      pgsched calendar add holidays 2026-12-24..2026-12-26 --reason Christmas
      pgsched calendar add office sat,sun
      pgsched calendar add office mon-fri 18:00-24:00
    """
    from pgsched.services.jobs import shared_calendars as calendars

    if not times and reason is not None:
        raise InputError("reason: is for a time", "reason")
    wanted = [parse_calendar_time(times, reason)] if times else []
    with session(dsn) as conn:
        is_new, added = calendars.add_times(conn, name, wanted, description)
    if json:
        return print_json({"name": name, "made": is_new, "added": added, "times": [asdict(one) for one in wanted]})
    if is_new:
        print(f"made calendar {format_cell(name)}")
    for one in wanted:
        print(f"calendar {format_cell(name)} {'excludes' if added else 'excluded already:'} {describe_time(one)}")
    return None


def remove_time(
    name: Name,
    times: Times = None,
    ids: Annotated[
        list[int] | None, typer.Option("--id", metavar="ID", help="The id of a time, as `show` lists it (repeatable).")
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Allow a time again that a calendar excludes.

    A time is written as `show` shows it.

    \b
    Example:
      pgsched calendar remove holidays 2026-12-24..2026-12-26
    """
    from pgsched.services.jobs import shared_calendars as calendars

    if not (times or ids):
        raise InputError("time: give a time or --id; `pgsched calendar delete` deletes the calendar", "time")
    wanted = parse_calendar_time(times) if times else None
    with session(dsn) as conn:
        gone = calendars.remove_times(conn, name, wanted, ids or ())
    if json:
        return print_json({"name": name, "removed": [asdict(one) for one in gone]})
    for one in gone:
        print(f"calendar {format_cell(name)} does not exclude {describe_time(one)} any more")
    return None


def delete_calendar(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Delete a calendar that no job uses.

    \b
    Example:
      pgsched calendar delete holidays
    """
    from pgsched.services.jobs import shared_calendars as calendars

    with session(dsn) as conn:
        calendars.delete_calendar(conn, name)
    print_json({"name": name, "deleted": True}) if json else print(f"calendar {format_cell(name)} is gone")


def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An iCalendar file (.ics); - reads it from stdin.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The calendar that gets its events.")],
    timezone: Annotated[
        str | None, typer.Option(help="IANA zone of the calendar: timed events are converted to it.")
    ] = None,
    years: Annotated[
        int, typer.Option(min=1, max=50, help="How many years ahead repeated events are written out.")
    ] = 10,
    replace: Annotated[bool, typer.Option("--replace", help="Remove the times that the file does not have.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the times.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Exclude the events of an iCalendar file in a calendar, which is made if there is none.

    All-day and timed events are understood, and simple rules by which they repeat. An event that is not understood is
    named on stderr with its line, and the exit code is 1. The others are excluded all the same; with --replace nothing
    is changed then.

    \b
    Example:
      pgsched calendar import holidays.ics --name holidays
    """
    from pgsched.core.calendars.ical import read_ical
    from pgsched.core.schedule import zones

    zone = None if timezone is None else zones.zone(timezone)
    read = read_ical(read_file(file), datetime.now(UTC).date(), years, zone)
    for remark in read.remarks:
        print_note(remark)
    added = removed = 0
    if not dry_run:
        from pgsched.services.jobs import shared_calendars as calendars

        with session(dsn) as conn:
            added, removed = calendars.import_times(conn, name, read, replace=replace)
    if json:
        print_json({"name": name, "added": added, "removed": removed, "remarks": read.remarks,
                    "times": [asdict(one) for one in read.times]})  # fmt: skip
    elif dry_run:
        print_table(["EXCLUDED", "WHY"], [[describe_time(one), one.reason] for one in read.times], "no times")
    else:
        gone = f", {removed} removed" if removed else ""
        times = f"{len(read.times)} time{'s' if len(read.times) != 1 else ''}"
        print(f"calendar {format_cell(name)}: {times} in the file, {added} of them new{gone}")
    if read.remarks:
        raise typer.Exit(1)


def read_file(name: str) -> str:
    """Return the text of a file; `-` is stdin. Raises InputError where it cannot be read, or is too large."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"file: {name}: {error.strerror}", "file") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"file: {name} is larger than {MOST_BYTES:,} bytes", "file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"file: {name} is not UTF-8 (byte {error.start})", "file") from None
