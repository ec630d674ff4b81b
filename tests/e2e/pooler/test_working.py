"""Workers, the leader, producers and commands work through a pooler as without one."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest
from sqlalchemy import create_engine

from pgsched import App
from pgsched.cli import run
from pgsched.execute.sql import SqlExecutor
from tests.support.bouncer import Bouncer
from tests.support.executing import claim, execute
from tests.support.fleet import Fleet, clock, enqueue, events, one, open_gate, state, unaccounted, wait_for_leader
from tests.support.pooled import SECONDLY, Db, check_slots, cli, ended
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram


def test_runs_that_are_enqueued_in_any_way_through_a_pooler_are_made(bouncer: Bouncer, fleet: Fleet, db: Db) -> None:
    app = App("producer", dsn=bouncer.dsn)

    @app.task(name="note")
    def note() -> None: ...

    fleet.start(1, "--no-leader")
    made = [note.enqueue(), asyncio.run(note.enqueue_async())]
    with psycopg.connect(bouncer.dsn, prepare_threshold=None) as conn:
        made += [note.enqueue(connection=conn)]
        made.append(one(conn, "SELECT pgsched.enqueue('note')"))
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(bouncer.dsn, prepare_threshold=None)
    )
    with engine.begin() as bind:
        made.append(note.enqueue(connection=bind))
    engine.dispose()
    assert note.enqueue_many([{}, {}, {}]) == 3
    wait_until(lambda: one(db, "SELECT count(*) FROM ledger WHERE event = 'end'") == 8, 30, "all runs")
    assert {ended(db, int(run_id)) for run_id in made} == {"succeeded"}
    assert unaccounted(db) == []
    app.close()


@pytest.mark.long
def test_handlers_sql_runs_logs_progress_and_slots_work_through_a_pooler(fleet: Fleet, db: Db) -> None:
    fleet.start(2, "--app", "tests.support.apps.pooled:app", "--allow", "task,sql")
    db.execute(SECONDLY.encode())
    own, own_async, talk, spawn = (enqueue(db, task) for task in ("own", "own_async", "talk", "spawn"))
    assert [ended(db, run_id) for run_id in (own, own_async, talk, spawn)] == ["succeeded"] * 4
    assert one(db, "SELECT result FROM pgsched.runs WHERE id = %s", own) == {"path": '"$user", public'}
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.run_logs WHERE run_id = %s", talk) > 0, what="its output")
    assert one(db, "SELECT progress ->> 'note' FROM pgsched.runs WHERE id = %s", talk) == "half"
    text = "INSERT INTO public.gates VALUES (current_setting('search_path'))"
    statement = one(db, "INSERT INTO pgsched.runs (kind, task) VALUES ('sql', %s) RETURNING id", text)
    assert ended(db, statement) == "succeeded"
    assert one(db, "SELECT name FROM gates") == '"$user", public'
    ended_slots = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL AND state = 'succeeded'"
    wait_until(lambda: one(db, ended_slots) > 3,
               30, "slots")  # fmt: skip
    check_slots(db)
    assert unaccounted(db) == []


def test_statements_that_end_their_transaction_are_noticed(bouncer: Bouncer, db: Db) -> None:
    for ending in ("COMMIT; BEGIN", "COMMIT AND CHAIN"):
        given = claim("sql", f"SELECT 1; {ending}; SELECT 2", owner=db.info.user)
        outcome = execute(SqlExecutor(bouncer.dsn), given)
        assert "ended the transaction" in (outcome.error or "") and not outcome.retry


@pytest.mark.long
def test_limits_dependencies_retries_and_delays_hold(fleet: Fleet, db: Db) -> None:
    fleet.start(2)
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('narrow', 1)")
    db.execute(
        "INSERT INTO pgsched.runs (task, args, queue)"
        " SELECT 'hold', '{\"gate\": \"g\"}', 'narrow' FROM generate_series(1, 3)"
    )
    parent = enqueue(db, "hold", gate="g")
    with db.transaction():
        child = one(db, "INSERT INTO pgsched.runs (task, state) VALUES ('note', 'waiting') RETURNING id")
        db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [child, parent])
    late = one(db, "SELECT pgsched.enqueue('note', delay => '1 second')")
    failing = one(db, "INSERT INTO pgsched.runs (task, args, max_attempts, backoff_base) VALUES"
                  " ('fail', '{\"mended_by\": \"g\"}', 5, '1 second') RETURNING id")  # fmt: skip
    wait_until(lambda: one(db, "SELECT count(*) FROM ledger WHERE event = 'start'") >= 3, 30, "runs to begin")
    running = "SELECT count(*) FROM pgsched.runs WHERE queue = 'narrow' AND state = 'running'"
    assert ended(db, late) == "succeeded"
    assert one(db, running) == 1
    assert state(db, child) == "waiting"
    open_gate(db, "g")
    wait_until(lambda: one(db, running) <= 1 and one(db, "SELECT count(*) FROM pgsched.runs WHERE phase < 3") == 0, 60,
               "everything to end")  # fmt: skip
    assert {state(db, run_id) for run_id in (parent, child, late, failing)} == {"succeeded"}
    assert one(db, "SELECT p.finished_at <= c.started_at FROM pgsched.runs p, pgsched.runs c"
                   " WHERE p.id = %s AND c.id = %s",
               parent, child)  # fmt: skip
    overlapping = db.execute("SELECT FROM pgsched.runs a JOIN pgsched.runs b ON a.id < b.id AND a.queue = b.queue"
                             " WHERE a.queue = 'narrow' AND a.started_at < b.finished_at"
                             " AND b.started_at < a.finished_at")  # fmt: skip
    assert overlapping.fetchall() == []
    assert unaccounted(db) == []


@pytest.mark.long
def test_a_cancel_reaches_a_running_handler_and_the_lease_is_kept(bouncer: Bouncer, fleet: Fleet, db: Db) -> None:
    fleet.start(1, "--lease", "2")
    run_id = enqueue(db, "hold", gate="never")
    wait_until(lambda: events(db, run_id, "start"), 20, "the handler")
    first = one(db, "SELECT lease_until FROM pgsched.runs WHERE id = %s", run_id)
    wait_until(lambda: one(db, "SELECT lease_until FROM pgsched.runs WHERE id = %s", run_id) > first, 20, "a heartbeat")
    asked_at = clock(db)
    assert cli(bouncer, "run", "cancel", str(run_id)).returncode == 0
    assert ended(db, run_id) == "cancelled"
    took = one(db, "SELECT finished_at FROM pgsched.runs WHERE id = %s", run_id) - asked_at
    print(f"cancelled after {took.total_seconds():.2f} s")
    assert len(events(db, run_id, "start")) == 1


@pytest.mark.long
def test_commands_work_and_say_that_there_is_a_pooler(
    bouncer: Bouncer, fleet: Fleet, db: Db, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start(1)
    enqueue(db, "note")
    wait_for_leader(db)
    status = cli(bouncer, "status")
    assert "pooler      in transaction mode: 1 of 1 workers poll" in status.stdout
    found = json.loads(cli(bouncer, "status", "--json").stdout)
    assert (found["pooler"], found["workers"][0]["pooler"]) == ("transaction", "transaction")
    doctor = cli(bouncer, "doctor")
    assert "a pooler in transaction mode" in doctor.stdout
    assert "[fail" not in doctor.stdout and doctor.returncode == 0, doctor.stdout
    added = cli(bouncer, "job", "add", "nightly", "--schedule", "0 2 * * *", "--task", "note")
    assert added.returncode == 0, added.stderr
    for command in (["run", "list"], ["job", "list"], ["job", "show", "nightly"], ["job", "run", "nightly"], ["check"],
                    ["explain", "nightly", "2020-01-01"], ["queue", "list"], ["audit"], ["run", "logs", "1"],
                    ["run", "show", "1"], ["run", "retry", "--state", "dead"], ["pause", "--queue", "q"],
                    ["resume", "--queue", "q"]):  # fmt: skip
        code = run([*command, "--dsn", bouncer.dsn])
        told, complaints = capsys.readouterr()
        assert code == 0, (command, code, told, complaints)
    refused = cli(bouncer, "migrate")
    assert (
        refused.returncode == 2 and "goes round the pooler" in refused.stderr and len(refused.stderr.splitlines()) == 1
    )
