"""A retry of an old slot costs no new slot of its job, whatever the overlap policy says."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.db.overlapping import admitted, finish, job_with_a_run, states, ticked
from tests.support.db.setting import cut, row_of


def dead_slot(db: psycopg.Connection, **columns: str) -> int:
    """Add a job with a dead old slot; return the run's id."""
    run_id = job_with_a_run(db, "running", **columns)
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now(), token = NULL, lease_until = NULL")
    return run_id


def retried(db: psycopg.Connection, **columns: str) -> int:
    """Add a job with a dead old slot, and retry that slot; return the run's id."""
    run_id = dead_slot(db, **columns)
    db.execute("SELECT pgsched.retry(%s)", [run_id])
    return run_id


def test_under_skip_a_slot_waits_for_a_run_that_was_retried(db: psycopg.Connection) -> None:
    run_id = retried(db, overlap="skip")
    assert ticked(db) == [("waiting", f"overlap: run {run_id} was not finished")]
    assert admitted(db) == 0, "both at once is what skip is against"
    finish(db)
    assert admitted(db) == 1
    assert states(db) == ["succeeded", "queued"]


def test_only_one_slot_waits_for_it(db: psycopg.Connection) -> None:
    retried(db, overlap="skip")
    assert [state for state, _ in ticked(db, 3)] == ["waiting", "skipped", "skipped"]
    assert [state for state, _ in ticked(db)][-1] == "skipped"


def test_a_run_that_was_not_retried_still_skips_a_slot(db: psycopg.Connection) -> None:
    retried(db, overlap="skip")
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-02Z', 't' FROM pgsched.jobs")
    assert [state for state, _ in ticked(db)] == ["skipped"]


def wait_for_a_dead_parent(db: psycopg.Connection, run_id: int) -> None:
    """Let a run that never started be retried, and so wait again for a parent that is dead."""
    db.execute("UPDATE pgsched.runs SET attempt = 0, started_at = NULL, state = 'skipped', finished_at = now(),"
               " token = NULL, lease_until = NULL WHERE id = %s", [run_id])  # fmt: skip
    db.execute("INSERT INTO pgsched.runs (task, state, finished_at) VALUES ('p', 'dead', now())")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of, state)"
                   " SELECT %s, max(id), 'cancel', false, 'failed' FROM pgsched.runs", [run_id])  # fmt: skip
    db.execute("SELECT pgsched.retry(%s)", [run_id])
    assert row_of(db, run_id)["state"] == "waiting"


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "replace"])
def test_a_retried_run_that_waits_for_others_holds_up_nothing(overlap: str, db: psycopg.Connection) -> None:
    run_id = dead_slot(db, overlap=overlap)
    wait_for_a_dead_parent(db, run_id)
    assert ticked(db) == [("queued", None)]
    assert row_of(db, run_id)["state"] == "waiting", "nor is it replaced"


def test_without_its_exception_such_a_run_would_skip_every_slot(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = dead_slot(db, overlap="skip")
    wait_for_a_dead_parent(db, run_id)
    cut(monkeypatch, "tick_open", "  AND (r.reruns IS NULL OR r.phase > 0 OR r.ready_at IS NOT NULL)\n")
    assert [state for state, _ in ticked(db)] == ["waiting"]
    assert [state for state, _ in ticked(db)][-1] == "skipped"


def test_a_slot_that_waits_passes_an_older_one_that_was_retried(db: psycopg.Connection) -> None:
    run_id = dead_slot(db, overlap="buffer_all")
    wait_for_a_dead_parent(db, run_id)
    db.execute("SELECT pgsched.trigger(name) FROM pgsched.jobs")
    assert ticked(db)[0] == ("waiting", None)
    finish(db)
    assert admitted(db) == 1
