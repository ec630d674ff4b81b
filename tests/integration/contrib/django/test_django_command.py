"""`manage.py pgsched`: the command line of pgsched on the project's database."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from pgsched.contrib.django.management.commands.pgsched import DSN, Command
from tests.support.django_project.settings import BACKEND

pytestmark = [pytest.mark.packages, pytest.mark.scram, pytest.mark.usefixtures("project_dsn")]


def manage(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "pgsched", *args])
    return int(end.value.code or 0)


def test_it_is_the_command_line_on_the_project_s_database(
    tasks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_DSN", "postgresql://nobody@127.0.0.1:1/nowhere")
    run = tasks.answer.enqueue()
    assert manage("run", "show", run.id, "--json", "--settings=shop.settings") == 0
    assert json.loads(capsys.readouterr().out)["task"] == f"{tasks.__name__}.answer"
    assert manage("migrate") == 0
    assert manage("run", "show", "0") == 8
    assert "there is no run 0" in capsys.readouterr().err
    assert os.environ["PGSCHED_DSN"] == "postgresql://nobody@127.0.0.1:1/nowhere", "only while the command runs"
    assert manage("run", "show", run.id, "--dsn", os.environ["PGSCHED_DSN"]) == 3, "a flag wins"


def test_it_checks_the_project_s_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert manage("check") in (0, 1)
    found = capsys.readouterr()
    assert "pgsched.contrib.django.project" in found.out + found.err


def test_call_command_raises_for_a_command_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("pgsched", "run", "list")
    with pytest.raises(CommandError, match="pgsched run show 0 failed") as failed:
        call_command("pgsched", "run", "show", "0")
    assert failed.value.returncode == 8


@pytest.mark.parametrize(
    ("options", "args", "line"),
    [
        ({"DATABASE": "lite"}, ["status"], "DATABASES['lite'] has the engine django.db.backends.sqlite3, and pgsched"),
        ({}, ["--backend", "mail", "status"], "backend: TASKS has no backend of pgsched named 'mail'; it has: default"),
        ({}, ["--database", "defalt", "status"], "DATABASES has no 'defalt'; did you mean default?"),
    ],
)
def test_what_is_wrong_is_one_line(
    options: Any, args: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"APP": "shop", **options}}}):
        assert manage(*args) == 2
    error = capsys.readouterr().err
    assert line in error and len(error.splitlines()) == 1


def test_a_project_without_tasks_has_the_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(TASKS={}):
        assert manage("job", "list") == 0


def test_wrong_options_start_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker without the project's tasks would be healthy, and run nothing."""
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"MAX_ATTEMPS": 3}}}):
        assert manage("run", "list") == 2
        line = (
            "TASKS['default']['OPTIONS']: MAX_ATTEMPS: no such option; known are DATABASE, APP, MAX_ATTEMPTS, MIGRATE"
        )
        assert line in capsys.readouterr().err


def test_a_connection_string_that_was_taken_off_the_command_line_wins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DSN, "postgresql://nobody@127.0.0.1:1/nowhere")
    assert manage("run", "list") == 3
    assert DSN not in os.environ, "not for the processes that it starts"
    assert manage("run", "list") == 0


def test_secrets_do_not_stay_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`manage.py` executes itself again without them, and says where they are."""
    seen: list[Any] = []

    def note(program: str, args: list[str], environ: dict[str, str]) -> None:
        seen.append((args, {name: environ.get(name) for name in (DSN, "PGSCHED_ALERT_APPRISE_TEAM-OPS")}))
        raise SystemExit(0)

    given = ["manage.py", "pgsched", "worker", "--dsn", "postgresql://u:hunter2@h/d", "--alert-apprise",
             "team-ops=slack://hunter2"]  # fmt: skip
    monkeypatch.setattr("os.execve", note)
    monkeypatch.setattr("sys.argv", given)
    monkeypatch.setattr("sys.orig_argv", ["python", "-X", "dev", *given])
    with pytest.raises(SystemExit):
        Command().run_from_argv(given)
    ((args, environ),) = seen
    assert args[1:] == ["-X", "dev", "manage.py", "pgsched", "worker", "--alert-apprise", "team-ops"]
    assert environ == {DSN: "postgresql://u:hunter2@h/d", "PGSCHED_ALERT_APPRISE_TEAM-OPS": "slack://hunter2"}


def test_several_backends_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    several = {name: {"BACKEND": BACKEND, "OPTIONS": {"APP": name, "DATABASE": database}}
               for name, database in (("mail", "default"), ("files", "lite"))}  # fmt: skip
    with override_settings(TASKS=several):
        assert manage("job", "list") == 2
        assert "backend: TASKS has several of pgsched: name one of mail, files" in capsys.readouterr().err
        assert manage("--backend=mail", "job", "list") == 0
