"""The settings file pgsched.toml: where it is found, what wins over it, and what is wrong with a key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from pgsched.cli import make_app, run
from pgsched.cli.config_file import apply_file, find_file
from pgsched.config import Settings
from pgsched.errors import InputError
from pgsched.worker import process
from tests.support.paths import ROOT

FILE = """
dsn = "postgresql://file.example/shop"
app = "tests.support.apps.typed:app"

[worker]
concurrency = 3
queue = ["mail", "default"]
allow = "task,sql"
leader = false
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository's folder that is the current one."""
    for name in ("PGSCHED_DSN", "DATABASE_URL", "PGSCHED_CONFIG", "PGSCHED_APP"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Return a function that starts a worker by a command line, and returns its settings."""
    found: list[Settings] = []

    def note(settings: Settings, apps: Any, line: Any) -> None:
        found.append(settings)
        paths.append([app.path for app in apps])

    paths: list[list[str]] = []
    monkeypatch.setattr(process, "run_worker", note)
    monkeypatch.setattr("os.environ", {**os.environ})  # the file's DSN goes there

    def start(*args: str) -> Settings:
        assert run(["worker", *args]) == 0
        return found[-1]

    start.apps = paths  # type: ignore[attr-defined]
    return start


def test_keys_of_the_file_are_the_options_of_the_command(folder: Path, started: Callable[..., Settings]) -> None:
    (folder / "pgsched.toml").write_text(FILE)
    settings = started()
    assert settings.dsn == "postgresql://file.example/shop"
    worker = settings.worker
    assert (worker.concurrency, worker.queues, worker.leader) == (3, ("mail", "default"), False)
    assert worker.allow == {"task", "sql"}
    assert started.apps == [["tests.support.apps.typed:app"]]  # type: ignore[attr-defined]


def test_flags_win_over_the_environment_and_the_environment_over_the_file(
    folder: Path, started: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pgsched.toml").write_text(FILE + "log-bytes = 10\n")
    assert started().worker.log_bytes == 10
    monkeypatch.setenv("PGSCHED_LOG_BYTES", "20")
    monkeypatch.setenv("DATABASE_URL", "postgresql://environment.example/shop")
    monkeypatch.delenv("PGSCHED_DSN", raising=False)
    monkeypatch.setenv("PGSCHED_APP", "tests.support.apps.talkative:app")
    settings = started()
    assert (settings.worker.log_bytes, settings.worker.concurrency) == (20, 3)
    assert settings.dsn == "postgresql://environment.example/shop"
    assert started.apps[-1] == ["tests.support.apps.talkative:app"]  # type: ignore[attr-defined]
    settings = started("--log-bytes", "30", "--dsn", "postgresql://flag.example/shop", "--queue", "q", "--leader")
    assert (settings.worker.log_bytes, settings.worker.queues, settings.worker.leader) == (30, ("q",), True)
    assert settings.dsn == "postgresql://flag.example/shop"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[worker]\nconcurency = 3", "unknown key worker.concurency; did you mean concurrency?"),
        ("[wroker]\nconcurrency = 3", "unknown key wroker; did you mean worker?"),
        ("concurrency = 3", "unknown key concurrency"),
        ("[worker]\nmax_runs = 3", "unknown key worker.max_runs; did you mean max-runs?"),
        ("[worker]\ndsn = 'x'", "unknown key worker.dsn; it stands at the top of the file"),
        ("[worker]\nconcurrency = 'many'", "worker.concurrency: "),
        ("[worker]\nconcurrency = [3]", "worker.concurrency: expected one value, got a list"),
        ("[worker]\nleader = 'no'", "worker.leader: expected true or false, got 'no'"),
        ("[worker]\nqueue = true", "worker.queue: expected a text or a number, got True"),
        ("[worker\n", "(at line 1, column 8)"),
        ("dsn = ''", "dsn: expected a connection string, got ''"),
    ],
)
def test_a_wrong_file_is_one_line_with_the_place(
    text: str, error: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pgsched.toml").write_text(text)
    assert run(["worker"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {folder}/pgsched.toml: ") and error in line, line


def test_keys_of_other_commands_do_not_matter_and_help_reads_no_file(
    folder: Path, started: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pgsched.toml").write_text("dsn = 'postgresql://h/d'\n[web]\nbind = ':8080'\n[job.add]\njson = true\n")
    started()
    (folder / "pgsched.toml").write_text("nonsense")
    assert run(["worker", "--help"]) == 0 and run(["--version"]) == 0


@pytest.mark.parametrize(("mode", "warns"), [(0o644, True), (0o640, False), (0o600, False)])
def test_a_password_that_every_user_can_read_is_warned_of(
    mode: int, warns: bool, folder: Path, started: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "pgsched.toml"
    file.write_text('dsn = "postgresql://me:geheim@h/d"\n')
    file.chmod(mode)
    started()
    said = capsys.readouterr().err
    assert ("holds a password" in said and f"chmod 600 {file}" in said) is warns and "geheim" not in said
    file.write_text('dsn = "postgresql://me@h/d"\n')
    started()
    assert "password" not in capsys.readouterr().err


def test_the_file_is_found_here_and_above_up_to_the_root_of_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = folder / "sub" / "repository" / "deep"
    inner.mkdir(parents=True)
    (folder / "pgsched.toml").touch()
    monkeypatch.chdir(inner)
    assert find_file({}) == folder / "pgsched.toml"
    (folder / "sub" / "repository" / ".git").mkdir()
    assert find_file({}) is None, "it stands above the repository"
    (inner / "pgsched.toml").touch()
    assert find_file({}) == inner / "pgsched.toml"


def test_without_a_repository_only_the_current_folder_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".git").rmdir()
    (folder / "pgsched.toml").touch()
    (folder / "deep").mkdir()
    assert find_file({}) == folder / "pgsched.toml"
    monkeypatch.chdir(folder / "deep")
    assert find_file({}) is None


def test_a_variable_names_the_file(folder: Path) -> None:
    (folder / "other.toml").touch()
    assert find_file({"PGSCHED_CONFIG": "other.toml"}) == Path("other.toml")
    for wrong, error in (("missing.toml", "there is no file missing.toml"), (" ", "it is given, but empty")):
        with pytest.raises(InputError, match=error):
            find_file({"PGSCHED_CONFIG": wrong})


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_stranger_s_file_above_the_current_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner would choose which code runs: `app`."""
    (folder / "pgsched.toml").touch()
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    uid = os.getuid() + 4711
    monkeypatch.setattr(os, "getuid", lambda: uid)
    os.chown(folder / "pgsched.toml", uid + 1, -1)
    with pytest.raises(InputError, match="belongs to another user"):
        find_file({})
    assert find_file({"PGSCHED_CONFIG": str(folder / "pgsched.toml")}) == folder / "pgsched.toml"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
def test_a_stranger_s_file_in_a_folder_for_all_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    """As in /tmp, where everybody may put a file, and root may start a worker."""
    path = folder / "pgsched.toml"
    if link:
        (folder / "other.toml").touch()
        path.symlink_to("other.toml")
    else:
        path.touch()
    monkeypatch.chdir(folder)
    os.chown(path, 4711, -1, follow_symlinks=False)
    with pytest.raises(InputError, match="belongs to another user"):
        find_file({})
    assert find_file({"PGSCHED_CONFIG": str(path)}) == path
    os.chown(folder, 4711, -1)
    assert find_file({}) == path, "root works in the folder of the file's owner"


def test_the_example_of_the_docs_fits_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    (tmp_path / "pgsched.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    monkeypatch.setattr("os.environ", {**os.environ})
    command = typer.main.get_command(make_app())
    found = apply_file(tmp_path / "pgsched.toml", command, [*command.commands])  # type: ignore[attr-defined]
    assert found["worker"] == {
        "app": ["shop.tasks:app"], "concurrency": 16, "queue": ["mail", "default"], "leader": True, "max_memory": 800,
        "drain": {}, "list": {},
    }  # fmt: skip
    assert found["check"] == {"app": ["shop.tasks:app"]} and found["web"] == {"port": 8080} and not found["status"]
