"""Retention: which ended runs are pruned and which stay, and that pruning loses no figure, archive row or mark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.leader import retention
from pgsched.leader.pruner import Pruner
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.pruning import count, ended, keep, left, prune, slots_of
from tests.support.db.setting import Open

STATES = ("succeeded", "dead", "cancelled", "skipped", "missed")


def prune_all(db: psycopg.Connection) -> int:
    count(db)
    pruner, gone = Pruner(), 0
    while True:
        with db.transaction():
            gone += pruner.prune_batch(db, 7)
        if not pruner.more:
            return gone


def test_each_outcome_may_be_kept_for_a_time_of_its_own(db: psycopg.Connection) -> None:
    for state in STATES:
        ended(db, "3 days", state)
        ended(db, "30 minutes", state)
    keep(db, any="2 days", dead="90 days", missed="4 days", skipped="10 minutes")
    assert prune_all(db) == 4
    assert left(db) == {"succeeded default": 1, "dead default": 2, "cancelled default": 1, "missed default": 2}


def test_runs_that_ended_at_the_same_instant_are_all_pruned(db: psycopg.Connection) -> None:
    db.execute("""INSERT INTO pgsched.queues (name, keep) VALUES ('loud', '{"any": "90 days"}')""")
    ended(db, "3 days", queue="loud", n=20)
    ended(db, "3 days", n=20)
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '3 days'")
    keep(db, any="2 days")
    assert prune_all(db) == 20
    assert left(db) == {"succeeded loud": 20}


def test_the_setting_of_a_job_wins_over_its_queue_and_a_queue_over_the_default(db: psycopg.Connection) -> None:
    ended(db, "3 days")
    ended(db, "3 days", queue="loud")
    ended(db, "3 days", "dead", queue="loud")
    slots_of(db, "dear", "3 days", 4)
    db.execute("UPDATE pgsched.jobs SET queue = 'loud', keep = '{\"any\": \"30 days\"}'")
    db.execute("UPDATE pgsched.runs SET queue = 'loud' WHERE job_id IS NOT NULL")
    db.execute("INSERT INTO pgsched.queues (name, keep) VALUES ('loud', '{\"succeeded\": \"1 hour\"}')")
    assert prune_all(db) == 1
    assert left(db) == {"succeeded default": 1, "dead loud": 1, "succeeded loud": 4}
    db.execute('UPDATE pgsched.jobs SET keep = \'{"any": "1 hour", "dead": "2 hours"}\'')
    assert prune_all(db) == 3
    assert left(db) == {"succeeded default": 1, "dead loud": 1, "succeeded loud": 1}, "its newest slot stays"


def test_a_changed_setting_applies_to_runs_that_were_read_before(db: psycopg.Connection) -> None:
    ended(db, "3 days", n=3)
    pruner = Pruner()
    assert prune(db, 7 * 86_400.0, pruner=pruner) == 0
    db.execute("INSERT INTO pgsched.queues (name, keep) VALUES ('default', '{\"any\": \"1 hour\"}')")
    with db.transaction():
        assert pruner.prune_batch(db, 100) == 3


def test_runs_that_were_read_once_are_not_read_again(db: psycopg.Connection) -> None:
    ended(db, "3 days", "dead", n=50)
    keep(db, any="1 day", dead="30 days")
    count(db)
    pruner = Pruner()
    with db.transaction():
        assert pruner.prune_batch(db, 100) == 0
    ended(db, "26 hours", n=2)  # these ended after all that was read: the pruner has read up to one day ago
    db.execute("UPDATE pgsched.runs SET finished_at = clock_timestamp() - interval '1 day' WHERE state = 'succeeded'")
    with db.transaction():
        picked = retention.lock_expired(
            db, 86_400.0, (datetime.now(UTC) - timedelta(days=1, seconds=30)).isoformat(), datetime.now(UTC), 100
        )
    assert picked.read == 2
    with db.transaction():
        assert pruner.prune_batch(db, 100) == 2


def test_a_batch_waits_for_the_disk_only_if_its_rows_were_handed_on(db: psycopg.Connection) -> None:
    ended(db, "30 days", n=2)
    count(db)
    db.execute("SET synchronous_commit = on")
    told: list[object] = []
    for pruner, waits in ((Pruner(), "off"), (Pruner(told.extend), "on")):
        with db.transaction():
            assert pruner.prune_batch(db, 1) == 1
            assert db.execute("SHOW synchronous_commit").fetchone() == (waits,)
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert len(told) == 1


def test_the_newest_slot_of_a_job_stays_until_the_job_is_deleted(db: psycopg.Connection) -> None:
    job = slots_of(db, "hourly", "30 days", 3)
    assert prune(db, 60.0) == 2
    db.execute("DELETE FROM pgsched.jobs WHERE id = %s", [job])
    assert prune(db, 60.0) == 1


def test_the_row_of_a_long_stretch_is_as_old_as_its_last_slot(db: psycopg.Connection) -> None:
    slots_of(db, "hourly", "1 hour", 1)
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, origin, finished_at, covers_from, covers_until,"
        " covers_count) SELECT id, now() - interval '30 days', 't', 'skipped', 'schedule', now() - interval '30 days',"
        " now() - interval '30 days', now() - interval '2 hours', 718 FROM pgsched.jobs"
    )
    keep(db, any="7 days")
    assert retention.count_expired(db) == []
    assert prune_all(db) == 0
    db.execute("UPDATE pgsched.runs SET covers_until = now() - interval '8 days' WHERE covers_until IS NOT NULL")
    assert [row["runs"] for row in retention.count_expired(db)] == [1]
    assert prune_all(db) == 1


def test_a_run_that_is_not_counted_yet_stays(db: psycopg.Connection) -> None:
    ended(db, "30 days")
    with db.transaction():
        assert Pruner().prune_batch(db, 100) == 0
    count(db)
    with db.transaction():
        assert Pruner().prune_batch(db, 100) == 1


def test_attempts_and_output_go_with_their_run(db: psycopg.Connection) -> None:
    ended(db, "30 days", "dead")
    db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome)"
               " SELECT id, gen_random_uuid(), 1, 'failed' FROM pgsched.runs")  # fmt: skip
    db.execute("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk)"
               " SELECT id, 1, 1, 'stdout', 'hello' FROM pgsched.runs")  # fmt: skip
    assert prune(db, 60.0) == 1
    for table in ("attempts", "run_logs"):
        assert db.execute(f"SELECT count(*) FROM pgsched.{table}".encode()).fetchone() == (0,)


def test_a_locked_run_holds_up_nothing_and_is_pruned_later(db: psycopg.Connection, connect: Open) -> None:
    ended(db, "30 days", n=3)
    other = connect(autocommit=False)
    other.execute("SELECT FROM pgsched.runs ORDER BY id LIMIT 1 FOR KEY SHARE")
    count(db)
    impatient = connect(options="-c lock_timeout=500ms")
    with impatient.transaction():
        assert Pruner().prune_batch(impatient, 100) == 2
    other.rollback()
    assert prune_all(db) == 1


def test_the_archive_gets_pruned_runs_with_their_attempts_and_output(db: psycopg.Connection) -> None:
    slots_of(db, "hourly", "30 days", 2, "dead")
    db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, error)"
               " SELECT id, gen_random_uuid(), 1, 'failed', 'broke' FROM pgsched.runs")  # fmt: skip
    db.execute("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk)"
               " SELECT id, 1, 1, 'stdout', 'hello' FROM pgsched.runs")  # fmt: skip
    db.execute("UPDATE pgsched.retention SET archive = true")
    assert prune(db, 60.0) == 1
    rows = db.execute("SELECT job, state, run FROM pgsched.archived_runs").fetchall()
    assert [(job, state) for job, state, _ in rows] == [("hourly", "dead")]
    run = rows[0][2]
    assert (run["task"], run["attempts"][0]["error"], run["output"][0]["chunk"]) == ("t", "broke", "hello")


def test_an_archive_that_cannot_be_written_keeps_the_rows(db: psycopg.Connection) -> None:
    ended(db, "30 days", n=2)
    db.execute("UPDATE pgsched.retention SET archive = true")
    db.execute("ALTER TABLE pgsched.archived_runs ADD CONSTRAINT full_up CHECK (false)")
    with pytest.raises(psycopg.errors.CheckViolation):
        prune(db, 60.0)
    assert left(db) == {"succeeded default": 2}


def test_the_high_water_mark_outlives_the_rows_and_explain_says_so(db: psycopg.Connection) -> None:
    job = slots_of(db, "hourly", "3 hours", 20)
    row = db.execute("SELECT scheduled_at FROM pgsched.runs ORDER BY scheduled_at LIMIT 1").fetchone()
    assert row is not None
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET anchor_at = date_trunc('hour', clock_timestamp()) - interval '30 days',"
            " created_at = clock_timestamp() - interval '30 days', decided_until = clock_timestamp() WHERE id = %s",
            [job],
        )
    before = db.execute("SELECT decided_until, run_count FROM pgsched.jobs").fetchone()
    assert prune(db, 60.0) == 19
    assert db.execute("SELECT decided_until, run_count FROM pgsched.jobs").fetchone() == before
    told = explain_slot(db, "hourly", row[0].isoformat())
    assert "pruned" in told.text, told.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"failed": "1 day"}', 'keep: "failed" is not one of'),
        ('{"dead": "soon"}', 'keep: dead: "soon" is not an interval'),
        ('{"dead": 7}', "keep: dead: 7 is not an interval: it needs a unit"),
        ('{"any": "-1 day"}', "keep: any: -1 days is less than"),
        ("[]", "keep: expected an object"),
    ],
)
@pytest.mark.parametrize("table", ["jobs", "queues", "retention"])
def test_a_wrong_setting_is_refused_with_its_reason(db: psycopg.Connection, table: str, given: str, said: str) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('j', 't')")
    db.execute("INSERT INTO pgsched.queues (name) VALUES ('q')")
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        db.execute(f"UPDATE pgsched.{table} SET keep = %s".encode(), [given])
    assert said in str(refused.value)


def test_changes_of_retention_settings_are_audited(db: psycopg.Connection) -> None:
    retention.change_settings(db, {"keep": {"any": "1 day"}, "archive": True})
    row: Any = db.execute("SELECT what, name, change FROM pgsched.audit ORDER BY id DESC LIMIT 1").fetchone()
    assert row[:2] == ("retention", "everything")
    assert row[2]["archive"] == [False, True]
