"""Previews of schedules: a sentence, a table or JSON. Bad input gives one line and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta

import psycopg
import pytest

from pgsched.cli import run
from pgsched.cli.output.printing import print_text
from tests.support.cli.said import Said
from tests.support.db.passing import lead

EXPRESSION = ["30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2026-10-24T12:00"]


def test_a_preview_describes_the_schedule_and_lists_its_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "preview", "--schedule", *EXPRESSION, "--count", "2"]) == 0
    out, err = capsys.readouterr()
    sentence, gap, header, first, second = out.splitlines()
    assert (sentence, gap, err) == ("At 02:30 every day, Europe/Berlin time", "", "")
    assert header.split() == ["SLOT", "LOCAL", "REMARK"]
    assert first.startswith("2026-10-25 00:30:00 UTC  Sun 25 02:30 +0200  first of two")
    assert second.endswith("Mon 26 02:30 +0100  clocks go back 1 h on 2026-10-25 03:00")


def test_a_preview_needs_no_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PGSCHED_DSN", "host=/nowhere/at/all")
    assert run(["job", "preview", "--schedule", "@every 90s", "--json", "--count", "3", "--from", "2026-01-01"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentence"] == "Every 90 seconds, counted from the job's start"
    assert [fire["at"][11:19] for fire in found["fires"]] == ["00:01:30", "00:03:00", "00:04:30"]
    assert set(found["fires"][0]) == {"at", "local", "dst", "remarks", "nominal"}
    assert found["tzdata"][:2] == "20"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["61 * * * *"], "minute: 61 is out of range 0-59"),
        (["0 0 30 2 *"], "schedule: never fires"),
        (["@daily", "--timezone", "Mars/Phobos"], 'timezone: "Mars/Phobos" is not a known IANA zone'),
        (["@daily", "--from", "noon"], 'from: "noon" is not a time'),
        (["@daily", "--from", "0001-01-01T00:00+12:00"], "is not an instant between 1970 and 9000"),
        (["@daily", "--from", "999999d"], "is not an instant between 1970 and 9000"),
    ],
)
def test_bad_input_gives_one_line(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "preview", "--schedule", *args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert words in err


def test_a_count_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "preview", "--schedule", "@daily", "--count", "0"]) == 2
    assert run(["job", "preview", "--schedule", "@daily", "--count", "10001"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_preview_of_a_job_shows_its_settings(pgsched: Callable[..., object], db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, timezone, jitter, max_runs, paused, paused_reason)"
        " VALUES ('nightly', 't', '@every 10s', 'Asia/Tokyo', '8 seconds', 5, true, E'red\\x1b[31m')"
    )
    said = pgsched("job", "preview", "nightly", "--count", "3")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "Every 10 seconds, counted from the job's start"
    assert lines[1].startswith("- paused by ") and "red\\x1b[31m" in lines[1]
    assert lines[2:4] == ["- 5 of 5 runs left", "- each start is moved by up to 8 seconds"]
    assert lines[5].split() == ["SLOT", "LOCAL", "JITTER", "REMARK"]
    found = pgsched("job", "preview", "nightly", "--json").json
    anchor = db.execute("SELECT anchor_at FROM pgsched.jobs").fetchone()[0]
    slots = [datetime.fromisoformat(fire["at"]) for fire in found["fires"]]
    assert len(slots) == 5
    assert all((slot - anchor) % timedelta(seconds=10) == timedelta(0) for slot in slots)
    assert found["timezone"] == "Asia/Tokyo" and found["fires"][0]["local"].endswith("+09:00")


def test_an_unknown_job_exits_with_eight(pgsched: Callable[..., object]) -> None:
    said = pgsched("job", "preview", "nobody")
    assert said.code == 8 and said.err.count("\n") == 1


def test_a_jobs_preview_says_which_slots_an_excluded_date_skips(
    pgsched: Callable[..., object], db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, starts_at) VALUES ('n', 't', '0 12 * * *', '2098-12-25')"
    )
    db.execute("INSERT INTO pgsched.job_calendars SELECT id, '2098-12-25', '2098-12-26', 'Christmas' FROM pgsched.jobs")
    lines = pgsched("job", "preview", "n", "--count", "3").out.splitlines()
    assert [line.split("  ")[-1] for line in lines[-3:-1]] == [
        "will be skipped: excluded dates 2098-12-25 to 2098-12-26: Christmas"
    ] * 2
    assert lines[-1].endswith("Sat 27 12:00 +0000")
    found = pgsched("job", "preview", "n", "--count", "3", "--json").json["fires"]
    assert [fire["starts_at"] is None for fire in found] == [True, True, False]
    assert [fire["excluded"] is None for fire in found] == [False, False, True]


@pytest.fixture
def before_christmas(db: psycopg.Connection) -> None:
    """Make a job whose next two slots are excluded, one whose only slot is, and one without excluded dates."""
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, starts_at, run_at) VALUES"
        " ('n', 't', '0 12 * * *', '2098-12-25', NULL), ('once', 't', NULL, NULL, '2098-12-25 13:00Z'),"
        " ('plain', 't', '30 12 25 12 *', '2098-12-25', NULL)"
    )
    db.execute(
        "INSERT INTO pgsched.job_calendars SELECT id, '2098-12-25', '2098-12-26', 'Christmas' FROM pgsched.jobs"
        " WHERE name <> 'plain'"
    )
    lead(db)


def test_a_new_job_shows_its_first_slot_before_a_leader_plans_it(pgsched: Callable[..., Said]) -> None:
    assert pgsched("job", "add", "n", "--task", "t", "--schedule", "30 12 25 12 *").code == 0
    for row in (pgsched("job", "list", "--json").json[0], pgsched("job", "show", "n", "--json").json):
        assert row["next_allowed_at"][4:] == "-12-25T12:30:00+00:00"
    assert "12-25 12:30:00 UTC" in pgsched("job", "show", "n").out
    assert "ago" not in pgsched("job", "list").out


def test_lists_name_the_next_slot_that_will_run(pgsched: Callable[..., object], before_christmas: None) -> None:
    listed = {row["name"]: row for row in pgsched("job", "list", "--json").json}
    assert listed["n"]["next_run_at"].startswith("2098-12-25T12:00")
    assert listed["n"]["next_allowed_at"].startswith("2098-12-27T12:00")
    assert listed["once"]["next_allowed_at"] is None
    assert listed["plain"]["next_allowed_at"] == listed["plain"]["next_run_at"]
    shown = pgsched("job", "show", "n").out
    assert "next_allowed_at" in shown and "2098-12-27 12:00:00 UTC" in shown
    assert "next_allowed_at" not in pgsched("job", "show", "plain").out


def test_status_names_the_next_slots_that_will_run(pgsched: Callable[..., object], before_christmas: None) -> None:
    fires = pgsched("status", "--json").json["next_fires"]
    assert [(fire["name"], fire["next_run_at"][:16]) for fire in fires] == [
        ("plain", "2098-12-25T12:30"),
        ("n", "2098-12-27T12:00"),
    ]


def test_job_add_notes_a_jitter_that_lets_slots_replace_each_other(pgsched: Callable[..., object]) -> None:
    said = pgsched(
        "job", "add", "j", "--task", "t", "--schedule", "* * * * *", "--jitter", "5min", "--overlap", "replace"
    )
    assert said.code == 0
    assert said.err.startswith("note: jitter is longer than the time between some slots: under overlap replace")


def test_remarks_about_a_slot_are_not_cut_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["job", "preview", "--schedule", *EXPRESSION, "--count", "1"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    words = out.split("+0200")[1].split()
    assert " ".join(words).startswith("first of two: 02:30 comes twice, and only the first counts; clocks go back")


def test_sentences_are_broken_between_words_and_hold_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_text("- a note that is longer\nthan \x1b[31m twenty", "  ")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_text("- a note that is longer\nthan \x1b[31m twenty", "  ")
    whole, *lines = capsys.readouterr().out.splitlines()
    assert whole == "- a note that is longer\\nthan \\x1b[31m twenty"
    assert lines == ["- a note that is", "  longer\\nthan", "  \\x1b[31m twenty"]
