"""Whoever may create functions in `public` gets no session of ours to call them (CVE-2018-1058)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched.cli import run as run_command
from pgsched.db.connection.connect import connect
from pgsched.db.connection.sealed import SEARCH_PATH
from pgsched.db.queries.runs import handler_transaction
from pgsched.db.schema.migrate import upgrade
from tests.support.hostile.short_life import live, make_app, ours
from tests.support.hostile.traps import Traps
from tests.support.logins import Logins, alone
from tests.support.working import work

pytestmark = pytest.mark.pg14


@pytest.fixture
def traps(logins: Logins, dsn: str) -> Iterator[Traps]:
    with ours(dsn) as admin:
        yield Traps(admin)


def test_no_statement_of_ours_calls_what_others_made(
    traps: Traps, logins: Logins, dsn: str, db: psycopg.Connection[Any]
) -> None:
    known = {
        "cardinality(text[])", "unnest(text[])", "width_bucket(bigint, bigint[])", "hashtextextended(text, integer)",
        "array_fill(bigint, integer[])", "format(text, regprocedure)", "jsonb_build_object(text, jsonb)",
        "utc(moment timestamp with time zone)",
    }  # fmt: skip
    assert known <= {*traps.signatures}
    for role in ("pgsched_leader", "pgsched_worker"):
        alone(lambda role=role: db.execute(f'GRANT {role} TO "{logins.name("worker")}"'.encode()))  # type: ignore[misc]
    alone(lambda: db.execute(f'GRANT "{logins.name("alice")}" TO "{logins.name("worker")}"'.encode()))
    alone(lambda: upgrade(dsn, with_roles=True))
    assert traps.caught() is None
    with ours(dsn) as own:
        life = live(
            own,
            worker_dsn=logins.dsn("worker"),
            operator_dsn=logins.dsn("ops"),
            producer_dsn=logins.dsn("alice"),
        )
        assert (traps.caught(), life.said) == (None, [])
    for command in ("status", "doctor", "check", "prune"):  # the superuser, too
        run_command([command, "--dsn", dsn])
        assert traps.caught() is None, command


def test_without_its_seal_a_settlement_in_a_handlers_session_is_caught(
    traps: Traps, dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = handler_transaction.SEAL.replace(f"search_path = {SEARCH_PATH}", "jit = off")
    monkeypatch.setattr(handler_transaction, "SEAL", cut)
    with ours(dsn) as own:
        own.execute("INSERT INTO pgsched.runs (task, max_attempts) VALUES ('own', 1)")
        work(dsn, make_app(dsn), traps.caught)
    assert traps.caught() == "width_bucket(bigint, bigint[])"


def test_the_traps_close_on_a_session_that_looks_into_public(traps: Traps, dsn: str) -> None:
    for statement in (
        "SELECT cardinality('{a}'::text[])",
        "SELECT hashtextextended('pgsched.leader', 0)",
        "SELECT '{a}'::text[] <> '{}'",
    ):
        with (
            connect(dsn, settings={"search_path": "pgsched,public"}) as conn,
            pytest.raises(psycopg.errors.RaiseException, match="caught: "),
        ):
            conn.execute(statement.encode())
        assert traps.caught()
