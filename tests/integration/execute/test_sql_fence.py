"""The statements of an SQL run are committed together with its success, and only by the run's current owner."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from pgsched.core.model import Outcome, Result
from pgsched.execute.sql import SqlExecutor
from tests.support.executing import claim, execute
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

LOST = "claim of run 1 is lost"


@pytest.fixture
def token(db: psycopg.Connection[Any]) -> UUID:
    """Make run 1, and return the token of its claim."""
    found = uuid4()
    db.execute(
        "INSERT INTO pgsched.runs (kind, task, state, token, lease_until) VALUES ('sql', 'x', 'running', %s, now())",
        [found],
    )
    db.execute("CREATE TABLE public.t (who text)")
    return found


@pytest.fixture
def stranger(db: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield a role without rights on the schema pgsched."""
    name = f"stranger_{uuid4().hex[:8]}"
    db.execute(f"CREATE ROLE {name}")
    yield name
    db.execute(f"DROP OWNED BY {name}")
    db.execute(f"DROP ROLE {name}")


def sql(dsn: str, token: UUID, text: str, owner: str, *, fenced: bool = True) -> Outcome:
    return execute(SqlExecutor(dsn, fenced=fenced), claim("sql", text, id=1, token=token, owner=owner))


def written(db: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in db.execute("SELECT who FROM public.t")]


def test_written_rows_and_the_success_of_the_run_are_committed_together(
    dsn: str, db: psycopg.Connection[Any], token: UUID
) -> None:
    assert sql(dsn, token, "INSERT INTO t VALUES ('me')", db.info.user).result is Result.SUCCEEDED
    assert written(db) == ["me"]
    run = db.execute("SELECT state, result FROM pgsched.runs").fetchone()
    assert run == ("succeeded", {"rowcount": 1}), "no worker has settled it"
    again = sql(dsn, token, "INSERT INTO t VALUES ('again')", db.info.user)
    assert LOST in (again.error or "") and written(db) == ["me"]


def test_a_zombie_commits_nothing(dsn: str, db: psycopg.Connection[Any], token: UUID) -> None:
    outcome = sql(dsn, uuid4(), "INSERT INTO t VALUES ('zombie')", db.info.user)
    assert outcome.result is Result.FAILED and LOST in (outcome.error or "")
    assert written(db) == []
    sql(dsn, uuid4(), "INSERT INTO t VALUES ('zombie')", db.info.user, fenced=False)
    assert written(db) == ["zombie"], "without the fence it does commit"


def test_a_claim_that_is_taken_away_while_the_statements_run_is_lost(
    dsn: str, db: psycopg.Connection[Any], token: UUID
) -> None:
    text = "INSERT INTO t VALUES ('late'); UPDATE pgsched.runs SET token = gen_random_uuid() WHERE id = 1"
    assert LOST in (sql(dsn, token, text, db.info.user).error or "")
    assert written(db) == []


def test_an_owner_without_rights_on_pgsched_commits_with_its_own_rights(
    dsn: str, db: psycopg.Connection[Any], token: UUID, stranger: str
) -> None:
    db.execute(
        f"""GRANT ALL ON public.t TO {stranger};
        CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'at the commit as %%', current_user; END $$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON public.t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.who = 'deferred') EXECUTE FUNCTION public.note()""".replace("%%", "%")
    )
    outcome = sql(dsn, token, "INSERT INTO t VALUES ('deferred')", stranger)
    assert f"at the commit as {stranger}" in (outcome.error or ""), "what runs at the commit has no more rights"
    assert db.execute("SELECT state FROM pgsched.runs").fetchone() == ("running",), "nor has it settled the run"
    assert sql(dsn, token, "INSERT INTO t VALUES (current_user)", stranger).error is None
    assert written(db) == [stranger]


@pytest.mark.long
def test_a_lease_renewal_fails_no_run_under_a_stricter_default_isolation(
    dsn: str, db: psycopg.Connection[Any], token: UUID
) -> None:
    db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_isolation = 'repeatable read'")
    asleep = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    beat = "UPDATE pgsched.runs SET lease_until = now()"
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(sql, dsn, token, "SELECT pg_sleep(2)", db.info.user)
        wait_until(lambda: db.execute(asleep).fetchone() is not None, 20, "the statement")
        db.execute(beat)
        assert work.result().error is None


ENDINGS = ("COMMIT; BEGIN", "COMMIT AND CHAIN", "ROLLBACK; BEGIN", "ROLLBACK AND CHAIN", "END; BEGIN", "ABORT")


@pytest.mark.parametrize("ending", ENDINGS)
def test_statements_that_go_on_in_another_transaction_fail_for_good(
    dsn: str, db: psycopg.Connection[Any], token: UUID, ending: str
) -> None:
    outcome = sql(dsn, token, f"INSERT INTO t VALUES ('before'); {ending}; SELECT 1", db.info.user)
    assert outcome.result is Result.FAILED and not outcome.retry, "each attempt would commit once more"
    assert "ended the transaction of their run" in (outcome.error or "")
    assert db.execute("SELECT state FROM pgsched.runs").fetchone() == ("running",), "another transaction has settled it"


@pytest.mark.parametrize("ending", ["COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN"])
def test_an_error_after_a_commit_is_not_retried(
    dsn: str, db: psycopg.Connection[Any], token: UUID, ending: str
) -> None:
    outcome = sql(dsn, token, f"INSERT INTO t VALUES ('before'); {ending}; SELECT 1/0", db.info.user)
    assert written(db) == ["before"] and not outcome.retry
    assert "ended the transaction" in (outcome.error or "") and "division by zero" in (outcome.error or "")


@pytest.mark.parametrize("ending", ["COMMIT; BEGIN", "ROLLBACK; BEGIN", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN"])
def test_statements_after_the_transaction_have_only_the_owner_s_rights(
    dsn: str, db: psycopg.Connection[Any], token: UUID, stranger: str, ending: str
) -> None:
    db.execute(f"GRANT ALL ON public.t TO {stranger}")
    sql(dsn, token, f"{ending}; INSERT INTO t VALUES (current_user); COMMIT", stranger)
    assert written(db) == [stranger]


def test_savepoints_are_part_of_the_transaction(dsn: str, db: psycopg.Connection[Any], token: UUID) -> None:
    text = "SAVEPOINT a; INSERT INTO t VALUES ('no'); ROLLBACK TO a; INSERT INTO t VALUES ('yes'); RELEASE a; BEGIN"
    assert sql(dsn, token, text, db.info.user).error is None
    assert written(db) == ["yes"]
