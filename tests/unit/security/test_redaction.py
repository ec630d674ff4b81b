"""Passwords appear in no log, and text from others cannot forge a line of a log."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pgsched import log
from pgsched.db.connection.connect import ssl_problem

SECRETS = (
    "postgresql://u:hunter2@h/db",
    "host=h password=hunter2 user=u",
    "host=h password = 'hunter2' user=u",
    "postgresql://h/db?user=u&password=hunter2",
    "PGPASSWORD=hunter2",
    '{"password": "hunter2"}',
    "sslpassword=hunter2",
)


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_no_password_is_logged_in_a_text_value_error_or_traceback(fmt: str, capsys: Any) -> None:
    log.configure(fmt=fmt)
    logger = log.get("test")
    for text in SECRETS:
        logger.info("as text", text=text)
        logger.info(text)
        logger.info("as an error", error=psycopg.OperationalError(text))
        logger.info("inside", values={"a": [text, (text,)]})
        try:
            raise ValueError(text)
        except ValueError:
            logger.exception("raised")
    said = capsys.readouterr().err
    assert "hunter2" not in said
    assert said.count("***") >= 5 * len(SECRETS)


def test_a_forged_line_stays_within_the_line_of_its_event(capsys: Any) -> None:
    log.configure(fmt="console")
    log.get("test").info("a\nb", task="x\n2026-01-01 [info] forged\x1b[2J", many=["\x9b", "\u202e"])
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "\\x1b[2J" in said
    assert not {"\x1b[2J", "\x9b", "\u202e"} & set(said) and "\x1b[2J" not in said
    log.configure(fmt="json")
    log.get("test").info("x", count=3, ok=True, none=None, name="é")
    found = json.loads(capsys.readouterr().err)
    assert (found["count"], found["ok"], found["none"], found["name"]) == (3, True, None, "é")


class To:
    """A connection that only knows its server and its encryption."""

    def __init__(self, host: str, encrypted: bool = False, hostaddr: str = "", **given: str) -> None:
        self.info: Any = type("Info", (), {"host": host, "hostaddr": hostaddr})()
        options = [SimpleNamespace(keyword=name.encode(), val=value.encode()) for name, value in given.items()]
        self.pgconn: Any = SimpleNamespace(ssl_in_use=encrypted, info=options)


def problem(*about: Any, **more: Any) -> str | None:
    conn: Any = To(*about, **more)
    return ssl_problem(conn)


def test_an_unencrypted_or_unverified_connection_gives_a_warning() -> None:
    for host in ("/run/postgresql", "localhost", "127.0.0.1", "::1", ""):
        assert problem(host) is None
    assert "is not encrypted" in str(problem("db.example.com"))
    assert "is not encrypted" in str(problem("10.0.0.7", sslmode="disable"))
    assert "sslmode=prefer does not ask" in str(problem("db.example.com", True))
    assert "sslmode=require does not ask" in str(problem("db.example.com", True, sslmode="require"))
    assert problem("db.example.com", True, sslmode="verify-full") is None
    assert problem("db.example.com", True, sslmode="verify-ca") is None
    assert problem("db.example.com", hostaddr="127.0.0.1") is None
