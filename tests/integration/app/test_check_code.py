"""`pgsched check --app` examines the code, with a database or without one, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

PROGRAM = """
from pgsched import App
app = App("office")
@app.job(schedule="0 3 * * *", timezone="Europe/Berlin", name="nightly")
@app.task(name="office.report", run_in="process")
def report(days: int = 1) -> None: ...
@app.job(schedule="@hourly", name="mine")
@app.task(name="office.other")
def other() -> None: ...
"""
Check = Callable[..., Any]


@pytest.fixture
def check(process: Callable[..., Any], tmp_path: Path) -> Check:
    """Write the program to office.py, and return a function that checks it."""

    def run(text: str = PROGRAM, *args: str, app: str = "office", **env: str) -> Any:
        (tmp_path / "office.py").write_text(text)
        return process(
            "check", "--app", app, "--json", *args, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1", **env
        )

    return run


def texts(said: Any, name: str, level: str = "ok") -> str:
    found = [one["text"] for one in said.json["findings"] if (one["name"], one["level"]) == (name, level)]
    return "; ".join(found)


def test_without_a_database_the_code_is_checked(check: Check) -> None:
    said = check()
    assert (said.code, said.err) == (0, "")
    assert texts(said, "app") == "office: app office, 2 tasks, 2 jobs"
    assert texts(said, "tasks") == "office.other, office.report"
    assert "nightly: office.report, 0 3 * * * in Europe/Berlin; next slot 20" in texts(said, "job")
    assert "only the code was checked" in texts(said, "database")


@pytest.mark.long
def test_with_a_database_the_jobs_are_compared_and_nothing_is_written(
    check: Check, db: psycopg.Connection[Any], dsn: str
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('mine', '@daily', 'x')")
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, declared_by) VALUES ('gone', '@daily', 'x', 'office')")
    before = db.execute("SELECT * FROM pgsched.jobs ORDER BY id").fetchall()
    said = check(PGSCHED_DSN=dsn)
    assert said.code == 0
    jobs = texts(said, "jobs")
    assert "a worker will create: nightly" in jobs and "declared no more" in jobs and jobs.endswith(": gone")
    assert texts(said, "jobs", "warn") == "mine belongs to another app or owner, so it is not made"
    assert texts(said, "connection").startswith("PostgreSQL ")
    assert db.execute("SELECT * FROM pgsched.jobs ORDER BY id").fetchall() == before
    assert db.execute("SELECT count(*) FROM pgsched.tasks").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM pgsched.workers").fetchone() == (0,)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "name", "error"),
    [
        ("from pgsched import App\n\nno_such_name\n", "app", "office.py:3: NameError"),
        ("def t(:\n", "app", "office.py:1: SyntaxError"),
        (PROGRAM.replace("0 3 * * *", "61 3 * * *"), "app", "office.py:4: job nightly: minute: 61"),
        (PROGRAM.replace("app = App", "hidden = App").replace("@app", "@hidden"), "app", "has no attribute 'app'"),
    ],
    ids=["name", "syntax", "schedule", "attribute"],
)
def test_code_that_no_worker_could_serve_fails(text: str, name: str, error: str, check: Check) -> None:
    said = check(text)
    assert said.code == 2
    assert error in texts(said, name, "fail"), said.out


def test_an_app_without_tasks_is_warned_of(check: Check) -> None:
    said = check("from pgsched import App\napp = App('office')\n")
    assert said.code == 0 and "app office has no tasks" in texts(said, "tasks", "warn")


def test_a_job_that_the_database_refuses_fails_as_a_worker_would(check: Check, dsn: str) -> None:
    said = check(PROGRAM.replace('@hourly"', "@hourly\", after_jobs=['nobody']"), PGSCHED_DSN=dsn)
    assert "declares no job nobody" in texts(said, "job", "warn")
    assert said.code == 2 and "there is no job named" in texts(said, "jobs", "fail")


def test_an_unreachable_database_fails_with_its_code(check: Check) -> None:
    said = check(PROGRAM, "--dsn", "postgresql://u@127.0.0.1:1/x")
    assert said.code == 3 and texts(said, "app") and texts(said, "connection", "fail")
