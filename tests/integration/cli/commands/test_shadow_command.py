"""`pgsched shadow report`: slots of jobs in mode shadow beside the log of another scheduler."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from tests.support.cli.said import Said
from tests.support.db.passing import lead, now, pass_time

Program = Callable[..., Said]
HOURS = 5


def shadow(db: psycopg.Connection, name: str, task: str, **columns: Any) -> None:
    """Add a job in mode shadow, and let HOURS of its slots be decided on time."""
    given = {"schedule": "@every 1h", "kind": "shell", "mode": "shadow"} | columns
    jobs.add(db, {"name": name, "task": task, **given})


def decide_slots(db: psycopg.Connection) -> None:
    """Let HOURS pass, an hour at a time, and half an hour more."""
    lead(db)
    for _ in range(HOURS):
        pass_time(db, 3600)
        lead(db)
    pass_time(db, 1800)


def slots(db: psycopg.Connection, name: str) -> list[datetime]:
    return [
        row[0]
        for row in db.execute(
            "SELECT r.scheduled_at FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = %s"
            " ORDER BY 1",
            [name],
        ).fetchall()
    ]


def cron_line(at: datetime, command: str) -> str:
    return f"{at.astimezone(UTC).isoformat()} host CRON[7]: (root) CMD ({command})"


def write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def cron_log(db: psycopg.Connection, path: Path, *lines: str) -> str:
    """Write a log that covers the last day, with these lines."""
    first, last = (f"{at.astimezone(UTC).isoformat()} host kernel: x" for at in (now(db) - timedelta(days=1), now(db)))
    return write(path, first, *sorted(lines), last)


def test_a_log_that_agrees_ends_in_0(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "pg_dump  x")
    decide_slots(db)
    lines = [cron_line(slot + timedelta(seconds=1.5), "  pg_dump x") for slot in slots(db, "dump")]
    log = cron_log(db, tmp_path / "cron.log", *lines, cron_line(now(db), "/usr/bin/other --x"))
    said = pgsched("shadow", "report", "--log", log)
    assert said.code == 0, said.out + said.err
    assert f"the log has {HOURS + 1} starts" in said.out
    assert ["dump", str(HOURS), "0", "0", "0", "1.5s", "1.5s"] in [line.split() for line in said.out.splitlines()]
    assert "1       /usr/bin/other --x" in said.out
    assert said.out.splitlines()[-1] == "no difference"


def test_each_difference_is_named_and_ends_in_2(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "pg_dump x")
    shadow(db, "load", "./load.sh --full")
    decide_slots(db)
    mine = slots(db, "dump")
    lines = [cron_line(slot, "pg_dump x") for slot in mine[1:]]
    extra = mine[2] + timedelta(minutes=20)
    log = cron_log(
        db, tmp_path / "cron.log", *lines, cron_line(extra, "pg_dump x"), cron_line(mine[1], "./load.sh --all")
    )
    said = pgsched("shadow", "report", "--log", log, "--json")
    assert said.code == 2
    found = {one["jobs"][0]: one for one in said.json["jobs"]}
    assert said.json["differ"] is True
    assert [found["dump"][name] for name in ("matched", "only_here", "only_there")] == [HOURS - 1, 1, 1]
    assert [datetime.fromisoformat(one) for one in found["dump"]["here"]] == [mine[0]]
    assert [datetime.fromisoformat(one) for one in found["dump"]["there"]] == [extra]
    assert (found["load"]["matched"], found["load"]["only_here"]) == (0, HOURS)
    assert [(one["text"], one["meant"]) for one in said.json["unmatched"]] == [("./load.sh --all", "load")]
    shown = pgsched("shadow", "report", "--log", log).out
    assert f"only here: {mine[0]:%Y-%m-%d %H:%M:%S}" in shown and f"only there: {extra:%Y-%m-%d %H:%M:%S}" in shown
    assert "(is it load?)" in shown and shown.endswith("2 of 2 jobs differ\n")


def test_a_last_line_without_a_time_does_not_hide_a_difference(
    db: psycopg.Connection, pgsched: Program, tmp_path: Path
) -> None:
    shadow(db, "dump", "pg_dump x")
    decide_slots(db)
    lines = [cron_line(slot, "pg_dump x") for slot in slots(db, "dump")[1:]]
    log = cron_log(db, tmp_path / "cron.log", *lines)
    with Path(log).open("a") as file:
        file.write("Nov 28 00:1")
    said = pgsched("shadow", "report", "--log", log)
    assert (said.code, said.out.splitlines()[-1]) == (2, "1 of 1 jobs differ")


def test_a_log_of_one_instant_is_refused(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "x")
    said = pgsched("shadow", "report", "--log", write(tmp_path / "cron.log", cron_line(now(db), "x")))
    assert (said.code, said.err.startswith("error: log: its first and its last time are one instant")) == (2, True)


def test_slots_are_known_from_when_a_job_was_made(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    """An imported interval counts from an instant in the past: its slots before it was made are not compared."""
    shadow(db, "dump", "x", starts_at=now(db) - timedelta(days=30))
    lead(db)
    pass_time(db, 600)
    log = cron_log(db, tmp_path / "cron.log", *(cron_line(now(db) - timedelta(hours=n), "x") for n in range(2, 9)))
    (one,) = pgsched("shadow", "report", "--log", log, "--json").json["jobs"]
    assert one["only_there"] == 0


def test_nothing_that_was_compared_is_no_agreement(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "x")
    log = cron_log(db, tmp_path / "cron.log", cron_line(now(db) - timedelta(hours=2), "x"))
    said = pgsched("shadow", "report", "--log", log)
    assert said.code == 2
    assert said.out.splitlines()[-2].startswith("nothing was compared: ")
    assert "--by-schedule" in said.out
    assert "no difference" not in said.out
    assert pgsched("shadow", "report", "--log", log, "--json").json["compared"] == 0


def test_a_mapping_says_which_job_a_text_means(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "load", "etl.load", kind="task")
    decide_slots(db)
    log = cron_log(db, tmp_path / "cron.log", *(cron_line(slot, "./load.sh --all") for slot in slots(db, "load")))
    names = write(tmp_path / "map.csv", "./load.sh *,load")
    assert pgsched("shadow", "report", "--log", log).code == 2
    assert pgsched("shadow", "report", "--log", log, "--map", names).code == 0
    wrong = pgsched("shadow", "report", "--log", log, "--map", write(tmp_path / "wrong.csv", "./load.sh,lod"))
    assert wrong.err == 'error: map: line 1: no job named "lod" is compared; did you mean load?\n'


def test_a_csv_and_a_listing_name_the_jobs(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "load", "etl.load", kind="task")
    decide_slots(db)
    mine = slots(db, "load")
    rows = write(tmp_path / "runs.csv", "name,started_at", *(f"load,{slot.isoformat()}" for slot in mine))
    assert pgsched("shadow", "report", "--log", rows, "--json").json["jobs"][0]["matched"] == HOURS
    items = [
        {"kind": "Job", "metadata": {"name": f"load-{n}", "namespace": "etl", "uid": str(n),
         "ownerReferences": [{"kind": "CronJob", "name": "load"}],
         "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": slot.isoformat()}},
         "status": {"startTime": (slot + timedelta(minutes=4)).isoformat()}}
        for n, slot in enumerate(mine[2:])
    ]  # fmt: skip
    listing = write(tmp_path / "jobs.json", json.dumps({"kind": "List", "items": items}))
    said = pgsched("shadow", "report", "--log", listing, "--json")
    (one,) = said.json["jobs"]
    assert (said.code, one["matched"], one["only_here"], one["lateness_p50_s"]) == (0, HOURS - 2, 0, 240)


def test_several_logs_packed_or_from_standard_input(
    db: psycopg.Connection, pgsched: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(db, "dump", "x")
    decide_slots(db)
    lines = [cron_line(slot, "x") for slot in slots(db, "dump")]
    older = tmp_path / "cron.log.1.gz"
    older.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines[:2]).encode()))
    text = io.BytesIO("".join(f"{line}\n" for line in [*lines[2:], cron_line(now(db), "y")]).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text))
    said = pgsched("shadow", "report", "--log", "-", "--log", str(older), "--json")
    assert (said.code, said.json["jobs"][0]["matched"]) == (0, HOURS)


def test_late_decisions_are_counted_and_no_difference(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    """No leader was there for some hours: one row stands for the slots, and the schedules still agree."""
    shadow(db, "dump", "x")
    lead(db)
    pass_time(db, 3.5 * 3600)
    lead(db)
    (last,) = slots(db, "dump")
    mine = [last - timedelta(hours=n) for n in (2, 1, 0)]
    log = cron_log(db, tmp_path / "cron.log", *(cron_line(slot, "x") for slot in mine))
    (one,) = pgsched("shadow", "report", "--log", log, "--json").json["jobs"]
    assert (one["matched"], one["decided_late"], one["only_here"], one["only_there"]) == (3, 3, 0, 0)


def test_excluded_dates_are_no_slots(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "x")
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date, until_date)"
               " SELECT id, '2020-01-01', '2090-01-01' FROM pgsched.jobs")  # fmt: skip
    decide_slots(db)
    at = now(db) - timedelta(hours=2)
    (one,) = pgsched("shadow", "report", "--log", cron_log(db, tmp_path / "a.log", cron_line(at, "x")), "--json").json[
        "jobs"
    ]
    assert (one["matched"], one["only_here"], one["only_there"]) == (0, 0, 1)


def test_excluded_dates_before_the_first_slot_are_compared(
    db: psycopg.Connection, pgsched: Program, tmp_path: Path
) -> None:
    """The other scheduler starts the work also on a date that is excluded here."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    shadow(db, "dump", "x", schedule="0 0 * * *")
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date, until_date)"
               " SELECT id, %s, %s FROM pgsched.jobs", [yesterday - timedelta(days=1), yesterday])  # fmt: skip
    lead(db)
    pass_time(db, 3 * 86_400)
    lead(db)
    begin = f"{(today - timedelta(days=4)).isoformat()} host kernel: x"
    starts = (cron_line(at + timedelta(seconds=1), "x") for at in (yesterday, today))
    log = write(tmp_path / "a.log", begin, *starts, f"{now(db).isoformat()} host kernel: x")
    (one,) = pgsched("shadow", "report", "--log", log, "--json").json["jobs"]
    assert (one["matched"], one["only_here"], one["only_there"]) == (1, 0, 1)


def test_slots_of_the_schedule_are_compared_with_an_old_log(
    db: psycopg.Connection, pgsched: Program, tmp_path: Path
) -> None:
    shadow(db, "dump", "x", schedule="30 2 * * *", timezone="Europe/Berlin")
    begin = datetime(2026, 3, 27, 12, tzinfo=UTC)
    there = [datetime(2026, 3, 28, 1, 30, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, 0, 1, tzinfo=UTC)]
    ends = [f"{at.isoformat()} host kernel: x" for at in (begin, begin + timedelta(days=2))]
    log = write(tmp_path / "old.log", ends[0], *(cron_line(at, "x") for at in there), ends[1])
    (now_known,) = pgsched("shadow", "report", "--log", log, "--json").json["jobs"]
    assert now_known["begin"] is None, "nothing was decided then"
    said = pgsched("shadow", "report", "--log", log, "--by-schedule", "--json")
    (one,) = said.json["jobs"]
    assert (said.code, one["matched"]) == (0, 2), "the clock change moves the second one to 01:00 UTC"


def test_slots_are_compared_where_a_calendar_has_them(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('office')")
    db.execute("INSERT INTO pgsched.calendar_times (calendar, weekdays) VALUES ('office', '{0,6}')")
    shadow(db, "dump", "x", schedule="0 9 * * *", calendar="office", on_excluded="next_business_day")
    friday = datetime(2026, 5, 8, tzinfo=UTC)
    there = [friday + timedelta(days=days, hours=9, seconds=1) for days in (0, 3)]
    ends = [f"{at.isoformat()} host kernel: x" for at in (friday, friday + timedelta(days=4))]
    log = write(tmp_path / "old.log", ends[0], *(cron_line(at, "x") for at in there), ends[1])
    said = pgsched("shadow", "report", "--log", log, "--by-schedule", "--json")
    assert (said.code, said.json["jobs"][0]["matched"]) == (0, 2)


def test_a_part_of_the_time_is_compared(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "x")
    decide_slots(db)
    mine = slots(db, "dump")
    log = cron_log(db, tmp_path / "cron.log", *(cron_line(slot, "x") for slot in mine[2:]))
    assert pgsched("shadow", "report", "--log", log).code == 2
    since = (mine[1] + timedelta(minutes=30)).isoformat()
    assert pgsched("shadow", "report", "--log", log, "--since", since).code == 0
    until = (mine[3] + timedelta(minutes=30)).isoformat()
    (one,) = pgsched("shadow", "report", "--log", log, "--since", since, "--until", until, "--json").json["jobs"]
    assert one["matched"] == 2
    assert pgsched("shadow", "report", "--log", log, "--since", until, "--until", since).code == 2


def test_named_jobs_are_compared_whatever_their_mode(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    shadow(db, "dump", "x", mode="run")
    decide_slots(db)
    log = cron_log(db, tmp_path / "cron.log", *(cron_line(slot, "x") for slot in slots(db, "dump")))
    nothing = pgsched("shadow", "report", "--log", log)
    assert (nothing.code, nothing.err.startswith("error: job: no job is in mode shadow")) == (2, True)
    (one,) = pgsched("shadow", "report", "--log", log, "--job", "dump", "--json").json["jobs"]
    assert one["matched"] >= 1
    assert pgsched("shadow", "report", "--log", log, "--job", "dunp").code == 8


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("Nov 28 00:17:01 host sshd[1]: hello\n", "log: no start of any command was found in it"),
        ("", "log: no start of any command was found in it"),
        ('{"kind": "Pod"}', "log: document 1 is no listing of jobs"),
        ("\x1f\x8bnonsense", "log: cannot be read: "),
    ],
)
def test_a_log_that_is_none_is_one_line_of_error(
    db: psycopg.Connection, pgsched: Program, tmp_path: Path, content: str, reason: str
) -> None:
    shadow(db, "dump", "x")
    path = tmp_path / "log"
    path.write_bytes(content.encode("latin-1"))
    said = pgsched("shadow", "report", "--log", str(path))
    assert (said.code, said.err.startswith(f"error: {reason}"), said.err.count("\n")) == (2, True, 1), said.err


def test_wrong_options_are_refused(db: psycopg.Connection, pgsched: Program, tmp_path: Path) -> None:
    assert pgsched("shadow", "report", "--log", "/nowhere/log").err == (
        "error: log: cannot read /nowhere/log: No such file or directory\n"
    )
    log = write(tmp_path / "a", "x")
    assert "format: " in pgsched("shadow", "report", "--log", log, "--format", "journal").err
    assert "tolerance: " in pgsched("shadow", "report", "--log", log, "--tolerance", "soon").err
    assert "map: cannot read" in pgsched("shadow", "report", "--log", log, "--map", "/nowhere/map").err
    assert pgsched("shadow", "report").code == 2
