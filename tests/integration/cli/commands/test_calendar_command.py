"""`pgsched job calendar` adds, removes and lists excluded dates, and refuses bad input with the reason."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.support.cli.said import Said

Command = Callable[..., Said]
NOBODY = 'there is no job named "nobody": `pgsched job list` shows those that exist'


@pytest.fixture
def job(db: psycopg.Connection) -> str:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('nightly', '0 2 * * *', 't')")
    return "nightly"


def entries(pgsched: Command, job: str) -> list[tuple[str, str, str | None]]:
    said = pgsched("job", "calendar", job, "--json")
    assert said.code == 0
    return [tuple(entry.values()) for entry in said.json]


def test_dates_are_added_listed_and_removed(pgsched: Command, job: str) -> None:
    assert pgsched("job", "calendar", job).out == "no excluded dates\n"
    said = pgsched("job", "calendar", job, "add", "2026-12-24..2026-12-26", "--reason", "Christmas")
    assert (said.code, said.out) == (0, "job nightly does not run on 2026-12-24..2026-12-26\n")
    assert pgsched("job", "calendar", job, "add", "2026-10-03", "--json").json == [
        {"from_date": "2026-10-03", "until_date": "2026-10-03", "reason": None}
    ]
    lines = [line.split() for line in pgsched("job", "calendar", job, "list").out.splitlines()]
    assert lines == [["FROM", "UNTIL", "REASON"], ["2026-10-03", "2026-10-03", "-"],
                     ["2026-12-24", "2026-12-26", "Christmas"]]  # fmt: skip
    assert pgsched("job", "calendar", job, "remove", "2026-10-03").out == "job nightly runs again on 2026-10-03\n"
    assert entries(pgsched, job) == [("2026-12-24", "2026-12-26", "Christmas")]


def test_adding_the_same_first_date_again_replaces_it(pgsched: Command, job: str) -> None:
    pgsched("job", "calendar", job, "add", "2026-12-24..2026-12-26", "--reason", "Christmas")
    pgsched("job", "calendar", job, "add", "2026-12-24", "--reason", "Christmas Eve")
    assert entries(pgsched, job) == [("2026-12-24", "2026-12-24", "Christmas Eve")]


@pytest.mark.parametrize(
    ("removed", "left"),
    [
        ("2026-08-05..2026-08-06", [("2026-08-01", "2026-08-04"), ("2026-08-07", "2026-08-10")]),
        ("2026-08-01", [("2026-08-02", "2026-08-10")]),
        ("2026-08-10..2027-01-01", [("2026-08-01", "2026-08-09")]),
        ("2026-01-01..2027-01-01", []),
    ],
)
def test_excluded_dates_outside_of_the_removed_range_stay(
    pgsched: Command, job: str, removed: str, left: list[tuple[str, str]]
) -> None:
    pgsched("job", "calendar", job, "add", "2026-08-01..2026-08-10", "--reason", "holidays")
    said = pgsched("job", "calendar", job, "remove", removed, "--json")
    assert said.json == [{"from_date": "2026-08-01", "until_date": "2026-08-10", "reason": "holidays"}]
    assert entries(pgsched, job) == [(*dates, "holidays") for dates in left]


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (["nightly", "drop"], 2, 'action: "drop" is not one of add, remove, list'),
        (["nightly", "add"], 2, "dates: add needs a date, or the first and the last: 2026-12-24..2026-12-26"),
        (["nightly", "list", "2026-01-01"], 2, "dates: list takes none"),
        (["nightly", "add", "25.12.2026"], 2, 'dates: "25.12.2026" is not DATE or DATE..DATE, such as 2026-12-25'),
        (["nightly", "add", "2026-12-26..2026-12-24"], 2, "dates: 2026-12-24 is earlier than 2026-12-26"),
        (["nightly", "add", "1950-01-01"], 2, "from_date: 1950-01-01 is not a date between 1970 and 9000"),
        (["nightly", "add", "2026-12-24", "--reason", ""], 2, "reason: must not be empty"),
        (["nightly", "list", "--reason", "x"], 2, "reason: is for `add` alone"),
        (["nightly", "remove", "2026-01-01"], 2, 'dates: job "nightly" has no excluded date 2026-01-01'),
        (["nobody", "add", "2026-01-01"], 8, NOBODY),
        (["nobody"], 8, NOBODY),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_the_reason(
    pgsched: Command, job: str, args: list[str], code: int, error: str
) -> None:
    said = pgsched("job", "calendar", *args)
    assert (said.code, said.err) == (code, f"error: {error}\n")
    assert entries(pgsched, job) == []
