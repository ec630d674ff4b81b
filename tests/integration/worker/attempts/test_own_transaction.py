"""A handler that commits its own rows and the success of its run together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from pgsched import ClaimLost, InputError, Run, TaskError
from pgsched.app.control import Own
from pgsched.db.connection.handler_pool import idle
from pgsched.db.queries.runs import handler_transaction
from pgsched.worker.attempts import attempt
from tests.support.apps import contract
from tests.support.db.engines import url
from tests.support.db.setting import Aside, Open, cut, row_of, take
from tests.support.db.settling import TOKEN
from tests.support.serving import add, serve, state
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram
PLACES = ("loop", "thread", "process")
TRANSACTING = [*(f"transacts.{place}" for place in PLACES), "transacts_async.loop", "transacts_async.process"]


@pytest.fixture(autouse=True)
def tables(db: psycopg.Connection) -> None:
    db.execute(contract.TABLES)


def written(db: psycopg.Connection) -> list[str]:
    return [what for (what,) in db.execute("SELECT what FROM public.written ORDER BY what").fetchall()]


@pytest.mark.parametrize("task", TRANSACTING)
def test_the_handlers_rows_and_the_success_are_one_transaction(task: str, dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, task)
    worker = serve(dsn, lambda: state(db, run_id) == "succeeded")
    same = db.execute("SELECT w.xmin = r.xmin FROM public.written w, pgsched.runs r").fetchall()
    assert same == [(True,)]
    assert row_of(db, run_id)["result"] == {"of": "the block"}
    assert worker.verdicts == {"repeated": 1}
    assert db.execute("SELECT FROM pgsched.attempts").rowcount == 0


@pytest.mark.parametrize("task", TRANSACTING)
def test_a_handler_that_fails_inside_leaves_neither(task: str, dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, task, end="raises inside")
    serve(dsn, lambda: state(db, run_id) == "scheduled")
    assert written(db) == []
    assert row_of(db, run_id)["error"] == "RuntimeError: no"


@pytest.mark.parametrize(("place", "guarded"), [*((place, True) for place in PLACES), ("thread", False)])
def test_a_zombies_transaction_rolls_back(
    place: str, guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "settle_succeeded", TOKEN)
    run_id = add(db, f"transacts.{place}", end="waits inside")
    session = (
        "SELECT FROM pg_stat_activity WHERE application_name LIKE 'pgsched run %' AND datname = current_database()"
        " AND state "
    )

    inside = "LIKE 'idle in%' AND backend_xid IS NOT NULL"  # it has looked at its claim, and written

    def become_a_zombie() -> None:
        wait_until(lambda: db.execute(session + inside).rowcount, what="the transaction")
        db.execute("UPDATE pgsched.runs SET token = gen_random_uuid()")  # the reaper itself would wait for it
        db.execute("INSERT INTO public.written VALUES (0, 'go')")

    over = session + "<> 'idle'"  # while it waits it asks, and is active for a moment
    worker = serve(dsn, lambda: "go" in written(db) and not db.execute(over).rowcount, become_a_zombie, lease_s=60)
    assert written(db) == (["go"] if guarded else ["go", "inside"])
    assert worker.verdicts.keys() <= {"lost"}, "none if the last heartbeat was the first to be told"
    assert (state(db, run_id) == "running") is guarded


@pytest.mark.parametrize(("place", "guarded"), [*((place, True) for place in PLACES), ("thread", False)])
def test_a_handler_goes_on_after_its_transaction_although_the_claim_is_gone(
    place: str, guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat does not find the claim any more; that must not stop what the handler does afterwards."""
    if not guarded:
        monkeypatch.setattr(attempt.Running, "settling", lambda *_: None)
    run_id = add(db, f"transacts.{place}", end="goes on")
    beats = "SELECT count(*) FROM pgsched.workers WHERE seen_at > (SELECT finished_at FROM pgsched.runs) + '2 s'"

    def let_go() -> None:
        wait_until(lambda: state(db, run_id) == "succeeded", what="the settlement")
        if guarded and place != "loop":  # the handler on the loop is a plain one and blocks it
            wait_until(lambda: db.execute(beats).fetchone() == (1,), what="some heartbeats")
        if guarded:
            db.execute("INSERT INTO public.written VALUES (0, 'go')")

    serve(dsn, lambda: {"went on", "stopped"} & set(written(db)), let_go, lease_s=1.5)
    assert ("went on" in written(db)) is guarded
    assert state(db, run_id) == "succeeded"


@pytest.mark.parametrize("end", ["raises after", "well"])
@pytest.mark.parametrize("place", PLACES)
def test_what_comes_after_the_block_changes_nothing(place: str, end: str, dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, f"transacts.{place}", end=end)
    worker = serve(dsn, lambda: state(db, run_id) == "succeeded")
    assert worker.verdicts == {"repeated": 1}
    assert (row_of(db, run_id)["result"], row_of(db, run_id)["error"]) == ({"of": "the block"}, None)
    assert db.execute("SELECT FROM pgsched.attempts").rowcount == 0


def test_a_transaction_that_its_handler_rolls_back_settles_nothing(dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, "transacts.thread", end="rolls back")
    worker = serve(dsn, lambda: state(db, run_id) == "succeeded")
    assert (worker.verdicts, row_of(db, run_id)["result"], written(db)) == ({"succeeded": 1}, "returned", [])


@pytest.mark.parametrize("place", PLACES)
def test_only_one_transaction_can_settle_a_run(place: str, dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, f"twice.{place}")
    worker = serve(dsn, lambda: state(db, run_id) in ("succeeded", "scheduled", "dead"))
    assert worker.verdicts == {"repeated": 1}
    assert state(db, run_id) == "succeeded"


@pytest.mark.parametrize("guarded", [True, False])
def test_the_statement_of_a_handler_that_does_not_stop_is_cancelled(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:

        async def nothing(_: Any) -> None:
            pass

        monkeypatch.setattr(handler_transaction, "interrupt", nothing)
    run_id = add(db, "sleeps_in_sql.thread")
    db.execute("UPDATE pgsched.runs SET timeout = '1 s', kill_after = '0.2 s', max_attempts = 1")
    asleep = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    worker = serve(dsn, lambda: state(db, run_id) == "dead")
    assert worker.runner.executors["task"].abandoned == (0 if guarded else 1)
    assert bool(db.execute(asleep).rowcount) is not guarded
    assert (written(db), row_of(db, run_id)["error"]) == ([], "timed out after 1 s")
    db.execute(asleep.replace("SELECT", "SELECT pg_terminate_backend(pid)"))


def test_a_statement_is_cancelled_although_handlers_sit_in_all_threads_of_the_loop(
    connect: Open, db: psycopg.Connection
) -> None:
    asleep = connect()
    sleeping = Aside(lambda: asleep.execute("SELECT pg_sleep(60)"))
    go = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        sitting = asyncio.create_task(asyncio.to_thread(go.wait))
        pid = asleep.info.backend_pid
        look = "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = %s"
        wait_until(lambda: db.execute(look, [pid]).fetchone() == (True,), what="the statement to begin")
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(handler_transaction.interrupt(asleep), 5)
        finally:
            go.set()
            await sitting

    asyncio.run(main())
    with pytest.raises(psycopg.errors.QueryCanceled):
        sleeping.result()


# ---- the caller's own connection


@pytest.fixture
def run(db: psycopg.Connection, dsn: str) -> Run:
    add(db, "t")
    (claim,) = take(db)
    return Run(claim.id, None, None, 1, claim.token, own=Own(dsn=dsn))


def test_the_transaction_may_be_on_a_connection_of_the_handlers(
    run: Run, db: psycopg.Connection, connect: Open
) -> None:
    for mine in (connect(), connect(autocommit=False)):
        db.execute("UPDATE pgsched.runs SET state = 'running', finished_at = NULL")
        run.own.settled = False
        with run.transaction(mine) as conn:
            assert conn is mine
            contract.write(conn, run, "inside")
        assert state(db, run.id) == "succeeded"
        assert mine.execute("SHOW enable_seqscan").fetchone() == ("on",)
    assert written(db) == ["inside", "inside"]


def test_a_connection_that_is_in_a_transaction_or_none_is_refused(run: Run, connect: Open) -> None:
    busy = connect(autocommit=False)
    busy.execute("SELECT 1")
    with pytest.raises(InputError, match="in a transaction already"), run.transaction(busy):
        pass
    with pytest.raises(InputError, match="`with` needs a psycopg Connection, got str"), run.transaction("dsn"):
        pass

    async def within() -> None:
        async with run.transaction(connect()):
            pass

    with pytest.raises(InputError, match="`async with` needs a psycopg AsyncConnection, got Connection"):
        asyncio.run(within())


def test_an_isolation_that_the_renewal_of_the_lease_would_break_is_refused(
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


def test_a_result_belongs_into_the_transaction_and_is_json(run: Run) -> None:
    with pytest.raises(TaskError, match="only inside"):
        run.set_result(1)
    with pytest.raises(TaskError, match="object is not JSON"), run.transaction():
        run.set_result(object())


def test_a_result_goes_with_the_transaction_that_was_rolled_back(run: Run, db: psycopg.Connection) -> None:
    with pytest.raises(ZeroDivisionError), run.transaction():
        run.set_result({"paid": 5})
        raise ZeroDivisionError
    with run.transaction():
        pass
    assert row_of(db, run.id)["state"] == "succeeded"
    assert row_of(db, run.id)["result"] is None


def test_a_run_of_no_worker_has_no_database_of_its_own() -> None:
    run = Run(1, None, None, 1, uuid4())
    with pytest.raises(TaskError, match="belongs to no worker"), run.transaction():
        pass
    assert (run.deadline, run.seconds_left(), run.extend(5)) == (None, None, None)


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


def test_a_claim_asserted_for_no_time_is_refused(run: Run, db: psycopg.Connection) -> None:
    with pytest.raises(InputError, match="commits by itself"):
        run.assert_claim(db)
    with db.transaction():
        run.assert_claim(db)
    with pytest.raises(InputError, match="expected a psycopg or SQLAlchemy connection, got str"):
        run.assert_claim("dsn")


# ---- the time limit


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seconds", [30, 0.001])
def test_a_handler_can_extend_its_timeout(place: str, seconds: float, dsn: str, db: psycopg.Connection) -> None:
    before, runs = add(db, f"extends.{place}", seconds=30), list[int]()

    def meanwhile() -> None:
        """The limit takes in the start of a process: this one has run another attempt."""
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
    elif place != "loop":  # there it blocks the loop, and what was done in spite of the timeout counts
        assert (run["state"], run["error"]) == ("dead", "timed out after 2.001 s")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_an_extension_is_a_positive_time(seconds: float, run: Run) -> None:
    with pytest.raises(ValueError, match="extend: expected"):
        run.extend(seconds)


def test_connections_are_used_again_and_begin_as_new_ones_would(run: Run, dsn: str, db: psycopg.Connection) -> None:
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
    db.execute("SELECT pg_terminate_backend(%s)", [pids[0]])
    db.execute("UPDATE pgsched.runs SET state = 'running', finished_at = NULL")
    run.own.settled = False
    with run.transaction() as conn:
        assert conn.info.backend_pid != pids[0]
    asyncio.run(idle(dsn).close())


def test_a_connection_that_its_handler_closed_or_changed_is_not_used_again(
    run: Run, dsn: str, db: psycopg.Connection
) -> None:
    pids = []
    for spoil in (lambda conn: conn.execute("SELECT pg_terminate_backend(pg_backend_pid())"), lambda conn: None):
        with contextlib.suppress(psycopg.Error), run.transaction() as conn:
            pids.append(conn.info.backend_pid)
            spoil(conn)
        assert run.own.settled is (len(pids) == 2)
    assert len(set(pids)) == 2
    asyncio.run(idle(dsn).close())
