"""docs/moving.md: what it says to do instead works, statement by statement and command by command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main

from pgsched.cli import make_app, run
from pgsched.worker.process import declare

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "moving.md").read_text()
BLOCK = re.compile(r"(Before:\n\n)?```(\w+)\n(.*?)```", re.DOTALL)


def blocks(kind: str) -> list[str]:
    """The page's blocks of this language that are not what one comes from."""
    return [text for before, found, text in BLOCK.findall(PAGE) if found == kind and not before]


def flags_of(noun: str) -> set[str]:
    command = typer.main.get_command(make_app()).commands[noun]  # type: ignore[attr-defined]
    return {name for option in command.params for name in option.opts}


def test_the_commands_run(db: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSCHED_DSN", dsn)
    lines = [line for text in blocks("sh") for line in text.replace("\\\n", "").splitlines()]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "worker":
            assert {word for word in words if word.startswith("--")} <= flags_of("worker"), line
        else:
            assert run(words) == 0, line
    dump = db.execute("SELECT args, timezone, max_attempts FROM pgsched.jobs WHERE name = 'dump'").fetchone()
    assert dump == ({"cwd": "/srv/shop"}, "Europe/Berlin", 1)
    mail = db.execute("SELECT args ->> 'stdin' FROM pgsched.jobs WHERE name = 'report-mail'").fetchone()
    assert mail == ("Please find it on the server.\n",)
    assert db.execute("SELECT count(*) FROM pgsched.jobs WHERE error IS NOT NULL OR paused").fetchone() == (0,)


PG_CRON = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (
    jobid bigint, schedule text, command text, database text, username text, active boolean, jobname text);
CREATE FUNCTION cron.unschedule(bigint) RETURNS boolean LANGUAGE sql AS
    'DELETE FROM cron.job WHERE jobid = $1 RETURNING true';
INSERT INTO cron.job SELECT n, s, c, current_database(), current_user, a, j FROM (VALUES
    (1, '0 12 $ * *', 'DELETE FROM t WHERE n % 2 = 0', true, 'monthly'), (2, '30 seconds', 'SELECT 1', true, NULL),
    (3, '0 3 * * *', 'vacuum', true, 'clean'), (4, '@hourly', 'SELECT 2', false, 'off')) AS v (n, s, c, a, j)
"""


def test_the_jobs_of_pg_cron_are_taken_over(db: psycopg.Connection[Any]) -> None:
    for statement in PG_CRON.split(";\n"):
        db.execute(statement.encode())
    for text in blocks("sql"):
        for statement in text.split(";\n"):
            if statement.strip():
                db.execute(statement.encode())
    moved = db.execute(
        "SELECT name, schedule, task, overlap, paused, owner = current_user FROM pgsched.jobs"
        " WHERE kind = 'sql' ORDER BY 1"
    ).fetchall()
    assert moved == [
        ("cron 2", "@every 30s", "SELECT 1", "buffer_all", False, True),
        ("monthly", "0 12 L * *", "DELETE FROM t WHERE n % 2 = 0", "buffer_all", False, True),
    ]
    assert db.execute("SELECT array_agg(jobid ORDER BY 1) FROM cron.job").fetchone() == ([3, 4],)
    vacuum = db.execute("SELECT kind, args ->> 0 FROM pgsched.jobs WHERE name = 'nightly-vacuum'").fetchone()
    assert vacuum == ("command", "--table=orders")


def test_the_programs_declare_their_jobs_and_enqueue(
    db: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_DSN", dsn)
    for number, text in enumerate(blocks("python")):
        names: dict[str, Any] = {"__name__": f"moved_{number}"}
        exec(text, names)
        declare(db, names["app"])
        names["app"].close()
    jobs = db.execute(
        "SELECT name, schedule, args, queue, overlap, max_attempts FROM pgsched.jobs ORDER BY 1, 2"
    ).fetchall()
    assert jobs == [
        ("clean", "0 3 * * mon-fri", {"days": 30}, "default", "skip", 1),
        ("mailbox", "@every 5m", {}, "default", "skip", 1),
        ("nightly-report", "0 2 * * *", {"days": 7}, "reports", "skip", 5),
        ("poll", "@every 30s", {}, "default", "allow", 1),
    ]
    assert db.execute("SELECT task, queue FROM pgsched.runs ORDER BY id").fetchall() == [
        ("shop.report", "reports"), ("moved_1.remind", "default")
    ]  # fmt: skip
