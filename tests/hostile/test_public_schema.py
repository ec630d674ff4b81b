"""No session of pgsched calls functions that other logins created in `public` (CVE-2018-1058)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from pgsched import App, PgschedError
from pgsched.cli import run as run_command
from pgsched.db.callers import calls
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


@pytest.mark.long
def test_no_statement_of_pgsched_calls_functions_of_other_logins(
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
    for command in ("status", "doctor", "check", "prune"):  # also as superuser
        run_command([command, "--dsn", dsn])
        assert traps.caught() is None, command


@pytest.mark.long
def test_without_its_seal_a_settlement_in_a_handlers_session_is_caught(
    traps: Traps, dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = handler_transaction.SEAL.replace(f"search_path = {SEARCH_PATH}", "jit = off")
    monkeypatch.setattr(handler_transaction, "SEAL", cut)
    with ours(dsn) as own:
        own.execute("INSERT INTO pgsched.runs (task, max_attempts) VALUES ('own', 1)")
        work(dsn, make_app(dsn), traps.caught)
    assert traps.caught() == "width_bucket(bigint, bigint[])"


def use_handles(app: App, mine: psycopg.Connection[Any]) -> None:
    """Use the handles of a run and of a job on the caller's connection."""
    run, job = app.run(mine.execute("SELECT pgsched.enqueue('t')").fetchone()[0]), app.jobs["nightly"]  # type: ignore[index]
    run.info(connection=mine)
    run.update(priority=1, at=datetime(2040, 1, 1, tzinfo=UTC), queue="q", connection=mine)
    app.runs(connection=mine, tag="a", error="b", since="1h", worker="w")
    run.cancel("why", connection=mine)
    run.retry(connection=mine)
    run.logs(connection=mine)
    job.info(connection=mine)
    job.update(priority=1, connection=mine)
    job.pause(connection=mine)
    job.resume(connection=mine)
    job.preview(connection=mine)
    job.explain(connection=mine)
    job.trigger(connection=mine)
    job.delete(connection=mine)


@pytest.mark.long
@pytest.mark.parametrize("sealed", [True, False])
def test_handles_on_a_callers_session_call_no_functions_of_other_logins(
    traps: Traps, dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '@daily')")
    if not sealed:
        monkeypatch.setattr(calls, "SEAL", calls.SEAL.replace("pg_catalog,pg_temp", "public,pg_catalog"))
    app = App("test", dsn=dsn)
    with psycopg.connect(dsn, autocommit=True) as mine:
        mine.execute("SET search_path = pg_catalog, public")
        if sealed:
            use_handles(app, mine)
        else:
            with pytest.raises((PgschedError, psycopg.Error), match="caught: "):
                use_handles(app, mine)
    assert (traps.caught() is None) is sealed
    app.close()


@pytest.mark.long
def test_the_traps_catch_a_session_with_public_in_its_search_path(traps: Traps, dsn: str) -> None:
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
