"""Typical situations at a prompt: pipes that end early, terminals without UTF-8, repeated options, misspelled words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.cli.said import Said
from tests.support.paths import ROOT

pytestmark = pytest.mark.packages

Program = Callable[..., Said]
NAME = "\u00fcbung \u2603 \u540d"


def shell(line: str, dsn: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}", "bash", sys.executable],
        env=os.environ | {"PGSCHED_DSN": dsn} | env, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["status", "job list", "run list --limit 10000", "--help"])
def test_a_pipe_that_is_closed_early_ends_a_command_quietly(
    command: str, dsn: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT repeat('t', 200) FROM generate_series(1, 1000)")
    done = shell(f'"$1" -m pgsched {command} | head -c 10', dsn)
    assert done.stderr == ""


@pytest.mark.long
def test_output_to_a_full_disk_is_an_error_and_not_a_bug(dsn: str) -> None:
    done = shell('"$1" -m pgsched status --json > /dev/full', dsn)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (1, "output")
    assert error["message"] == "the output cannot be written: No space left on device"


@pytest.mark.long
@pytest.mark.parametrize("command", ["status", "job list", "job show 'NAME'", "job preview 'NAME'", "doctor"])
def test_a_terminal_without_utf_8_shows_names_as_escapes(command: str, dsn: str, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES (%s, '@daily', %s)", [NAME, NAME])
    db.execute("INSERT INTO pgsched.runs (task) VALUES (%s)", [NAME])
    text = command.replace("NAME", NAME)
    done = shell(f'"$1" -m pgsched {text}', dsn, PYTHONIOENCODING="ascii", LC_ALL="C.UTF-8")
    assert done.returncode in (0, 1) and "error" not in done.stderr, done.stderr


def test_an_option_with_one_value_is_refused_when_it_is_repeated(pgsched: Program) -> None:
    said = pgsched("run", "list", "--queue", "a", "--queue", "b")
    assert (said.code, "Option '--queue' is given 2 times" in said.err) == (2, True)
    assert pgsched("run", "list", "--json", "--json").code == 0


def test_the_options_state_and_allow_may_be_repeated(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.runs (task, state) SELECT 't', unnest('{queued,queued}'::text[])")
    db.execute(
        "UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = (SELECT min(id) FROM pgsched.runs)"
    )
    found = pgsched("run", "list", "--state", "dead", "--state", "queued", "--json").json
    assert [run["state"] for run in found] == ["queued", "dead"]
    said = pgsched("run", "list", "--state", "failed")
    assert (said.code, "did you mean dead?" in said.err) == (2, True)
    said = pgsched("worker", "--allow", "shell", "--allow", "sqll")
    assert (said.code, "allow: sqll is not one of" in said.err, "did you mean sql?" in said.err) == (2, True, True)


@pytest.mark.parametrize(
    ("name", "value", "meant"), [("PGSCHED_LOG", "warn", "warning"), ("PGSCHED_LOG_FORMAT", "jsn", "json")]
)
def test_a_mistyped_log_setting_is_refused(
    name: str, value: str, meant: str, pgsched: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    said = pgsched("worker")
    assert (said.code, f"did you mean {meant}?" in said.err) == (2, True)


def test_psql_takes_its_own_options(dsn: str) -> None:
    done = shell("\"$1\" -m pgsched psql -At -c 'SELECT 40 + 2'", dsn)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_options_before_the_command_are_explained(pgsched: Program) -> None:
    said = pgsched("--dsn", "x", "status")
    assert (said.code, "goes after the command: pgsched status --dsn" in said.err) == (2, True)


@pytest.mark.long
def test_an_app_that_ends_the_program_says_why(process: Program, tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text("import sys\nsys.exit('no licence')\n")
    said = process("worker", "--app", "ending:app", PYTHONPATH=str(tmp_path))
    assert (said.code, "ending.py:2: it ended the program: sys.exit('no licence')" in said.err) == (2, True)
