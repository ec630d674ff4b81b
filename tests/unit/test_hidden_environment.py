"""Variables that hold secrets are dropped from the environment, and pgsched's own code still reads them."""

from __future__ import annotations

import json
import os

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgsched import config, hidden_environment
from pgsched.cli.commands.worker import alert_settings
from pgsched.db.connection.connect import conninfo
from pgsched.worker.supervision import supervisor_link

HOLDS_ONE = ("connection string", "token", "password", "URL")


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process count as hidden, although it is not."""
    monkeypatch.setitem(hidden_environment._state, "hidden", True)
    monkeypatch.setattr(hidden_environment, "_kept", {})
    monkeypatch.setattr(os, "environ", {"HOME": "/"})


def test_every_variable_of_pgsched_is_classified_as_secret_or_not() -> None:
    """The description of a variable shows whether it holds a secret. A new secret must be in the list."""
    said = {name for name, what in config.ENVIRONMENT.items() if any(word in what for word in HOLDS_ONE)}
    assert said == {name for name in config.ENVIRONMENT if hidden_environment.SECRET.fullmatch(name)}
    more = ("DATABASE_URL", "PGPASSWORD", "PGSCHED_SQL_DSN_WAREHOUSE", "PGSCHED_TOKEN", "PGSCHED_API_KEY")
    assert [name for name in more if not hidden_environment.SECRET.fullmatch(name)] == []
    others = ("PATH", "PGHOST", "PGSCHED_HOME", "PGSCHED_RUN_ID", "PGPASSFILE")
    assert [name for name in others if hidden_environment.SECRET.fullmatch(name)] == []


def test_nothing_is_dropped_in_a_process_that_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PGSCHED_DSN": "host=a"})
    hidden_environment.drop()
    assert "PGSCHED_DSN" in os.environ and hidden_environment.dropped_secrets() == {}


@pytest.mark.usefixtures("hidden")
def test_dropped_secrets_are_found_by_our_own_code() -> None:
    given = {"PGSCHED_DSN": "host=a", "PGSCHED_SQL_DSN_W": "host=w", "PGSCHED_SQL_LOGIN": "host=l", "PGPASSWORD": "x"}
    os.environ.update(given)
    hidden_environment.drop()
    assert not {*given} & {*os.environ} and hidden_environment.dropped_secrets() == given
    assert config.find_dsn(None) == "host=a"
    assert config.find_sql_dsns(()) == {"w": "host=w"}
    assert config.find_sql_login(None) == "host=l"
    hidden_environment.drop()  # once more, as in a child process
    assert hidden_environment.dropped_secrets() == given


@pytest.mark.usefixtures("hidden")
def test_a_supervised_process_has_no_secrets_in_its_environment() -> None:
    env = {"HOME": "/", "PGSCHED_DSN": "host=a", "PGPASSWORD": "x", "PGSCHED_LOG": "debug"}
    public, secrets = hidden_environment.split_environment(env)
    assert public == {"HOME": "/", "PGSCHED_LOG": "debug"} and {**public, **secrets} == env
    started, first = supervisor_link.environment(env, 1, 7)
    assert {*started} == {*public, supervisor_link.VARIABLE} and json.loads(first) == secrets


def test_a_process_that_hides_nothing_passes_on_all_variables() -> None:
    assert hidden_environment.split_environment({"PGSCHED_DSN": "host=a"}) == ({"PGSCHED_DSN": "host=a"}, {})
    assert supervisor_link.environment({}, 1, 7)[1] == b""


def test_a_webhook_variable_set_after_the_command_line_is_read_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PGSCHED_ALERT_WEBHOOK": "http://a/x http://b/y"})
    assert alert_settings(None, None).webhooks == ("http://a/x", "http://b/y")
    assert alert_settings(["http://c/"], None).webhooks == ("http://c/",)


@pytest.mark.usefixtures("hidden")
def test_a_password_that_libpq_no_longer_finds_is_in_the_connection_string() -> None:
    os.environ["PGPASSWORD"] = "dropped"
    hidden_environment.drop()
    for dsn, password in (("host=a", "dropped"), ("host=a password=own", "own")):
        for text in conninfo(dsn, {}, None):
            assert conninfo_to_dict(text)["password"] == password
