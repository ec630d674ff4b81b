"""`pgsched calendar`: calendars that jobs share, from the command line and from iCalendar files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.support.cli.said import Said

Command = Callable[..., Said]
ICAL = """BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART;VALUE=DATE:20301224
DTEND;VALUE=DATE:20301227
SUMMARY:Christmas
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20301231
RRULE:FREQ=SECONDLY
END:VEVENT
END:VCALENDAR
"""


def excluded(pgsched: Command, name: str) -> list[str]:
    """Return what `show` lists of a calendar."""
    said = pgsched("calendar", "show", name)
    assert said.code == 0
    rows = said.out.partition("EXCLUDED")[2].partition("\n\n")[0].splitlines()[1:]
    return [" ".join(row.split()[1:]) for row in rows if row.strip()]


def test_times_are_added_shown_and_removed(pgsched: Command, db: psycopg.Connection) -> None:
    assert pgsched("calendar", "list").out == "no calendars\n"
    said = pgsched("calendar", "add", "office", "2030-12-24..2030-12-26", "--reason", "Christmas")
    assert said.out == "made calendar office\ncalendar office excludes 2030-12-24..2030-12-26\n"
    pgsched("calendar", "add", "office", "mon-fri", "18:00-24:00")
    again = pgsched("calendar", "add", "office", "fri,mon-thu", "18:00-24:00")
    assert again.out == "calendar office excluded already: mon,tue,wed,thu,fri 18:00-24:00\n"
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, calendar, on_excluded)"
               " VALUES ('nightly', '0 2 * * *', 't', 'office', 'previous')")  # fmt: skip
    assert excluded(pgsched, "office") == ["2030-12-24..2030-12-26 Christmas", "mon,tue,wed,thu,fri 18:00-24:00 -"]
    assert "nightly" in pgsched("calendar", "show", "office").out
    shown = pgsched("calendar", "show", "office", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["jobs"] == [{"name": "nightly", "on_excluded": "previous"}]
    (listed,) = pgsched("calendar", "list", "--json").json
    assert (listed["name"], listed["times"], listed["jobs"], listed["last_date"]) == ("office", 2, 1, "2030-12-26")
    gone = pgsched("calendar", "remove", "office", "2030-12-24..2030-12-26")
    assert gone.out == "calendar office does not exclude 2030-12-24..2030-12-26 any more\n"
    refused = pgsched("calendar", "delete", "office")
    assert (refused.code, "calendar: jobs use it: nightly" in refused.err) == (2, True)
    db.execute("DELETE FROM pgsched.jobs")
    assert pgsched("calendar", "delete", "office").out == "calendar office is gone\n"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("show", "ofice"), 8, 'there is no calendar named "ofice"; did you mean office'),
        (("add", "office", "24.12."), 2, 'dates: "24.12." is not DATE'),
        (("add", "office", "--reason", "x"), 2, "reason: is for a time"),
        (("add", "", "sat"), 2, "name: must not be empty"),
        (("add", "office", "1969-01-01"), 2, "from_date: 1969-01-01 is not a date between 1970 and 9000"),
        (("remove", "office"), 2, "time: give a time or --id"),
        (("delete", "ofice"), 8, 'there is no calendar named "ofice"; did you mean office'),
        (("remove", "office", "sun"), 2, 'time: calendar office has no time "sun"'),
        (("remove", "office", "--id", "99"), 2, "id: calendar office has no time with id 99"),
        (("import", "/no/such.ics", "--name", "office"), 2, "file: /no/such.ics: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_with_its_field(
    pgsched: Command, db: psycopg.Connection, arguments: tuple[str, ...], code: int, error: str
) -> None:
    pgsched("calendar", "add", "office", "sat")
    said = pgsched("calendar", *arguments)
    assert (said.code, error in said.err, "Traceback" in said.err) == (code, True, False), said.err


def test_a_file_is_imported_and_what_is_not_understood_is_named(
    pgsched: Command, db: psycopg.Connection, tmp_path: Path
) -> None:
    file = tmp_path / "holidays.ics"
    file.write_text(ICAL)
    shown = pgsched("calendar", "import", str(file), "--name", "holidays", "--dry-run")
    assert shown.code == 1 and "2030-12-24..2030-12-26" in shown.out
    assert pgsched("calendar", "list").out == "no calendars\n"
    said = pgsched("calendar", "import", str(file), "--name", "holidays")
    assert (said.code, said.out) == (1, "calendar holidays: 1 time in the file, 1 of them new\n")
    assert "line 7: RRULE with FREQ=SECONDLY is not understood" in said.err
    assert excluded(pgsched, "holidays") == ["2030-12-24..2030-12-26 Christmas"]
    again = pgsched("calendar", "import", str(file), "--name", "holidays")
    assert again.out == "calendar holidays: 1 time in the file, 0 of them new\n"
    refused = pgsched("calendar", "import", str(file), "--name", "holidays", "--replace")
    assert (refused.code, "replace: nothing is changed" in refused.err) == (2, True)
    assert excluded(pgsched, "holidays") == ["2030-12-24..2030-12-26 Christmas"]
    file.write_text(ICAL.replace("20301224", "20301223").replace("FREQ=SECONDLY", "FREQ=YEARLY;COUNT=2"))
    replaced = pgsched("calendar", "import", str(file), "--name", "holidays", "--replace")
    assert (replaced.code, replaced.out) == (0, "calendar holidays: 3 times in the file, 3 of them new, 1 removed\n")
    file.write_bytes(b"\xff")
    assert "is not UTF-8 (byte 0)" in pgsched("calendar", "import", str(file), "--name", "holidays").err
