"""A handler's transactions and asserted claims, on its own or on kept connections, and its time limit."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from pgsched import ClaimLost, InputError, Run, TaskError
from pgsched.app.control import AttemptState
from pgsched.db.connection.connect import BY_KEY
from pgsched.db.connection.handler_pool import idle
from pgsched.db.queries.runs import handler_transaction
from tests.support.apps import contract
from tests.support.db.engines import url
from tests.support.db.setting import Open, row_of, take
from tests.support.serving import PLACES, add, serve, state, written
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.scram, pytest.mark.usefixtures("tables")]


# ---- the caller's own connection


@pytest.fixture
def run(db: psycopg.Connection, dsn: str) -> Run:
    add(db, "t")
    (claim,) = take(db)
    return Run(claim.id, None, None, 1, claim.token, own=AttemptState(dsn=dsn))


def test_the_transaction_can_use_a_connection_of_the_handler(run: Run, db: psycopg.Connection, connect: Open) -> None:
    for mine in (connect(), connect(autocommit=False)):
        db.execute("UPDATE pgsched.runs SET state = 'running', finished_at = NULL")
        run.own.settled = False
        with run.transaction(mine) as conn:
            assert conn is mine
            contract.write(conn, run, "inside")
        assert state(db, run.id) == "succeeded"
        assert mine.execute("SHOW enable_seqscan").fetchone() == ("on",)
    assert written(db) == ["inside", "inside"]


def test_deferred_triggers_run_with_the_settings_of_the_handler(
    run: Run, db: psycopg.Connection, connect: Open
) -> None:
    names = ["search_path", *BY_KEY]
    db.execute(
        """
        CREATE TABLE public.seen (name text, value text);
        CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.seen SELECT s.name, pg_catalog.current_setting(s.name) FROM public.names s;
            RETURN NULL;
        END $$;
        CREATE TABLE public.names (name text);
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON public.names DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.name = 'jit') EXECUTE FUNCTION public.see()"""
    )
    own = connect()
    with run.transaction(own) as conn:
        conn.execute("SET LOCAL enable_hashjoin = off; SET LOCAL search_path = public")
        before = {name: conn.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names}
        conn.execute("INSERT INTO public.names SELECT unnest(%s::text[])", [names])
    assert state(db, run.id) == "succeeded"
    seen = {name: (value,) for name, value in db.execute("SELECT name, value FROM public.seen")}
    assert seen == before


def test_a_busy_connection_or_no_connection_is_refused(run: Run, connect: Open) -> None:
    busy = connect(autocommit=False)
    busy.execute("SELECT 1")
    with pytest.raises(InputError, match="in a transaction already"), run.transaction(busy):
        pass
    with (
        pytest.raises(InputError, match="`with` needs a psycopg Connection, got object"),
        run.transaction(object()),
    ):
        pass

    async def within() -> None:
        async with run.transaction(connect()):
            pass

    with pytest.raises(InputError, match="`async with` needs a psycopg AsyncConnection, got Connection"):
        asyncio.run(within())


def test_an_isolation_level_that_a_lease_renewal_would_break_is_refused(
    run: Run, dsn: str, db: psycopg.Connection, connect: Open
) -> None:
    strict = connect(autocommit=False)
    strict.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(InputError, match="repeatable read"), run.transaction(strict):
        pass

    async def within() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await conn.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
            async with run.transaction(conn):
                pass

    with pytest.raises(InputError, match="serializable"):
        asyncio.run(within())
    with strict.transaction():
        run.assert_claim(strict)
        db.execute("UPDATE pgsched.runs SET lease_until = now()")
        with pytest.raises(psycopg.errors.SerializationFailure), strict.transaction():
            handler_transaction.settle(strict, run.id, run.token, None)


def test_a_result_is_set_inside_the_transaction_and_must_be_json(run: Run) -> None:
    with pytest.raises(TaskError, match="only inside"):
        run.set_result(1)
    with pytest.raises(TaskError, match="object is not JSON"), run.transaction():
        run.set_result(object())


def test_a_result_is_dropped_when_its_transaction_is_rolled_back(run: Run, db: psycopg.Connection) -> None:
    with pytest.raises(ZeroDivisionError), run.transaction():
        run.set_result({"paid": 5})
        raise ZeroDivisionError
    with run.transaction():
        pass
    assert row_of(db, run.id)["state"] == "succeeded"
    assert row_of(db, run.id)["result"] is None


def test_a_run_that_belongs_to_no_worker_has_no_database() -> None:
    run = Run(1, None, None, 1, uuid4())
    with pytest.raises(TaskError, match="belongs to no worker"), run.transaction():
        pass
    assert (run.deadline, run.seconds_left(), run.extend(5)) == (None, None, None)
    assert run.extend(timedelta(minutes=1)) is None


# ---- assert_claim


@pytest.mark.parametrize("lost", [False, True])
def test_the_claim_is_asserted_on_every_kind_of_connection(
    lost: bool, run: Run, dsn: str, db: psycopg.Connection, connect: Open
) -> None:
    if lost:
        db.execute("UPDATE pgsched.runs SET token = gen_random_uuid()")
    expected = pytest.raises(ClaimLost, match="claim of run 1 is lost") if lost else contextlib.nullcontext()
    with expected:
        run.assert_claim(connect(autocommit=False))
    with sqlalchemy.create_engine(url("psycopg", dsn)).connect() as conn, expected:
        run.assert_claim(conn)
    with sqlalchemy.orm.Session(sqlalchemy.create_engine(url("psycopg", dsn))) as session, expected:
        run.assert_claim(session)

    async def asynchronously() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            with expected:
                await run.assert_claim(conn)
        engine = create_async_engine(url("psycopg", dsn))
        async with engine.connect() as connection:
            with expected:
                await run.assert_claim(connection)
        async with AsyncSession(engine) as session:
            with expected:
                await run.assert_claim(session)
        await engine.dispose()

    asyncio.run(asynchronously())


def test_a_claim_cannot_be_asserted_without_a_transaction(run: Run, db: psycopg.Connection) -> None:
    with pytest.raises(InputError, match="commits by itself"):
        run.assert_claim(db)
    with db.transaction():
        run.assert_claim(db)
    with pytest.raises(InputError, match="expected a psycopg, SQLAlchemy or Django connection, got object"):
        run.assert_claim(object())


# ---- the time limit


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seconds", [30, 0.001])
def test_a_handler_can_extend_its_timeout(place: str, seconds: float, dsn: str, db: psycopg.Connection) -> None:
    before, runs = add(db, f"extends.{place}", seconds=30), list[int]()

    def meanwhile() -> None:
        """Add the run once its process has made another attempt, because the limit includes the start of a process."""
        wait_until(lambda: state(db, before) == "succeeded", 60, "the one before")
        with db.transaction():
            runs.append(add(db, f"extends.{place}", seconds=seconds))
            db.execute("UPDATE pgsched.runs SET timeout = '2 s', max_attempts = 1 WHERE id = %s", runs)

    serve(dsn, lambda: state(db, runs[0]) in ("succeeded", "dead"), meanwhile)
    run = row_of(db, runs[0])
    if seconds > 1:
        assert run["state"] == "succeeded"
        left, extended = run["result"]
        assert 0 < left <= 2 and left + seconds - 1 < extended <= left + seconds
    elif place != "loop":  # there the handler blocks the loop, and its success counts despite the timeout
        assert (run["state"], run["error"]) == ("dead", "timed out after 2.001 s")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), timedelta(0)])
def test_an_extension_is_a_positive_time(seconds: float | timedelta, run: Run) -> None:
    with pytest.raises(ValueError, match="extend: expected"):
        run.extend(seconds)


def test_connections_are_used_again_and_begin_like_new_connections(run: Run, dsn: str, db: psycopg.Connection) -> None:
    pids = []
    for _ in range(3):
        db.execute("UPDATE pgsched.runs SET state = 'running', finished_at = NULL")
        run.own.settled = False
        with run.transaction() as conn:
            pids.append(conn.info.backend_pid)
            left = "SELECT current_setting('work_mem'), to_regclass('pg_temp.t'), current_setting('lock_timeout')"
            assert conn.execute(left).fetchone() == ("4MB", None, "0")
            conn.row_factory = psycopg.rows.dict_row
            conn.execute("SET work_mem = '1MB'; SET lock_timeout = 5; CREATE TEMP TABLE t (n int);")
            conn.execute("SELECT pg_advisory_lock(5)")
    assert len(set(pids)) == 1
    db.execute("SELECT pg_terminate_backend(%s, 10000)", [pids[0]])
    db.execute("UPDATE pgsched.runs SET state = 'running', finished_at = NULL")
    run.own.settled = False
    with run.transaction() as conn:
        assert conn.info.backend_pid != pids[0]
    asyncio.run(idle(dsn).close())


def test_a_connection_that_its_handler_closed_is_not_used_again(run: Run, dsn: str, db: psycopg.Connection) -> None:
    pids = []
    for spoil in (lambda conn: conn.execute("SELECT pg_terminate_backend(pg_backend_pid())"), lambda conn: None):
        with contextlib.suppress(psycopg.Error), run.transaction() as conn:
            pids.append(conn.info.backend_pid)
            spoil(conn)
        assert run.own.settled is (len(pids) == 2)
    assert len(set(pids)) == 2
    asyncio.run(idle(dsn).close())
