"""Completion in a shell: commands and options, and the names that the database knows."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest


@pytest.mark.parametrize(
    ("line", "found"),
    [("pgsched wor", "worker"), ("pgsched worker --rel", "--reload"), ("pgsched job sh", "show")],
    ids=["command", "option", "verb"],
)
def test_commands_and_options_are_completed(line: str, found: str, process: Callable[..., Any]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    said = process(_PGSCHED_COMPLETE="complete_bash", **words)
    assert (said.code, said.out.split(), said.err) == (0, [found], "")


def completed(process: Callable[..., Any], line: str, **env: str) -> list[str]:
    """Return what bash offers for the last word of the line; nothing else is printed."""
    count = len(shlex.split(line)) - 1
    said = process(_PGSCHED_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(count), **env)
    assert (said.code, said.err) == (0, "")
    return [word for word in said.out.split("\n") if word]


@pytest.fixture
def names(db: psycopg.Connection[Any]) -> None:
    """Add jobs, a queue and a worker, and jobs whose names a shell would not take as names."""
    add = "INSERT INTO pgsched.jobs (name, task, schedule, queue) VALUES (%s, 'shop.pay', '@daily', 'slow')"
    for name in ("nightly", "night.mails", "other", "night$(touch x)", "night;ls", "--dsn=night", "night one"):
        db.execute(add, [name])
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, queues, lease)"
        " VALUES ('web-1.7', 'web-1', 7, '0', 4, '{task}', '{shop.pay,shop.new}', '{fast}', '1 minute')"
    )


@pytest.mark.few(1)
@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pgsched job show nig", ["night.mails", "nightly"]),
        ("pgsched explain ni", ["night.mails", "nightly"]),
        ("pgsched run list --queue s", ["slow"]),
        ("pgsched pause --queue fa", ["fast"]),
        ("pgsched enqueue shop.", ["shop.new", "shop.pay"]),
        ("pgsched task show shop.p", ["shop.pay"]),
        ("pgsched worker drain we", ["web-1.7"]),
        ("pgsched job show x", []),
    ],
)
def test_names_are_completed(line: str, found: list[str], process: Callable[..., Any], dsn: str) -> None:
    assert completed(process, line, PGSCHED_DSN=dsn) == found


@pytest.mark.usefixtures("names")
def test_names_are_those_of_the_database_that_the_command_would_use(
    process: Callable[..., Any], dsn: str, tmp_path: Path
) -> None:
    settings = tmp_path / "pgsched.toml"
    settings.write_text(f'dsn = "{dsn}"\n')
    settings.chmod(0o644)
    assert completed(process, "pgsched job show oth", PGSCHED_CONFIG=str(settings)) == ["other"]
    closed = "host=127.0.0.1 port=1 dbname=x connect_timeout=1"
    assert completed(process, f"pgsched job show --dsn '{dsn}' oth", PGSCHED_DSN=closed) == ["other"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PGSCHED_DSN": "host=127.0.0.1 port=1 connect_timeout=9"},
        {"PGSCHED_DSN": ""},
        {"PGSCHED_DSN": "mysql://x"},
        {"PGSCHED_CONFIG": "/nowhere/pgsched.toml"},
    ],
    ids=["none", "closed", "empty", "another product's", "no such file"],
)
def test_without_a_database_nothing_is_offered_and_nothing_is_started(
    env: dict[str, str], process: Callable[..., Any], tmp_path: Path
) -> None:
    home = tmp_path / "data"
    assert completed(process, "pgsched job show ni", PGSCHED_HOME=str(home), HOME=str(tmp_path), **env) == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.long
def test_a_database_that_does_not_answer_is_not_waited_for(process: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and says nothing
        port = silent.getsockname()[1]
        started = time.monotonic()
        assert completed(process, "pgsched job show ni", PGSCHED_DSN=f"host=127.0.0.1 port={port} dbname=x") == []
        assert time.monotonic() - started < 8, "most of it is the start of Python on a busy machine"


@pytest.mark.few(2)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_printed_and_installed(shell: str, process: Callable[..., Any], tmp_path: Path) -> None:
    given = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # or the shell that runs the tests is taken
    said = process("--show-completion", shell, **given)
    assert said.code == 0 and f"_PGSCHED_COMPLETE=complete_{shell}" in said.out
    assert process("--install-completion", shell, HOME=str(tmp_path), **given).code == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("words", "at", "found"),
    [
        (["drain", "v"], 3, ["vm:380", "vm:49"]),
        (["drain", "vm", ":"], 4, ["380", "49"]),
        (["drain", "vm", ":", "3"], 5, ["380"]),
        (["drain", "vm:3"], 3, ["vm:380"]),
        (["drain", "vm", ":", "49", "vm", ":", "3"], 8, ["380"]),
        (["drain", "vm", ":", "49", ""], 6, ["vm:380", "vm:49"]),
    ],
    ids=["before", "at", "after", "unsplit", "second", "next"],
)
def test_bash_splits_names_at_their_colons(
    words: list[str], at: int, found: list[str], process: Callable[..., Any], dsn: str, db: psycopg.Connection[Any]
) -> None:
    """Bash replaces only what follows the colon, unless the colon is not in COMP_WORDBREAKS."""
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
        " SELECT 'vm:' || pid, 'vm', pid, '0', 4, '{task}', '{}', '1 minute' FROM unnest('{380,49}'::integer[]) pid"
    )
    line = "\n".join(["pgsched", "worker", *words])
    said = process(_PGSCHED_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(at), PGSCHED_DSN=dsn)
    assert (said.code, said.out.split(), said.err) == (0, found, "")
