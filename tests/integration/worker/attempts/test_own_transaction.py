"""A handler can commit its own rows and the success of its run in one transaction."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.runs import handler_transaction
from pgsched.worker.attempts import attempt
from tests.support.db.setting import Aside, Open, cut, row_of
from tests.support.db.settling import TOKEN
from tests.support.serving import PLACES, add, serve, state, written
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.scram, pytest.mark.usefixtures("tables")]

TRANSACTING = [*(f"transacts.{place}" for place in PLACES), "transacts_async.loop", "transacts_async.process"]


@pytest.mark.few(2)
@pytest.mark.parametrize("task", TRANSACTING)
def test_the_handlers_rows_and_the_success_are_one_transaction(task: str, dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, task)
    worker = serve(dsn, lambda: state(db, run_id) == "succeeded")
    same = db.execute("SELECT w.xmin = r.xmin FROM public.written w, pgsched.runs r").fetchall()
    assert same == [(True,)]
    assert row_of(db, run_id)["result"] == {"of": "the block"}
    assert worker.verdicts == {"repeated": 1}
    assert db.execute("SELECT FROM pgsched.attempts").rowcount == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("task", TRANSACTING)
def test_a_handler_that_fails_inside_the_transaction_commits_nothing(
    task: str, dsn: str, db: psycopg.Connection
) -> None:
    run_id = add(db, task, end="raises inside")
    serve(dsn, lambda: state(db, run_id) == "scheduled")
    assert written(db) == []
    assert row_of(db, run_id)["error"] == "RuntimeError: no"


@pytest.mark.few(2)
@pytest.mark.parametrize(("place", "guarded"), [*((place, True) for place in PLACES), ("thread", False)])
def test_the_transaction_of_a_zombie_is_rolled_back(
    place: str, guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "settle_succeeded", TOKEN)
    run_id = add(db, f"transacts.{place}", end="waits inside")
    session = (
        "SELECT FROM pg_stat_activity WHERE application_name LIKE 'pgsched run %' AND datname = current_database()"
        " AND state "
    )

    inside = "LIKE 'idle in%' AND backend_xid IS NOT NULL"  # the handler has checked its claim, and written

    def become_a_zombie() -> None:
        wait_until(lambda: db.execute(session + inside).rowcount, what="the transaction")
        db.execute(
            "UPDATE pgsched.runs SET token = gen_random_uuid()"
        )  # the reaper itself would wait for the transaction
        db.execute("INSERT INTO public.written VALUES (0, 'go')")

    over = session + "<> 'idle'"  # also active: a handler that waits asks now and then
    worker = serve(dsn, lambda: "go" in written(db) and not db.execute(over).rowcount, become_a_zombie, lease_s=60)
    assert written(db) == (["go"] if guarded else ["go", "inside"])
    assert worker.verdicts.keys() <= {"lost"}, "none if the last heartbeat was the first to be told"
    assert (state(db, run_id) == "running") is guarded


@pytest.mark.few(1)
@pytest.mark.parametrize(("place", "guarded"), [*((place, True) for place in PLACES), ("thread", False)])
def test_a_handler_goes_on_after_its_transaction_although_the_claim_is_gone(
    place: str, guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat no longer finds the claim. That must not stop what the handler does afterwards."""
    if not guarded:
        monkeypatch.setattr(attempt.RunningAttempt, "settling", lambda *_: None)
    run_id = add(db, f"transacts.{place}", end="goes on")
    beats = "SELECT count(*) FROM pgsched.workers WHERE seen_at > (SELECT finished_at FROM pgsched.runs) + '2 s'"

    def let_go() -> None:
        wait_until(lambda: state(db, run_id) == "succeeded", what="the settlement")
        if guarded and place != "loop":  # on the loop, the handler is a plain function and blocks the loop
            wait_until(lambda: db.execute(beats).fetchone() == (1,), what="some heartbeats")
        if guarded:
            db.execute("INSERT INTO public.written VALUES (0, 'go')")

    serve(dsn, lambda: {"went on", "stopped"} & set(written(db)), let_go, lease_s=1.5)
    assert ("went on" in written(db)) is guarded
    assert state(db, run_id) == "succeeded"


@pytest.mark.few(4)
@pytest.mark.parametrize("end", ["raises after", "well"])
@pytest.mark.parametrize("place", PLACES)
def test_code_after_the_transaction_does_not_change_the_outcome(
    place: str, end: str, dsn: str, db: psycopg.Connection
) -> None:
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


@pytest.mark.few(1)
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
    db.execute(asleep.replace("SELECT", "SELECT pg_terminate_backend(pid, 10000)"))


def test_a_statement_is_cancelled_although_all_threads_are_busy(connect: Open, db: psycopg.Connection) -> None:
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
