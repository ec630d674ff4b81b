"""A line logged inside an attempt names its run, wherever the handler runs and however it logs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from tests.support.fleet import Fleet
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.packages


def lines_of(fleet: Fleet, text: str, count: int) -> list[dict[str, Any]]:
    """Return the worker's JSON lines that contain this text, once there are `count` of them."""

    def found() -> list[str]:
        return [line for line in fleet.members[0].log.read_text().splitlines() if text in line]

    wait_until(lambda: len(found()) >= count, 30, f"{count} lines with {text!r}")
    return [json.loads(line) for line in found()]


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["on_loop", "in_thread", "in_process"])
def test_lines_of_logging_and_structlog_name_run_and_attempt(db: psycopg.Connection, fleet: Fleet, task: str) -> None:
    fleet.start(1, "--app", "tests.support.telemetry.logging_app:app", "--json")
    db.execute("INSERT INTO pgsched.runs (task) SELECT 'on_loop' FROM generate_series(1, 3)")  # other attempts
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, args, run_at) VALUES ('slot', %s, '{\"word\": \"mine\"}', now())", [task]
    )
    run = wait_until(lambda: db.execute("SELECT id, job_id FROM pgsched.runs WHERE job_id IS NOT NULL").fetchone(), 20)
    assert run is not None
    lines = lines_of(fleet, "mine ", 3)
    assert {line["event"] for line in lines} == {"mine warned", "mine structured", "mine nested"}
    for line in lines:
        assert (line["run"], line["job"], line["attempt"], line["task"]) == (run[0], run[1], 1, task)
    assert {line.get("logger") for line in lines} == {"handlers", None}


@pytest.mark.long
def test_the_line_of_a_failed_attempt_names_its_job(db: psycopg.Connection, fleet: Fleet) -> None:
    fleet.start(1, "--app", "tests.support.telemetry.logging_app:app", "--json")
    db.execute("INSERT INTO pgsched.jobs (name, task, run_at, max_attempts) VALUES ('slot', 'fails', now(), 1)")
    (line,) = lines_of(fleet, "attempt ended", 1)
    job = db.execute("SELECT id FROM pgsched.jobs").fetchone()
    assert job is not None
    assert line["job"] == job[0]


@pytest.mark.long
def test_an_app_that_formats_its_own_lines_finds_the_run_in_the_record(db: psycopg.Connection, fleet: Fleet) -> None:
    fleet.start(1, "--app", "tests.support.telemetry.logging_app:with_handler")
    db.execute("INSERT INTO pgsched.runs (task, args) VALUES ('in_thread', '{\"word\": \"mine\"}')")
    wait_until(lambda: fleet.members[0].logged("[run 1.1 in_thread] mine warned"), 20, "its line")


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["in_thread", "in_process"])
def test_an_app_that_sets_up_structlog_keeps_its_format_everywhere(
    db: psycopg.Connection, fleet: Fleet, task: str
) -> None:
    fleet.start(1, "--app", "tests.support.telemetry.logging_app:with_structlog")
    db.execute('INSERT INTO pgsched.runs (task, args) VALUES (%s, \'{"word": "mine"}\')', [task])
    member = fleet.members[0]
    wait_until(lambda: member.logged("mine structured"), 20, "its line")
    assert "event='mine structured'" in member.log.read_text().splitlines()


@pytest.mark.long
def test_lines_for_people_are_the_default(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(1, "--app", "tests.support.telemetry.logging_app:app")
    db.execute("INSERT INTO pgsched.runs (task, args) VALUES ('on_loop', '{\"word\": \"mine\"}')")
    wait_until(lambda: fleet.members[0].logged("mine warned"), 20, "its line")
    (line,) = [line for line in fleet.members[0].log.read_text().splitlines() if "mine warned" in line]
    assert "[warning" in line
    assert "run=1" in line


@pytest.mark.long
def test_passwords_in_lines_of_logging_are_hidden() -> None:
    code = (
        "import logging; from pgsched import log; log.configure('info', 'json');"
        "logging.getLogger('x').warning('postgresql://u:secret@h/d\\x1b[31m')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    line = json.loads(said.stderr)
    assert line["event"].startswith("postgresql://u:***@h/d")
    assert "\x1b" not in line["event"]
