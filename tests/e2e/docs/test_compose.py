"""compose.yaml is kept true to the program: its commands, flags and variables exist, and its SQL runs."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from pgsched.cli import demo_app
from pgsched.config import ENVIRONMENT
from pgsched.db.schema.migrate import upgrade
from tests.support.paths import ROOT

yaml = pytest.importorskip("yaml")
COMPOSE = ROOT / "compose.yaml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found = yaml.safe_load(COMPOSE.read_text())["services"]
    assert isinstance(found, dict)
    return found


def commands(services: dict[str, Any]) -> list[list[str]]:
    return [given["command"] for given in services.values() if given.get("command", [""])[0] == "pgsched"]


def test_it_has_a_database_a_migration_two_workers_and_jobs(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "migrate", "worker", "jobs"}
    assert services["postgres"]["image"] == "postgres:18"
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("worker", "jobs"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}


def test_the_image_is_built_from_files_that_exist(services: dict[str, Any]) -> None:
    copies = [line.split() for line in services["worker"]["build"]["dockerfile_inline"].splitlines() if "COPY" in line]
    sources = [source for words in copies for source in words[1:-1]]
    assert {"pyproject.toml", "pgsched", "sql", "migrations"} <= set(sources)
    for source in sources:
        assert (COMPOSE.parent / source).exists()


def test_every_pgsched_command_and_flag_in_it_exists(services: dict[str, Any]) -> None:
    found = commands(services)
    assert {words[1] for words in found} == {"migrate", "worker"}
    for words in found:
        flags = [word for word in words if word.startswith("--")]
        subcommand = words[1 : words.index(flags[0])]
        text = help_of(*subcommand)
        for flag in flags:
            assert flag in text.split(), f"pgsched {' '.join(subcommand)} has no {flag}"


def help_of(*subcommand: str) -> str:
    command = [sys.executable, "-c", "from pgsched.cli import main; main()", *subcommand, "--help"]
    env = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(",", " ").replace("│", " ")


def test_every_variable_in_it_is_one_that_pgsched_reads(services: dict[str, Any]) -> None:
    used = {name for given in services.values() for name in given.get("environment", {}) if name.startswith("PGSCHED_")}
    assert used == {"PGSCHED_DSN"}
    assert used <= set(ENVIRONMENT)


def test_its_jobs_are_the_demos_and_made_once(services: dict[str, Any], dsn: str, db: psycopg.Connection) -> None:
    program, *arguments = services["jobs"]["command"]
    assert program == "python"
    upgrade(dsn, set_search_path=True)  # as the migrate service does
    for _ in range(2):
        env = os.environ | {"PGSCHED_DSN": dsn}
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
    names = {name for (name,) in db.execute("SELECT name FROM pgsched.jobs").fetchall()}
    assert names == set(demo_app.NAMES)


def test_its_workers_find_the_demos_tasks(services: dict[str, Any]) -> None:
    words = services["worker"]["command"]
    module, _, name = words[words.index("--app") + 1].partition(":")
    assert getattr(importlib.import_module(module), name) is demo_app.app
