"""SQL functions that a client in any language may call: cancel, retry, trigger, enqueue, assert_claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from pgsched.worker.claiming.known_queues import mark

Connect = Callable[..., psycopg.Connection]


def value(db: psycopg.Connection, statement: str, *params: Any) -> Any:
    row = db.execute(statement.encode(), params).fetchone()
    return row[0] if row else None


def make(db: psycopg.Connection, state: str = "queued", **more: Any) -> int:
    columns: dict[str, Any] = {"task": "t", "state": state} | more
    if state == "running":
        columns |= {"token": columns.get("token") or uuid4(), "attempt": 1}
    names = ", ".join(columns)
    values = ", ".join(f"%({name})s" for name in columns)
    if state == "running":
        names, values = f"{names}, lease_until", f"{values}, clock_timestamp() + interval '30 seconds'"
    if state in ("succeeded", "dead", "cancelled", "skipped", "missed"):
        names, values = f"{names}, finished_at", f"{values}, clock_timestamp()"
    row = db.execute(f"INSERT INTO pgsched.runs ({names}) VALUES ({values}) RETURNING id".encode(), columns).fetchone()
    assert row is not None
    return int(row[0])


def state(db: psycopg.Connection, run: int) -> str:
    return str(value(db, "SELECT state FROM pgsched.runs WHERE id = %s", run))


@pytest.mark.parametrize("before", ["queued", "waiting", "scheduled"])
def test_cancelling_an_unstarted_run_ends_it_at_once(db: psycopg.Connection, before: str) -> None:
    run = make(db, before)
    assert value(db, "SELECT pgsched.cancel(%s, 'wrong month')", run) == "cancelled"
    assert state(db, run) == "cancelled"
    reason = value(db, "SELECT reason FROM pgsched.runs WHERE id = %s", run)
    assert reason == f"cancelled by {value(db, 'SELECT session_user')}: wrong month"
    assert value(db, "SELECT pgsched.cancel(%s)", run) == "cancelled", "again is harmless"


def test_cancelling_a_running_run_asks_its_worker(db: psycopg.Connection, connect: Connect) -> None:
    run = make(db, "running")
    listener = connect()
    listener.execute("LISTEN pgsched_cancel")
    assert value(db, "SELECT pgsched.cancel(%s)", run) == "requested"
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == [""], "who listens learns no number"
    first = value(db, "SELECT cancel_requested_at FROM pgsched.runs WHERE id = %s", run)
    assert value(db, "SELECT pgsched.cancel(%s)", run) == "requested"
    assert value(db, "SELECT cancel_requested_at FROM pgsched.runs WHERE id = %s", run) == first is not None
    assert state(db, run) == "running"


@pytest.mark.parametrize("ended", ["succeeded", "dead", "missed", "skipped"])
def test_cancelling_an_ended_run_says_how_it_ended(db: psycopg.Connection, ended: str) -> None:
    run = make(db, ended)
    assert value(db, "SELECT pgsched.cancel(%s)", run) == ended
    assert state(db, run) == ended


@pytest.mark.parametrize("function", ["cancel", "retry"])
def test_a_run_that_does_not_exist_gives_null(db: psycopg.Connection, function: str) -> None:
    assert value(db, f"SELECT pgsched.{function}(4711)") is None


@pytest.mark.parametrize("ended", ["dead", "cancelled", "missed", "skipped"])
def test_retry_revives_a_run_with_one_more_attempt(db: psycopg.Connection, connect: Connect, ended: str) -> None:
    run = make(db, ended, attempt=3, max_attempts=3, reason="x", error="kept", crashes=5, queue="q")
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    assert value(db, "SELECT pgsched.retry(%s)", run) == "queued"
    row = db.execute(
        "SELECT state, max_attempts, attempt, finished_at, reason, error, crashes, token FROM pgsched.runs"
    ).fetchone()
    assert row == ("queued", 4, 3, None, None, "kept", 0, None)
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == [mark("q")]
    assert value(db, "SELECT pgsched.retry(%s)", run) == "queued", "again is harmless"
    assert value(db, "SELECT max_attempts FROM pgsched.runs") == 4


@pytest.mark.parametrize("before", ["queued", "running", "waiting", "scheduled", "succeeded"])
def test_retry_leaves_other_runs_alone(db: psycopg.Connection, before: str) -> None:
    run = make(db, before)
    assert value(db, "SELECT pgsched.retry(%s)", run) == before
    assert state(db, run) == before


def test_retry_does_not_double_a_unique_key(db: psycopg.Connection) -> None:
    old = make(db, "dead", unique_key="k")
    make(db, "queued", unique_key="k")
    with pytest.raises(
        psycopg.errors.CheckViolation, match=f'unique_key: an unfinished run has the key "k" of run {old}'
    ):
        db.execute("SELECT pgsched.retry(%s)", [old])


def test_trigger_runs_a_job_now_beside_its_schedule(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, args, queue, priority, timeout, kind, success_codes) "
        "VALUES ('a', 't', '@daily', '[\"1\"]', 'q', 2, '5s', 'command', '{0,3}')"
    )
    planned = value(db, "SELECT next_run_at FROM pgsched.jobs")
    first = value(db, "SELECT pgsched.trigger('a')")
    second = value(db, "SELECT pgsched.trigger('a', '[\"2\"]')")
    rows = db.execute(
        "SELECT id, state, origin, args, queue, priority, extract(epoch FROM timeout)::int, options->'success_codes' "
        "FROM pgsched.runs ORDER BY id"
    ).fetchall()
    assert rows == [
        (first, "queued", "manual", ["1"], "q", 2, 5, [0, 3]),
        (second, "queued", "manual", ["2"], "q", 2, 5, [0, 3]),
    ]
    assert value(db, "SELECT next_run_at FROM pgsched.jobs") == planned


def test_trigger_many_times_in_one_statement_makes_that_many_runs(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '@daily')")
    assert value(db, "SELECT count(DISTINCT pgsched.trigger('a')) FROM generate_series(1, 200)") == 200


def test_trigger_refuses_an_unknown_job(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.NoDataFound, match='job: there is no job named "nobody"'):
        db.execute("SELECT pgsched.trigger('nobody')")


def test_nobody_is_notified_of_a_run_while_all_workers_are_awake(db: psycopg.Connection, connect: Connect) -> None:
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    for asleep in ("1", "(date_part('epoch', clock_timestamp()) * 1000)::bigint - 1"):
        db.execute(f"SELECT setval('pgsched.asleep_until', {asleep})".encode())
        db.execute("SELECT pgsched.enqueue('send', queue => 'unheard')")
    db.execute("NOTIFY pgsched_runs, 'end'")
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["end"]


def test_enqueue_makes_a_run_that_sleeping_workers_hear_of(db: psycopg.Connection, connect: Connect) -> None:
    listener = connect()
    db.execute("SELECT setval('pgsched.asleep_until', (date_part('epoch', clock_timestamp()) * 1000)::bigint + 60000)")
    listener.execute("LISTEN pgsched_runs")
    run = value(db, "SELECT pgsched.enqueue('send', '{\"to\": 1}', queue => 'mail', priority => 1)")
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == [mark("mail")]
    row = db.execute("SELECT id, state, task, args, queue, priority, origin, job_id FROM pgsched.runs").fetchone()
    assert row == (run, "queued", "send", {"to": 1}, "mail", 1, "enqueue", None)


def test_enqueue_for_later_makes_a_scheduled_run(db: psycopg.Connection) -> None:
    delayed = value(db, "SELECT pgsched.enqueue('a', delay => '1 hour')")
    at = value(db, "SELECT pgsched.enqueue('a', at => now() + interval '1 day')")
    past = value(db, "SELECT pgsched.enqueue('a', at => now() - interval '1 day')")
    assert [state(db, run) for run in (delayed, at, past)] == ["scheduled", "scheduled", "queued"]


def test_enqueue_with_a_key_gives_the_unfinished_run_that_has_it(db: psycopg.Connection) -> None:
    first = value(db, "SELECT pgsched.enqueue('a', unique_key => 'k')")
    assert value(db, "SELECT pgsched.enqueue('a', unique_key => 'k')") == first
    db.execute("SELECT pgsched.cancel(%s)", [first])
    assert value(db, "SELECT pgsched.enqueue('a', unique_key => 'k')") != first


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'a', '\"x\"'", "args: must be a JSON object or array, not a string"),
        ("'a', jsonb_build_object('x', repeat('y', 10000000))", r"args: 1\d{7} bytes, at most 1048576 are allowed"),
        ("'a', kind => 'magic'", 'kind: "magic" is not one of'),
        ("'a', priority => 10", "priority: 10 is out of range 0-9"),
        ("''", "task: must not be empty"),
    ],
)
def test_enqueue_refuses_bad_values(db: psycopg.Connection, call: str, message: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=message):
        db.execute(f"SELECT pgsched.enqueue({call})".encode())


def claimed(db: psycopg.Connection) -> tuple[int, UUID]:
    token = uuid4()
    return make(db, "running", token=token), token


def test_assert_claim_accepts_the_owner_and_refuses_all_others(db: psycopg.Connection) -> None:
    run, token = claimed(db)
    db.execute("SELECT pgsched.assert_claim(%s, %s)", [run, token])
    for number, other in ((run, uuid4()), (run + 1, token), (run, None)):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"claim of run {number} is lost"):
            db.execute("SELECT pgsched.assert_claim(%s, %s)", [number, other])
    db.execute("UPDATE pgsched.runs SET state = 'queued'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        db.execute("SELECT pgsched.assert_claim(%s, %s)", [run, token])


def test_assert_claim_undoes_a_zombies_writes(db: psycopg.Connection, connect: Connect) -> None:
    run, token = claimed(db)
    db.execute("CREATE TABLE effects (n int)")
    db.execute("UPDATE pgsched.runs SET token = gen_random_uuid()")
    zombie = connect(autocommit=False)
    zombie.execute("INSERT INTO effects VALUES (1)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        zombie.execute("SELECT pgsched.assert_claim(%s, %s)", [run, token])
    zombie.commit()
    assert value(db, "SELECT count(*) FROM effects") == 0


def test_assert_claim_blocks_the_reaper_but_not_the_heartbeat(db: psycopg.Connection, connect: Connect) -> None:
    run, token = claimed(db)
    owner, other = connect(autocommit=False), connect()
    owner.execute("SELECT pgsched.assert_claim(%s, %s)", [run, token])
    take = "SELECT id FROM pgsched.runs WHERE id = %s FOR UPDATE"
    assert value(other, f"{take} SKIP LOCKED", run) is None, "the reaper passes by"
    with pytest.raises(psycopg.errors.LockNotAvailable):
        other.execute(f"{take} NOWAIT".encode(), [run])
    other.execute("SET lock_timeout = '2s'")
    assert other.execute(
        "UPDATE pgsched.runs SET lease_until = clock_timestamp() + interval '1 minute' WHERE id = %s AND token = %s",
        [run, token],
    ).rowcount == 1, "the heartbeat goes through"  # fmt: skip
    assert value(other, "SELECT pgsched.cancel(%s)", run) == "requested", "so does a request to cancel"
    owner.commit()
    assert value(other, f"{take} SKIP LOCKED", run) == run
