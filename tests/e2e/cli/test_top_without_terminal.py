"""`pgsched top` without a terminal names other commands; --once and --json print readings as text and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.paths import ROOT


def test_without_a_terminal_top_names_commands_to_use_instead(pgsched: Callable[..., Any]) -> None:
    said = pgsched("top")
    assert said.code == 2
    assert said.err == "error: top needs a terminal: use `pgsched status --json`, or `pgsched top --once`\n"


def test_an_unknown_page_or_database_is_reported_in_one_line(pgsched: Callable[..., Any]) -> None:
    said = pgsched("top", "--once", "--page", "nope")
    assert (said.code, said.err) == (
        2, 'error: page: "nope" is not one of overview, running, queues, jobs, failures, workers\n'
    )  # fmt: skip
    said = pgsched("top", "--once", "--dsn", "host=127.0.0.1 port=1 user=x dbname=x")
    assert said.code == 3
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("page", ["overview", "running", "queues", "jobs", "failures", "workers"])
def test_once_prints_one_reading(pgsched: Callable[..., Any], page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = pgsched("top", "--once", "--page", page)
    assert said.code == 0
    assert said.out.startswith("pgsched top healthy")
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_json_prints_one_object_per_reading(pgsched: Callable[..., Any], dsn: str) -> None:
    found = pgsched("top", "--json", "--once").json
    assert found["status"]["healthy"] is True
    assert len(found["stretches"]) == 60
    assert found["failures"] == []
    command = [sys.executable, "-m", "pgsched", "top", "--json", "--interval", "0.2"]
    environment = os.environ | {"PGSCHED_DSN": dsn}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.terminate()
    assert [set(look) >= {"now", "status", "stretches"} for look in looks] == [True] * 3
    assert looks[0]["now"] < looks[2]["now"]
