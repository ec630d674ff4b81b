"""`trigger` runs a job now, beside its schedule, under the overlap policy that the caller names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import psycopg
import pytest

from pgsched.core.planning.overlap import IN_TURN, UnfinishedRuns, decide, row_reason
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import ticks
from pgsched.errors import InputError, NotFound, PgschedError
from tests.support.db.passing import lead, pass_time, runs
from tests.support.db.setting import Aside, at_once, row_of, take, wait_until_blocked

Open = Callable[..., psycopg.Connection]
OTHERS = ("skip", "buffer_one", "buffer_all", "replace", "terminate")


@pytest.fixture(autouse=True)
def job(db: psycopg.Connection) -> None:
    jobs.add(db, {"name": "a", "task": "t", "schedule": "0 0 1 1 *", "max_buffer": 2, "args": {"own": 1}})


def states(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT state FROM pgsched.runs ORDER BY id").fetchall()]


def trigger(db: psycopg.Connection, overlap: str = "allow", args: Any = None) -> dict[str, Any]:
    return row_of(db, jobs.trigger(db, "a", args, overlap))


@pytest.mark.parametrize("overlap", ["allow", *OTHERS])
def test_without_an_unfinished_run_a_trigger_queues_under_any_policy(db: psycopg.Connection, overlap: str) -> None:
    run = trigger(db, overlap)
    assert (run["state"], run["origin"], run["args"], run["reason"]) == ("queued", "manual", {"own": 1}, None)


def test_allow_is_the_default_and_ignores_unfinished_runs(db: psycopg.Connection) -> None:
    trigger(db)
    assert trigger(db)["state"] == "queued"
    assert states(db) == ["queued", "queued"]


def test_skip_is_recorded_with_its_reason(db: psycopg.Connection) -> None:
    first = trigger(db)
    run = trigger(db, "skip")
    assert (run["state"], run["reason"]) == ("skipped", f"overlap: run {first['id']} was not finished")
    assert run["finished_at"] is not None


def test_buffers_hold_back_until_they_are_full(db: psycopg.Connection) -> None:
    first = trigger(db)
    assert [trigger(db, "buffer_one")["state"] for _ in range(2)] == ["waiting", "skipped"]
    assert [trigger(db, "buffer_all")["state"] for _ in range(2)] == ["waiting", "skipped"]
    assert row_of(db, first["id"] + 4)["reason"].endswith("was not finished and 2 already waited")
    ticks.admit(db, 10)
    assert states(db) == ["queued", "waiting", "skipped", "waiting", "skipped"]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", [first["id"]])
    ticks.admit(db, 10)
    assert states(db) == ["succeeded", "queued", "skipped", "waiting", "skipped"]


def test_replace_cancels_queued_runs_and_asks_running_ones_to_stop(db: psycopg.Connection) -> None:
    running, queued = trigger(db)["id"], None
    take(db)
    queued = trigger(db)["id"]
    run = trigger(db, "replace")
    assert (run["state"], row_of(db, queued)["state"], row_of(db, running)["state"]) == (
        "waiting",
        "cancelled",
        "running",
    )
    assert "overlap: replaced by a triggered run" in row_of(db, running)["cancel_reason"]
    assert row_of(db, running)["cancel_requested_at"] is not None


def test_terminate_takes_the_claim_away_and_starts_at_once(db: psycopg.Connection) -> None:
    running = trigger(db)["id"]
    (claim,) = take(db)
    run = trigger(db, "terminate")
    assert (run["state"], row_of(db, running)["state"], row_of(db, running)["token"]) == ("queued", "cancelled", None)
    assert db.execute("SELECT token, outcome FROM pgsched.attempts").fetchall() == [(claim.token, "cancelled")]
    with pytest.raises(psycopg.Error, match=f"claim of run {running} is lost"):
        db.execute("SELECT pgsched.assert_claim(%s, %s)", [running, claim.token])


def test_terminate_takes_no_claim_that_a_handler_has_asserted(db: psycopg.Connection, connect: Open) -> None:
    running = trigger(db)["id"]
    (claim,) = take(db)
    handler = connect(autocommit=False)
    handler.execute("SELECT pgsched.assert_claim(%s, %s)", [running, claim.token])
    assert trigger(connect(options="-c lock_timeout=500ms"), "terminate")["state"] == "queued"
    row = row_of(db, running)
    assert (row["state"], row["token"]) == ("running", str(claim.token))
    assert row["cancel_requested_at"] is not None, "it is asked to end instead"
    assert "overlap: replaced by a triggered run" in row["cancel_reason"]


def test_a_backfill_s_runs_do_not_count_and_are_not_ended(db: psycopg.Connection) -> None:
    past = trigger(db)["id"]
    db.execute("UPDATE pgsched.runs SET origin = 'backfill'")
    assert [trigger(db, overlap)["state"] for overlap in ("skip", "terminate")] == ["queued", "queued"]
    assert row_of(db, past)["state"] == "queued"
    assert row_of(db, past + 1)["state"] == "cancelled"


def test_a_backfill_s_run_holds_back_nothing_that_waits(db: psycopg.Connection) -> None:
    first, held = trigger(db)["id"], trigger(db, "buffer_one")["id"]
    db.execute("UPDATE pgsched.runs SET origin = 'backfill' WHERE id = %s", [first])
    ticks.admit(db, 10)
    assert row_of(db, held)["state"] == "queued"


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "terminate"])
def test_of_many_triggers_at_once_one_is_first(db: psycopg.Connection, connect: Open, overlap: str) -> None:
    conns = [connect() for _ in range(6)]
    at_once([lambda conn=conn: jobs.trigger(conn, "a", None, overlap) for conn in conns])  # type: ignore[misc]
    counted = {state: states(db).count(state) for state in set(states(db))}
    expected = {
        "skip": {"queued": 1, "skipped": 5},
        "buffer_one": {"queued": 1, "waiting": 1, "skipped": 4},
        "terminate": {"queued": 1, "cancelled": 5},
    }
    assert counted == expected[overlap]


def test_a_second_trigger_waits_for_the_first(db: psycopg.Connection, connect: Open) -> None:
    first, second = connect(autocommit=False), connect()
    first.execute("SELECT pgsched.trigger('a', NULL, 'skip')")
    later = Aside(lambda: jobs.trigger(second, "a", None, "skip"))
    wait_until_blocked(db, second)
    first.commit()
    assert row_of(db, later.result())["state"] == "skipped"


def test_under_repeatable_read_a_second_trigger_fails(connect: Open) -> None:
    """In its old snapshot, the second trigger would count too few unfinished runs."""
    first, second = connect(), connect(autocommit=False)
    second.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    second.execute("SELECT count(*) FROM pgsched.runs")
    jobs.trigger(first, "a", None, "skip")
    with pytest.raises(psycopg.errors.SerializationFailure):
        second.execute("SELECT pgsched.trigger('a', NULL, 'skip')")


def test_a_trigger_waits_for_a_tick_that_has_locked_the_job(db: psycopg.Connection, connect: Open) -> None:
    leader, person = connect(autocommit=False), connect()
    leader.execute("SELECT FROM pgsched.jobs FOR NO KEY UPDATE")
    leader.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-01', 't' FROM pgsched.jobs"
    )
    later = Aside(lambda: jobs.trigger(person, "a", None, "skip"))
    wait_until_blocked(db, person)
    leader.commit()
    assert row_of(db, later.result())["state"] == "skipped"


# ---- a trigger and a delete of the job at once

KEY_SHARE = "FROM pgsched.jobs WHERE name = trigger.job FOR KEY SHARE;"


def without_lock(db: psycopg.Connection) -> None:
    """Make `pgsched.trigger` read the job without locking it."""
    (text,) = db.execute("SELECT pg_get_functiondef('pgsched.trigger'::regproc)").fetchone() or ("",)
    assert text.count(KEY_SHARE) == 1
    db.execute(text.replace(" FOR KEY SHARE", ""))


@pytest.mark.parametrize("locked", [True, False])
def test_a_delete_waits_for_the_trigger_and_cancels_its_run(
    locked: bool, db: psycopg.Connection, connect: Open
) -> None:
    if not locked:
        without_lock(db)
    person, other = connect(autocommit=False), connect()
    person.execute("SELECT pgsched.trigger('a')")
    deleting = Aside(lambda: other.execute("DELETE FROM pgsched.jobs"))
    if locked:
        wait_until_blocked(db, other)
    else:
        deleting.result()
    person.commit()
    deleting.result()
    assert states(db) == (["cancelled"] if locked else ["queued"])


@pytest.mark.parametrize("locked", [True, False])
def test_a_trigger_waits_for_the_delete_and_finds_no_job(locked: bool, db: psycopg.Connection, connect: Open) -> None:
    if not locked:
        without_lock(db)
    person, other = connect(autocommit=False), connect()
    person.execute("DELETE FROM pgsched.jobs")
    asking = Aside(lambda: jobs.trigger(other, "a", None, "allow"))
    if locked:
        wait_until_blocked(db, other)
    else:
        asking.result()
    person.commit()
    if locked:
        with pytest.raises(PgschedError, match='there is no job named "a"'):
            asking.result()
    assert states(db) == ([] if locked else ["queued"])


def test_allow_waits_for_no_tick_and_makes_no_tick_skip_the_job(db: psycopg.Connection, connect: Open) -> None:
    leader, person = connect(autocommit=False), connect(autocommit=False)
    lock = "SELECT FROM pgsched.jobs FOR NO KEY UPDATE SKIP LOCKED"
    leader.execute(lock)
    jobs.trigger(connect(options="-c lock_timeout=500ms"), "a", None, "allow")
    leader.rollback()
    person.execute("SELECT pgsched.trigger('a')")
    assert leader.execute(lock).rowcount == 1


def test_bad_values_are_refused(db: psycopg.Connection) -> None:
    with pytest.raises(InputError, match='overlap: "maybe" is not one of allow, skip'):
        jobs.trigger(db, "a", None, "maybe")
    with pytest.raises(InputError, match="args: must be a JSON object or array, not a string"):
        jobs.trigger(db, "a", "text")
    with pytest.raises(NotFound):
        jobs.trigger(db, "b", None, "skip")
    assert states(db) == []


# ---- late slots that wait for their turn


@pytest.mark.few(16)
@pytest.mark.parametrize("standing", list(product((0, 1), (0, 1, 2), (0, 3))))
@pytest.mark.parametrize("overlap", OTHERS)
def test_a_triggered_run_is_decided_as_a_slot_would_be(
    db: psycopg.Connection, overlap: str, standing: tuple[int, int, int]
) -> None:
    started, held, in_turn = standing
    text = "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, reason)" \
           " SELECT id, clock_timestamp() + %s * interval '1 s', 't', %s, %s FROM pgsched.jobs"  # fmt: skip
    born = [("queued", None)] * started + [("waiting", None)] * held + [("waiting", IN_TURN)] * in_turn
    for n, (state, reason) in enumerate(born):
        db.execute(text, [n, state, reason])
    newest = max((row[0] for row in db.execute("SELECT id FROM pgsched.runs").fetchall()), default=None)
    run = trigger(db, overlap)
    expected = decide(overlap, UnfinishedRuns(len(born), held, newest, in_turn), max_buffer=2)
    assert (run["state"], run["reason"]) == (expected.state, row_reason(expected.reason, None))
    ended = db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'cancelled'").fetchone()
    assert ended == (len(born) if expected.ends_others else 0,)


def test_sql_and_python_know_runs_waiting_in_turn_by_the_same_reason(db: psycopg.Connection) -> None:
    lead(db)
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 60s', catch_up = 'all'")
    pass_time(db, 600)
    trigger(db)
    lead(db)
    waiting = {run["reason"] for run in runs(db) if run["state"] == "waiting"}
    assert waiting == {IN_TURN}
    asked = db.execute(
        "SELECT pgsched.waits_in_turn(r) FROM unnest(%s::text[]) r", [[IN_TURN, "late", "catch_up: ", None]]
    )
    assert asked.fetchall() == [(True,), (False,), (False,), (False,)]
