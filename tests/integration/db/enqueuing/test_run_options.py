"""Back-off, kill_after, expires and keep: of a call, of a task and of a job, on every way to make a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgsched import App
from pgsched.app.release import releases
from pgsched.db.queries.leader import retention, ticks
from pgsched.db.queries.runs import tasks
from pgsched.leader.pruner import Pruner
from tests.support.db.setting import row_of, take
from tests.support.fleet import one
from tests.support.logins import Logins

pytestmark = pytest.mark.pg14
GIVEN: dict[str, Any] = {
    "kill_after": 3, "backoff": "linear", "backoff_base": timedelta(seconds=2), "backoff_max": 60,
    "backoff_jitter": 0.5, "expires": 90, "keep": timedelta(days=2),
}  # fmt: skip
SECONDS = {"kill_after": 3, "backoff": "linear", "backoff_base": 2, "backoff_max": 60, "backoff_jitter": 0.5,
           "expires": 90, "keep": 172_800}  # fmt: skip
SQL = (
    ", kill_after => '3 s', backoff => 'linear', backoff_base => '2 s', backoff_max => '1 min', backoff_jitter => 0.5,"
    " expires => '90 s', keep => '2 days'"
)
NONE = dict.fromkeys(SECONDS)


def options(db: psycopg.Connection, run: int | None = None) -> dict[str, Any]:
    """Return these options of a run, or of the newest one, with durations in seconds."""
    with db.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "SELECT extract(epoch FROM kill_after)::float8 AS kill_after, backoff, backoff_jitter,"
            " extract(epoch FROM backoff_base)::float8 AS backoff_base,"
            " extract(epoch FROM backoff_max)::float8 AS backoff_max, extract(epoch FROM keep)::float8 AS keep,"
            # from the first run of a call: they expire together, and a slow machine makes the last one a second later
            " round(extract(epoch FROM expires_at - (SELECT min(CASE WHEN o.available_at < '8998-01-01Z'"
            "   THEN o.available_at ELSE o.created_at END) FROM pgsched.runs o WHERE o.expires_at = r.expires_at"
            "   )))::float8 AS expires"
            " FROM pgsched.runs r WHERE id = coalesce(%s, (SELECT max(id) FROM pgsched.runs))",
            [run],
        ).fetchone()
    assert found is not None
    return found


def register(db: psycopg.Connection, app: App) -> None:
    assert tasks.register(db, app.name, releases(app.tasks.values())) is None


def in_a_graph(app: App, request: Any) -> None:
    with app.graph() as graph:
        first = graph.add(request)
        graph.add(request, after=[first])


CALLS: dict[str, Callable[[App, Any], Any]] = {
    "one": lambda app, request: request.enqueue(),
    "keyed": lambda app, request: (
        request.options(unique_key="k", **GIVEN).enqueue() if hasattr(request, "options") else request.enqueue()
    ),
    "many": lambda app, request: request.enqueue_many([[], []]),
    "ids": lambda app, request: request.enqueue_many([[], []], return_ids=True),
    "hundreds": lambda app, request: request.enqueue_many([[]] * 300),
    "graph": in_a_graph,
}


@pytest.mark.parametrize("way", CALLS)
def test_a_call_gives_them_to_its_runs(app: App, db: psycopg.Connection, way: str) -> None:
    task = app.task(name="t")(lambda: None)
    CALLS[way](app, task.options(**GIVEN))
    found = [options(db, run) for (run,) in db.execute("SELECT id FROM pgsched.runs").fetchall()]
    assert found == [SECONDS] * len(found) != []


def test_a_producer_gives_them_too(app: App, db: psycopg.Connection, logins: Logins) -> None:
    task, alice = app.task(name="t")(lambda: None), logins.connect("alice")
    task.options(connection=alice, **GIVEN).enqueue()
    task.options(connection=alice, **GIVEN).enqueue_many([[], []])
    task.options(connection=alice, unique_by=True, **GIVEN).enqueue_many([[], []])
    found = [options(db, run) for (run,) in db.execute("SELECT id FROM pgsched.runs").fetchall()]
    assert found == [SECONDS] * 4


def test_sql_gives_them(db: psycopg.Connection) -> None:
    one(db, f"SELECT pgsched.enqueue('t'{SQL})")
    assert options(db) == SECONDS


WAYS: dict[str, Callable[[psycopg.Connection], Any]] = {
    "insert": lambda db: db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')"),
    "enqueue": lambda db: db.execute("SELECT pgsched.enqueue('t')"),
    "later": lambda db: db.execute("SELECT pgsched.enqueue('t', delay => '1 day')"),
    "dependent": lambda db: db.execute("SELECT pgsched.enqueue('t', after => ARRAY[pgsched.enqueue('other')])"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_task_gives_them_to_runs_that_plain_sql_makes(app: App, db: psycopg.Connection, way: str) -> None:
    app.task(name="t", **GIVEN)(lambda: None)
    register(db, app)
    WAYS[way](db)
    assert options(db) == SECONDS


@pytest.mark.parametrize("way", CALLS)
def test_a_task_gives_them_to_runs_of_programs_that_know_only_its_name(
    app: App, db: psycopg.Connection, way: str
) -> None:
    app.task(name="t", **GIVEN)(lambda: None)
    register(db, app)
    bare = App("bare", dsn=app.dsn)
    CALLS[way](bare, bare.task(name="t")(lambda: None).options())
    found = [options(db, run) for (run,) in db.execute("SELECT id FROM pgsched.runs").fetchall()]
    assert found == [SECONDS] * len(found) != []


def test_the_call_decides_before_the_task(app: App, db: psycopg.Connection) -> None:
    app.task(name="t", **GIVEN)(lambda: None)
    register(db, app)
    one(db, "SELECT pgsched.enqueue('t', backoff => 'fixed', keep => '0', expires => '1 h', kill_after => '0')")
    assert options(db) == {**SECONDS, "backoff": "fixed", "keep": 0, "expires": 3600, "kill_after": 0}


def test_runs_of_a_job_take_what_the_job_does_not_say(app: App, db: psycopg.Connection) -> None:
    app.task(name="t", **GIVEN)(lambda: None)
    register(db, app)
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, backoff, backoff_max, keep) VALUES"
               " ('j', 't', '@every 1h', 'fixed', '5 s', '{\"any\": \"1 h\"}')")  # fmt: skip
    one(db, "SELECT pgsched.trigger('j')")
    assert options(db) == {**SECONDS, "backoff": "fixed", "backoff_max": 5, "keep": None}
    db.execute("UPDATE pgsched.jobs SET keep = NULL")
    one(db, "SELECT pgsched.trigger('j')")
    assert options(db)["keep"] == 172_800


def test_runs_without_them_have_none(app: App, db: psycopg.Connection) -> None:
    app.task(name="t")(lambda: None).enqueue()
    assert options(db) == NONE


# ---- expires


def test_a_run_that_has_not_started_in_time_is_missed_and_used_no_attempt(app: App, db: psycopg.Connection) -> None:
    task = app.task(name="t")(lambda: None)
    late = task.options(expires=timedelta(milliseconds=1)).enqueue()
    by = task.options(expires=datetime(2100, 1, 1, tzinfo=UTC)).enqueue()
    assert [claim.id for claim in take(db, 5)] == [by]
    ticks.admit(db, 100)
    row = row_of(db, late)
    assert (row["state"], row["attempt"]) == ("missed", 0)
    assert row["reason"].startswith("expired: not started by ")
    assert one(db, "SELECT expires_at = '2100-01-01Z' FROM pgsched.runs WHERE id = %s", by)


def test_a_slot_that_expires_by_its_task_says_so(app: App, db: psycopg.Connection) -> None:
    """And not that a start_deadline passed, which its job does not have."""
    app.task(name="t", expires=3600)(lambda: None)
    register(db, app)
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 't', '@every 1h')")
    run = one(db, "SELECT pgsched.trigger('j')")
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp()")
    ticks.admit(db, 100)
    assert row_of(db, run)["reason"].startswith("expired: not started by ")


# ---- keep


def end_all(db: psycopg.Connection, ago: str) -> None:
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() - %s::interval", [ago])
    db.execute("UPDATE pgsched.rollup_mark SET counted_until = clock_timestamp()")


def left(db: psycopg.Connection) -> list[int]:
    return [run for (run,) in db.execute("SELECT id FROM pgsched.runs ORDER BY id").fetchall()]


def test_a_run_is_kept_for_as_long_as_it_says(app: App, db: psycopg.Connection) -> None:
    task = app.task(name="t")(lambda: None)
    short, long, plain = (task.options(keep=keep).enqueue() for keep in (60, timedelta(days=30), None))
    pruner = Pruner()
    end_all(db, "59 s")
    assert (pruner.prune_batch(db, 100), left(db)) == (0, [short, long, plain])
    end_all(db, "61 s")
    assert [row["runs"] for row in retention.count_expired(db)] == [1]
    assert (pruner.prune_batch(db, 100), left(db)) == (1, [long, plain])
    end_all(db, "8 days")
    pruner.restart()
    assert (pruner.prune_batch(db, 100), left(db)) == (1, [long])
    end_all(db, "31 days")
    assert (pruner.prune_batch(db, 100), left(db)) == (1, [])


def test_runs_that_are_not_counted_or_still_waited_for_are_kept(app: App, db: psycopg.Connection) -> None:
    task = app.task(name="t", keep=0)(lambda: None)
    parent = task.enqueue()
    task.options(after=[parent]).enqueue()
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE id = %s", [parent])
    assert Pruner().prune_batch(db, 100) == 0
    db.execute("UPDATE pgsched.rollup_mark SET counted_until = clock_timestamp()")
    assert Pruner().prune_batch(db, 100) == 0
    end_all(db, "1 s")
    assert (Pruner().prune_batch(db, 1), len(left(db))) == (1, 1)


def test_the_newest_slot_of_a_job_is_kept(app: App, db: psycopg.Connection) -> None:
    app.task(name="t", keep=0)(lambda: None)
    register(db, app)
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 't', '@every 1h')")
    first, newest = one(db, "SELECT pgsched.trigger('j', overlap => 'allow')"), one(
        db, "SELECT pgsched.trigger('j', overlap => 'allow')")  # fmt: skip
    end_all(db, "1 s")
    assert (Pruner().prune_batch(db, 100), left(db)) == (1, [newest])
    assert first not in left(db)


def slots(db: psycopg.Connection, n: int) -> list[int]:
    """Make a job with n slots in the past that are kept for a minute and have ended; return the ids of their runs."""
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 't', '@every 1h') ON CONFLICT DO NOTHING")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin, keep) SELECT j.id,"
        " timestamptz '2020-01-01Z' + s * interval '1 hour', 't', 'schedule', '1 minute'"
        " FROM pgsched.jobs j, generate_series(1, %s) s", [n],
    )  # fmt: skip
    end_all(db, "1 hour")
    return left(db)


def test_runs_that_must_stay_do_not_hold_up_the_rest(db: psycopg.Connection) -> None:
    """The slots of j stay for a slot that waits for them; each batch is full of them."""
    made = slots(db, 4)
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, paused) VALUES ('report', 't', '@every 1h', true)")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, available_at, options) SELECT b.id,"
        " r.scheduled_at, 't', 'waiting', '8998-01-01Z', jsonb_build_object('after_jobs', ARRAY[r.job_id])"
        " FROM pgsched.runs r, pgsched.jobs b WHERE b.name = 'report' AND r.id = ANY (%s)", [made[:2]],
    )  # fmt: skip
    pruner = Pruner()
    gone = []
    for _ in range(10):
        gone.append(pruner.prune_batch(db, 1))
        if not pruner.more:
            break
    assert (sum(gone), pruner.more) == (1, False)
    assert [run for run in left(db) if run in made] == [*made[:2], made[3]]


def test_a_batch_reads_no_run_again_that_was_read_before(db: psycopg.Connection) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    made = slots(db, 3)
    db.execute("UPDATE pgsched.runs SET finished_at = '2026-01-01Z'")
    first = retention.lock_own(db, "-infinity", until, 2)
    assert (first.read, first.locked, first.last_id) == (2, 2, made[1])
    assert first.last_at == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    rest = retention.lock_own(db, first.last_at.isoformat(), until, 2, after_id=made[1])
    assert (rest.read, rest.locked, rest.last_id) == (1, 0, made[2]), "the newest slot stays"


def test_the_row_of_a_stretch_is_as_old_as_its_end(db: psycopg.Connection) -> None:
    made = slots(db, 2)
    stretch = "UPDATE pgsched.runs SET covers_from = scheduled_at, covers_until = clock_timestamp() - %s::interval"
    db.execute(stretch.encode(), ["50 s"])
    assert retention.count_expired(db) == []
    assert (Pruner().prune_batch(db, 10), left(db)) == (0, made)
    db.execute(stretch.encode(), ["70 s"])
    assert (Pruner().prune_batch(db, 10), left(db)) == (1, made[1:])


@pytest.mark.parametrize(
    ("keys", "how"),
    [
        ("idempotency_key => 'order 7'", "repeated"),
        ("unique_key => 'k'", "existing"),
        ("unique_key => 'k', on_conflict => 'reject'", "rejected"),
        ("unique_key => 'k', unique_scope => 'while_queued'", "existing"),
        ("unique_key => 'k', unique_scope => 'sliding(1 hour)'", "existing"),
    ],
)
def test_a_request_that_is_repeated_after_its_expiry_finds_its_run(db: psycopg.Connection, keys: str, how: str) -> None:
    call = f"SELECT id, how FROM pgsched.enqueue_result('t', {keys}, expires_at => %s)"
    first = db.execute(call.encode(), ["2100-01-01Z"]).fetchone()
    assert first is not None and first[1] == "created"
    assert db.execute(call.encode(), ["2020-01-01Z"]).fetchone() == (first[0], how)
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = clock_timestamp()")
    db.execute("DELETE FROM pgsched.kept_keys")
    with pytest.raises(psycopg.errors.CheckViolation, match="is not later than the run is due"):
        db.execute(call.encode(), ["2020-01-01Z"])
    assert one(db, "SELECT count(*) FROM pgsched.kept_keys") == 0


def test_a_new_payload_needs_an_expiry_that_has_not_passed(db: psycopg.Connection) -> None:
    call = "SELECT pgsched.enqueue('t', unique_key => 'k', on_conflict => 'replace', expires_at => %s)"
    one(db, call, "2100-01-01Z")
    with pytest.raises(psycopg.errors.CheckViolation, match="is not later than the run is due"):
        one(db, call, "2020-01-01Z")
