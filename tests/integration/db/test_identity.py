"""A run has a unique name outside its database, and a process of another fleet is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App, WrongFleet
from pgsched.core.model import Claim
from pgsched.db.connection.connect import connect as ours
from pgsched.db.connection.failures import Reaction, classify, explain_error
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.runs import claims, workers
from pgsched.db.schema.migrate import upgrade
from pgsched.execute.http.request import identity_headers
from tests.support.databases import Databases
from tests.support.db.setting import add_runs, cut, take
from tests.support.fleet import one
from tests.support.workers import registration

NAME = "SELECT pgsched.outside_name(r.id, r.created_at, r.reruns) FROM pgsched.runs r WHERE id = 1"
AGAIN = "INSERT INTO pgsched.runs (id, task, state, finished_at) VALUES (1, 't', 'dead', clock_timestamp())"
NEW_FLEET = "UPDATE pgsched.identity SET fleet = gen_random_uuid()"


def test_a_run_id_that_is_used_again_gets_another_outside_name(db: psycopg.Connection) -> None:
    db.execute(AGAIN)
    first = one(db, NAME)
    brought_back = "WITH gone AS (DELETE FROM pgsched.runs RETURNING id, created_at) SELECT created_at FROM gone"
    made_at = one(db, brought_back)
    db.execute(AGAIN)
    assert one(db, NAME) != first
    db.execute("UPDATE pgsched.runs SET created_at = %s", [made_at])
    assert one(db, NAME) == first, "what a backup brings back keeps its name"


def test_two_databases_give_two_names(db: psycopg.Connection, databases: Databases) -> None:
    at = "SELECT pgsched.outside_name(1, '2026-05-01 12:00:00.000001Z')"
    with databases.one() as dsn, psycopg.connect(dsn, autocommit=True) as other:
        other.execute("DELETE FROM pgsched.identity")  # the tests' databases are copies of one, with its identity
        upgrade(dsn)
        assert one(db, at) != one(other, at)
    assert one(db, at).endswith("-1-1777636800000001")


@pytest.mark.parametrize("state", ["dead", "cancelled"])
def test_a_retried_run_gets_another_outside_name(state: str, db: psycopg.Connection) -> None:
    db.execute(AGAIN)
    db.execute("UPDATE pgsched.runs SET state = %s", [state])
    first = one(db, NAME)
    db.execute("SELECT pgsched.retry(1)")
    assert one(db, NAME) == f"{first}-1"


def test_only_claims_of_http_runs_hold_the_outside_name(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (kind, task) VALUES ('http', 'https://example.org/'), ('shell', 'true')")
    rows = db.execute(claims.sql("claim_start"), {
        "queue": "default", "n": 9, "places": 9, "token": uuid4(), "worker_id": 1, "lease_s": 30.0, "named": False,
        "tasks": [], "kinds": ["http", "shell"],
    })  # fmt: skip
    columns = [column.name for column in rows.description or ()]
    found = {row[columns.index("id")]: row[columns.index("outside_name")] for row in rows.fetchall()}
    assert found == {1: one(db, NAME), 2: None}


def test_the_idempotency_key_of_a_request_is_its_runs_outside_name() -> None:
    claim = Claim(7, uuid4(), 2, 3, "q", 5, "http", "https://example.org/", {}, outside_name="d-7-1")
    assert identity_headers(claim)["Idempotency-Key"] == "d-7-1"
    assert identity_headers(claim)["X-Pgsched-Run-Id"] == "7"


def test_two_archived_runs_with_one_id_stop_no_pruning(db: psycopg.Connection) -> None:
    for _ in range(2):
        db.execute(AGAIN)
        values = {"ids": "{1}", "archive": True, "tell": False}
        assert db.execute(claims.sql("prune_delete"), values).fetchall()[0][0] == 1
    names = db.execute("SELECT count(DISTINCT outside_name), count(*) FROM pgsched.archived_runs").fetchone()
    assert names == (2, 2)


# ---- fleets


def registers(conn: psycopg.Connection[Any]) -> object:
    return workers.insert_worker(conn, registration())


def beats(conn: psycopg.Connection[Any]) -> object:
    return claims.heartbeat(conn, one(conn, "SELECT min(id) FROM pgsched.workers"), 30.0, [], name="w")


def leads(conn: psycopg.Connection[Any]) -> object:
    return leadership.newest_term(conn)


@pytest.mark.parametrize(
    ("does", "statement", "guard"),
    [
        (registers, "worker_start", ", pgsched.assert_fleet(%(fleet)s::uuid) AS fleet"),
        (beats, "heartbeat", ", pgsched.assert_fleet(%(fleet)s::uuid)"),
        (leads, "leader_term", ", pgsched.assert_fleet(%(fleet)s::uuid) AS fleet"),
    ],
)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_process_that_reaches_another_fleets_database_is_refused(
    guarded: bool,
    does: Callable[[psycopg.Connection[Any]], object],
    statement: str,
    guard: str,
    dsn: str,
    db: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not guarded:
        instead = ", NULL::uuid AS fleet" if guard.endswith("fleet") else ""
        cut(monkeypatch, statement, guard, instead)
    with ours(dsn, purpose="test") as conn:
        registers(conn)
        does(conn)
        # From now on the session is in another fleet's database, as if a pooler had moved it without a new connection.
        with ours(dsn, purpose="another") as other:
            other.execute(NEW_FLEET)
        if not guarded:
            does(conn)
            return
        with pytest.raises(psycopg.Error) as refused:
            does(conn)
    assert classify(refused.value) is Reaction.CONFIGURATION
    told = explain_error(refused.value)
    assert isinstance(told, WrongFleet)
    assert told.exit_code == 13


def test_an_enqueue_with_a_key_is_refused_by_another_fleet_and_makes_nothing(app: App, db: psycopg.Connection) -> None:
    @app.task(name="t")
    def task() -> None: ...

    task.options(unique_key="k").enqueue()
    db.execute(NEW_FLEET)
    with pytest.raises(WrongFleet, match="is of the fleet"):
        task.options(unique_key="other").enqueue()
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 1
    task.enqueue()


def test_pgsched_fleet_names_the_fleet_of_a_process(
    app: App, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="t")
    def task() -> None: ...

    monkeypatch.setenv("PGSCHED_FLEET", str(uuid4()))
    with pytest.raises(WrongFleet):
        task.options(unique_key="k").enqueue()
    monkeypatch.setenv("PGSCHED_FLEET", str(one(db, "SELECT fleet FROM pgsched.identity")))
    task.options(unique_key="k").enqueue()
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 1


def test_migrate_gives_a_schema_restored_without_rows_an_identity(dsn: str, db: psycopg.Connection) -> None:
    db.execute("DELETE FROM pgsched.identity")
    assert one(db, "SELECT pgsched.outside_name(1, now())") is None
    registers(db)
    upgrade(dsn)
    assert one(db, "SELECT count(*) FROM pgsched.identity") == 1


def test_a_claim_of_a_python_task_has_no_outside_name(db: psycopg.Connection) -> None:
    add_runs(db, 1)
    assert take(db)[0].outside_name is None
