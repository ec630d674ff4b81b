"""jobs.after_match: which slots of the other jobs a slot waits for."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.leader.passed_over import record_stretches
from pgsched.services.runs import changes
from tests.support.planning.after_jobs import add_job, add_slot, decide, decide_held, end, hold_slot, lead, runs, told


def pair(db: psycopg.Connection, match: str) -> None:
    """Add `load` and `report`, which waits for it; every slot until now is decided, and no other is due."""
    add_job(db, "load", schedule="0 0 1 1 *")
    add_job(db, "report", "load", schedule="0 0 1 1 *", after_match=match)


def test_latest_waits_for_the_newest_slot_until_this_one(db: psycopg.Connection) -> None:
    pair(db, "latest")
    add_slot(db, "load", 1, "succeeded")
    add_slot(db, "load", 3, "dead")
    add_slot(db, "load", 9, "dead")
    early, late = hold_slot(db, "report", 2), hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, early) == ("queued", None)
    state, reason = told(db, late)
    assert (state, reason.endswith("(t) is dead")) == ("skipped", True)


def test_latest_waits_until_that_slot_has_ended(db: psycopg.Connection) -> None:
    pair(db, "latest")
    add_slot(db, "load", 1, "succeeded")
    open_run = add_slot(db, "load", 3, "queued")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("waiting", None)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", [open_run])
    decide_held(db)
    assert told(db, held) == ("queued", None)


def test_latest_counts_no_run_that_a_person_made(db: psycopg.Connection) -> None:
    pair(db, "latest")
    add_slot(db, "load", 3, "succeeded", origin="manual")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("skipped", 'after_jobs: job "load" has no slot until this one')


def test_latest_finds_the_slot_in_a_stretch_that_runs_once(db: psycopg.Connection) -> None:
    pair(db, "latest")
    add_slot(db, "load", 1, "dead")
    add_slot(db, "load", 9, "succeeded", covers_from="2026-05-01 04:00Z", covers_until="2026-05-01 09:00Z")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("queued", None)


@pytest.mark.parametrize("match", ["latest", "since_last"])
def test_a_slot_that_is_not_decided_yet_is_waited_for(match: str, db: psycopg.Connection) -> None:
    pair(db, match)
    add_slot(db, "load", 1, "dead")
    held = hold_slot(db, "report", 5)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET decided_until = '2026-05-01 04:00Z', next_run_at = '2026-05-01 05:00Z',"
                   " paused = true WHERE name = 'load'")  # fmt: skip
    decide_held(db)
    assert told(db, held) == ("waiting", None)


def test_since_last_needs_one_success_after_the_slot_before(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "report", 2, "succeeded")
    for hour, state in ((3, "dead"), (4, "succeeded"), (5, "dead")):
        add_slot(db, "load", hour, state)
    held = hold_slot(db, "report", 6)
    decide_held(db)
    assert told(db, held) == ("queued", None)


def test_since_last_is_skipped_without_a_success(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "load", 1, "succeeded")
    add_slot(db, "report", 2, "succeeded")
    held = hold_slot(db, "report", 6)
    decide_held(db)
    assert told(db, held) == ("skipped", 'after_jobs: job "load" has not succeeded since the slot before this one')


def test_since_last_names_the_run_that_failed_and_a_retry_of_the_tree_revives_both(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "report", 2, "succeeded")
    failed = add_slot(db, "load", 3, "dead")
    add_slot(db, "load", 4, "skipped", reason="overlap: x")
    held = hold_slot(db, "report", 6)
    decide_held(db)
    assert told(db, held) == ("skipped", f"dependency: run {failed} (t) is dead")
    retried = changes.retry(db, failed)
    assert [left["id"] for left in retried.left] == [held]
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = %s", [failed])
    changes.retry_graph(db, held)
    decide_held(db)
    assert [told(db, run)[0] for run in (failed, held)] == ["queued", "waiting"]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", [failed])
    decide_held(db)
    assert told(db, held)[0] == "queued"


def test_since_last_waits_while_one_of_them_is_unfinished(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "report", 2, "succeeded")
    open_run = add_slot(db, "load", 3, "queued")
    held = hold_slot(db, "report", 6)
    decide_held(db)
    assert told(db, held) == ("waiting", None)
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = %s", [open_run])
    decide_held(db)
    assert told(db, held)[0] == "skipped"


def test_since_last_begins_where_the_interval_of_the_slot_does(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "load", 3, "succeeded")
    held = hold_slot(db, "report", 6, interval_start="2026-05-01 04:00Z")
    decide_held(db)
    assert told(db, held)[0] == "skipped"


def test_the_first_slot_of_all_takes_any_success(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "load", 3, "succeeded")
    held = hold_slot(db, "report", 6)
    decide_held(db)
    assert told(db, held) == ("queued", None)


def test_the_match_holds_for_slots_of_the_schedule(db: psycopg.Connection) -> None:
    add_job(db, "load", schedule="@every 1s", catch_up="all")
    add_job(db, "report", "load", schedule="@every 2s", catch_up="all", after_match="latest")
    decide(db, 2)
    end(db, "load")
    end(db, "load", "dead")
    lead(db)
    assert {state for state, _ in runs(db, "report")} <= {"queued", "skipped", "waiting"}
    assert db.execute("SELECT FROM pgsched.runs WHERE options ? 'after_match' AND state = 'queued'").fetchall() == []


@pytest.mark.parametrize("match", ["same", "latest", "since_last"])
def test_a_run_by_hand_is_no_end_of_a_stretch(match: str, db: psycopg.Connection) -> None:
    pair(db, match)
    add_slot(db, "report", 4, "succeeded")
    add_slot(db, "load", 6, "dead", origin="manual")
    add_slot(db, "load", 9, "succeeded", covers_from="2026-05-01 03:00Z", covers_until="2026-05-01 09:00Z")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("queued", None)


def test_latest_takes_the_own_run_of_a_slot_before_its_stretch(db: psycopg.Connection) -> None:
    pair(db, "latest")
    add_slot(db, "load", 5, "succeeded", origin="backfill")
    add_slot(db, "load", 9, "dead", covers_from="2026-05-01 03:00Z", covers_until="2026-05-01 09:00Z")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("queued", None)


def test_since_last_waits_for_a_stretch_that_holds_the_slot(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "report", 2, "succeeded")
    late = add_slot(db, "load", 9, "queued", covers_from="2026-05-01 03:00Z", covers_until="2026-05-01 09:00Z")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("waiting", None)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", [late])
    decide_held(db)
    assert told(db, held) == ("queued", None)


# ---- jobs in mode shadow


@pytest.mark.parametrize("match", ["same", "latest", "since_last"])
def test_a_job_in_mode_shadow_is_not_waited_for(match: str, db: psycopg.Connection) -> None:
    pair(db, match)
    db.execute("UPDATE pgsched.jobs SET mode = 'shadow' WHERE name = 'load'")
    for hour in (3, 5):
        add_slot(db, "load", hour, "skipped", reason="shadow")
    known, unknown = hold_slot(db, "report", 5), hold_slot(db, "report", 6)
    decide_held(db)
    assert [told(db, held) for held in (known, unknown)] == [("queued", None)] * 2


@pytest.mark.parametrize("match", ["same", "latest", "since_last"])
def test_what_was_decided_in_mode_shadow_counts_as_done_after_it(match: str, db: psycopg.Connection) -> None:
    pair(db, match)
    add_slot(db, "report", 2, "succeeded")
    add_slot(db, "load", 5, "skipped", reason="shadow: would be missed: late, and the catch-up policy is skip")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("queued", None)


def test_since_last_takes_one_slot_of_mode_shadow_for_a_success(db: psycopg.Connection) -> None:
    pair(db, "since_last")
    add_slot(db, "report", 2, "succeeded")
    add_slot(db, "load", 3, "skipped", reason="shadow")
    first = add_slot(db, "load", 4, "queued")
    held = hold_slot(db, "report", 6)
    decide_held(db)
    assert told(db, held) == ("waiting", None), "the job runs again, and its first slot may still succeed"
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = %s", [first])
    decide_held(db)
    assert told(db, held) == ("queued", None)


@pytest.mark.parametrize("match", ["same", "latest", "since_last"])
def test_a_run_of_a_job_in_mode_shadow_is_waited_for(match: str, db: psycopg.Connection) -> None:
    pair(db, match)
    db.execute("UPDATE pgsched.jobs SET mode = 'shadow' WHERE name = 'load'")
    add_slot(db, "report", 2, "succeeded")
    mine = add_slot(db, "load", 5, "queued")
    held = hold_slot(db, "report", 5)
    decide_held(db)
    assert told(db, held) == ("waiting", None)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", [mine])
    decide_held(db)
    assert told(db, held) == ("queued", None)


@pytest.mark.parametrize("match", ["same", "latest", "since_last"])
def test_slots_that_left_the_mode_shadow_undecided_are_waited_for(match: str, db: psycopg.Connection) -> None:
    pair(db, match)
    add_slot(db, "load", 1, "dead")
    add_slot(db, "report", 2, "succeeded")
    held = hold_slot(db, "report", 5)
    db.execute(
        "INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason)"
        " SELECT id, '0 * * * *', 'UTC', anchor_at, '2026-05-01 03:00Z', '2026-05-01 07:00Z', 'skipped', 'shadow'"
        " FROM pgsched.jobs WHERE name = 'load'"
    )
    decide_held(db)
    assert told(db, held) == ("waiting", None)
    with db.transaction():
        record_stretches(db)
    decide_held(db)
    assert told(db, held) == ("queued", None)


@pytest.mark.parametrize("wrong", ["Latest", "", "any"])
def test_a_wrong_match_is_refused(wrong: str, db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="after_match: "):
        add_job(db, "load", after_match=wrong)
