"""SQL jobs: one transaction, the owner's role, parameters, floods, and real cancel requests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim, Outcome, Result
from pgsched.execute.sql import SqlExecutor
from tests.support.executing import cancel_when, claim, execute
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

RUNNING = "FROM pg_stat_activity WHERE application_name LIKE 'pgsched sql run%' AND datname = current_database()"


def mine(dsn: str, text: str, args: Any = None, **more: Any) -> Claim:
    """Return a claim of a run, owned by the tests' login role unless `more` names another owner."""
    with psycopg.connect(dsn) as conn:
        return claim("sql", text, args, **{"owner": conn.info.user} | more)


def sql(dsn: str, text: str, args: Any = None, **more: Any) -> Outcome:
    return execute(SqlExecutor(dsn), mine(dsn, text, args, **more))


def test_statements_without_an_owner_are_not_run(dsn: str) -> None:
    outcome = sql(dsn, "SELECT 1", owner=None)
    assert outcome.result is Result.FAILED and not outcome.retry
    assert (outcome.error or "").startswith("owner: ")


def test_a_statement_that_cannot_run_in_a_transaction_is_not_retried(dsn: str) -> None:
    outcome = sql(dsn, "VACUUM")
    assert outcome.result is Result.FAILED and not outcome.retry
    assert "cannot run inside a transaction block" in (outcome.error or "")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT 1 WHERE 'abc' LIKE 'a%' AND %(x)s = 1", "a run with args writes a percent sign as %%"),
        ("SELECT %(y)s", "query parameter missing: y"),
    ],
)
def test_arguments_that_do_not_fit_the_statement_are_not_retried(text: str, error: str, dsn: str) -> None:
    outcome = sql(dsn, text, {"x": 1})
    assert (outcome.result, outcome.retry) == (Result.FAILED, False)
    assert (outcome.error or "").endswith(error)
    assert sql(dsn, "SELECT 1 WHERE 'abc' LIKE 'a%%' AND %(x)s = 1", {"x": 1}).value == {"rowcount": 1}
    assert sql(dsn, "SELECT 1 WHERE 'abc' LIKE 'a%'").value == {"rowcount": 1}


@pytest.fixture
def table(db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    db.execute("CREATE TABLE public.t (n integer UNIQUE, s text)")
    return db


def rows(db: psycopg.Connection[Any]) -> list[Any]:
    return db.execute("SELECT n, s FROM public.t ORDER BY n").fetchall()


def test_several_statements_run_in_one_transaction(dsn: str, table: psycopg.Connection[Any]) -> None:
    outcome = sql(dsn, "INSERT INTO t SELECT generate_series(1, 5); DELETE FROM t WHERE n % 2 = 0;")
    assert (outcome.result, outcome.value) == (Result.SUCCEEDED, {"rowcount": 7})
    assert [n for n, _ in rows(table)] == [1, 3, 5]


def test_a_failure_leaves_nothing_and_says_why(dsn: str, table: psycopg.Connection[Any]) -> None:
    outcome = sql(dsn, "INSERT INTO t VALUES (1); SELECT 1/0; INSERT INTO t VALUES (2)")
    assert (outcome.result, outcome.error, outcome.retry) == (Result.FAILED, "DivisionByZero: division by zero", True)
    assert rows(table) == []


def test_parameters_are_values_and_never_code(dsn: str, table: psycopg.Connection[Any]) -> None:
    hostile = "'); DROP TABLE t; -- $(x) %s"
    outcome = sql(dsn, "INSERT INTO t VALUES (%(n)s, %(s)s); SELECT 10 %% 3", {"n": 1, "s": hostile})
    assert outcome.result is Result.SUCCEEDED and rows(table) == [(1, hostile)]


def test_without_parameters_a_percent_sign_is_itself(dsn: str, table: psycopg.Connection[Any]) -> None:
    assert sql(dsn, "INSERT INTO t VALUES (10 % 4, '%(n)s 100%')").result is Result.SUCCEEDED
    assert rows(table) == [(2, "%(n)s 100%")]


def test_a_missing_parameter_is_a_failure(dsn: str) -> None:
    assert "n" in (sql(dsn, "SELECT %(n)s", {"m": 1}).error or "")
    assert sql(dsn, "SELECT 1", [1]).retry is False


def test_lists_and_objects_arrive_as_json(dsn: str, table: psycopg.Connection[Any]) -> None:
    assert sql(dsn, "INSERT INTO t VALUES (1, %(v)s ->> 'a')", {"v": {"a": [1]}}).result is Result.SUCCEEDED
    assert rows(table) == [(1, "[1]")]


def test_statements_run_as_the_jobs_owner(dsn: str, table: psycopg.Connection[Any]) -> None:
    role = f"pgsched_test_{table.info.dbname[-8:]}"
    table.execute(f"CREATE ROLE {role}")
    try:
        table.execute(f"GRANT ALL ON public.t TO {role}")
        assert sql(dsn, "INSERT INTO t VALUES (1, current_user)", owner=role).result is Result.SUCCEEDED
        assert rows(table) == [(1, role)]
        refused = sql(dsn, "SELECT * FROM pgsched.leader", owner=role)
        assert (refused.error or "").startswith("InsufficientPrivilege: permission denied")
    finally:
        table.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_the_login_role_can_be_the_owner_and_an_unknown_role_cannot(dsn: str, db: psycopg.Connection[Any]) -> None:
    assert sql(dsn, "SELECT 1", owner=db.info.user).result is Result.SUCCEEDED
    assert "does not exist" in (sql(dsn, "SELECT 1", owner="nobody_at_all").error or "")


def test_statements_that_end_their_transaction_are_a_failure(dsn: str) -> None:
    for text in ("SELECT 1; COMMIT", "SELECT 1; COMMIT; BEGIN"):
        outcome = sql(dsn, text)
        assert "ended the transaction" in (outcome.error or "") and not outcome.retry


def test_copy_to_or_from_the_client_fails(dsn: str, table: psycopg.Connection[Any]) -> None:
    assert "COPY" in (sql(dsn, "COPY t FROM STDIN").error or "")
    assert "COPY" in (sql(dsn, "COPY (SELECT generate_series(1, 1000000)) TO STDOUT").error or "")


FLOOD = """
import asyncio, sys, uuid
from pgsched.execute.sql import SqlExecutor
from pgsched.core.model import Claim
text = "SELECT repeat('x', 10000) FROM generate_series(1, 30000)"
claim = Claim(1, uuid.uuid4(), 1, 1, "default", 5, "sql", text, {}, owner=sys.argv[2])
print(asyncio.run(SqlExecutor(sys.argv[1]).execute(claim)).value["rowcount"])
# not getrusage: its peak counts the process that this one was forked from
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from Linux's /proc")
def test_a_flood_of_rows_is_counted_and_not_kept(dsn: str, db: psycopg.Connection[Any]) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", FLOOD, dsn, db.info.user], capture_output=True, text=True, check=True
    ).stdout
    count, peak_kb = map(int, shown.split())
    assert count == 30_000 and peak_kb < 200_000  # the rows are 300 MB


def test_notices_become_the_log_and_are_bounded(dsn: str) -> None:
    text = "DO $$ BEGIN FOR i IN 1..20000 LOOP RAISE NOTICE 'step %', i; END LOOP; END $$"
    log = sql(dsn, text).log_tail or ""
    assert log.startswith("step 1\n") and log.endswith("step 20000\n") and "bytes cut" in log


def test_an_unreachable_server_is_a_failure() -> None:
    nowhere = "host=127.0.0.1 port=1 connect_timeout=1"
    outcome = execute(SqlExecutor(nowhere), claim("sql", "SELECT 1", owner="somebody"))
    assert outcome.retry and (outcome.error or "").startswith("DatabaseUnreachable: ")


def test_cancelling_stops_the_statement_on_the_server(dsn: str, table: psycopg.Connection[Any]) -> None:
    given = mine(dsn, "INSERT INTO t VALUES (1); SELECT pg_sleep(3600)")
    asleep = "SELECT 1 " + RUNNING + " AND wait_event = 'PgSleep'"
    stopped = cancel_when(SqlExecutor(dsn), given, lambda: table.execute(asleep).fetchone())
    assert isinstance(stopped, asyncio.CancelledError)
    wait_until(lambda: table.execute("SELECT 1 " + RUNNING).fetchone() is None, what="the end of the session")
    assert rows(table) == []


STUBBORN = """
DO $$ BEGIN
    LOOP
        BEGIN
            PERFORM pg_sleep(3600);
        EXCEPTION WHEN query_canceled THEN NULL;
        END;
    END LOOP;
END $$
"""


@pytest.mark.parametrize(("kill_after_s", "times"), [(0.2, 1), (3600, 2)])
def test_a_statement_that_traps_its_cancellation_is_terminated(
    dsn: str, db: psycopg.Connection[Any], kill_after_s: float, times: int
) -> None:
    given = mine(dsn, STUBBORN, kill_after_s=kill_after_s)
    asleep = "SELECT 1 " + RUNNING + " AND wait_event = 'PgSleep'"
    stopped = cancel_when(SqlExecutor(dsn), given, lambda: db.execute(asleep).fetchone(), times)
    assert isinstance(stopped, asyncio.CancelledError)
    wait_until(lambda: db.execute("SELECT 1 " + RUNNING).fetchone() is None, what="the end of the session")


def test_a_commit_that_was_made_despite_a_stop_counts_as_a_success(dsn: str, table: psycopg.Connection[Any]) -> None:
    """Otherwise a run that timed out during its COMMIT would write everything again on a named database."""
    table.execute(
        """CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON public.t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION public.slow()"""
    )
    asleep = "SELECT 1 " + RUNNING + " AND wait_event = 'PgSleep'"
    given = mine(dsn, "INSERT INTO t VALUES (1)")
    with pytest.raises(AssertionError, match="it was not cancelled"):
        cancel_when(SqlExecutor(dsn), given, lambda: table.execute(asleep).fetchone())
    assert rows(table) == [(1, None)]
