"""An incident ends when a run has gone well, and not merely because the bad run is no longer visible."""

from __future__ import annotations

import psycopg

from pgsched.db.queries.leader import alerts
from tests.support.db.alerting import check, job, open_kinds, slot
from tests.support.db.setting import Open


def state(db: psycopg.Connection, run: int, state: str, **columns: object) -> None:
    """Put the run into this state."""
    given = {"state": state, "finished_at": None} | columns
    sets = ", ".join(f"{name} = %({name})s" for name in given)
    db.execute(f"UPDATE pgsched.runs SET {sets} WHERE id = %(id)s".encode(), given | {"id": run})


def attempt(db: psycopg.Connection, run: int) -> None:
    """Add the evidence of the run's attempt, as settling does."""
    db.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at)"
        " SELECT id, gen_random_uuid(), attempt, 'failed', started_at FROM pgsched.runs WHERE id = %s",
        [run],
    )


def ended_now(db: psycopg.Connection, run: int, how: str = "succeeded") -> None:
    db.execute(
        "UPDATE pgsched.runs SET state = %s, started_at = clock_timestamp(), finished_at = clock_timestamp()"
        " WHERE id = %s",
        [how, run],
    )


def test_a_retry_that_has_not_succeeded_does_not_end_failures(db: psycopg.Connection) -> None:
    """The incident once ended before the retry had run, and a second one opened when the retry failed."""
    mine = job(db, alert_after_failures=2)
    for hours, how in ((9, "succeeded"), (8, "dead"), (7, "dead")):
        last = slot(db, mine, hours, how)
    assert check(db) == [("opened", "failures")]
    state(db, last, "queued")
    assert check(db) == []
    ended_now(db, last, "dead")
    assert check(db) == []
    state(db, last, "queued")
    ended_now(db, last)
    assert check(db) == [("closed", "failures")]
    assert alerts.list_alerts(db, everything=True)[0]["recovery"] == "a run succeeded"


def test_deleted_rows_do_not_end_failures(db: psycopg.Connection) -> None:
    mine = job(db, alert_after_failures=2)
    slot(db, mine, 9, "succeeded")
    old = slot(db, mine, 8, "dead")
    slot(db, mine, 7, "dead")
    assert check(db) == [("opened", "failures")]
    db.execute("DELETE FROM pgsched.runs WHERE id = %s", [old])  # as if its retention were an hour
    assert check(db) == []
    db.execute("UPDATE pgsched.jobs SET alert_after_failures = 5")
    assert check(db) == [], "nothing has succeeded"
    slot(db, mine, 6, "succeeded")
    assert check(db) == [("closed", "failures")]


def test_a_long_attempt_that_is_retried_is_one_incident(db: psycopg.Connection) -> None:
    mine = job(db, max_duration="10 minutes")
    run = slot(db, mine, 1, "running")
    assert check(db) == [("opened", "duration")]
    attempt(db, run)
    state(db, run, "scheduled")
    assert check(db) == [], "it was stopped after an hour, which is no good end"
    db.execute(
        "UPDATE pgsched.runs SET state = 'running', attempt = 2, started_at = clock_timestamp() WHERE id = %s", [run]
    )
    assert check(db) == []
    ended_now(db, run)
    assert check(db) == [("closed", "duration")]


def test_a_slot_that_began_late_is_late_however_often_it_is_tried(db: psycopg.Connection) -> None:
    mine = job(db, max_lateness="10 minutes")
    slot(db, mine, 2, "succeeded")
    late = slot(db, mine, 1, "running")
    db.execute("UPDATE pgsched.runs SET started_at = started_at + interval '20 minutes' WHERE id = %s", [late])
    assert check(db) == [("opened", "lateness")]
    attempt(db, late)
    db.execute("UPDATE pgsched.runs SET attempt = 2 WHERE id = %s", [late])
    assert (check(db), open_kinds(db)) == ([], ["lateness"])
    slot(db, mine, 0.5, "succeeded")
    assert check(db) == [("closed", "lateness")]
    again = slot(db, mine, 0.4, "succeeded")
    attempt(db, again)
    db.execute(
        "UPDATE pgsched.runs SET attempt = 2, started_at = started_at + interval '15 minutes' WHERE id = %s", [again]
    )
    assert check(db) == [], "its first attempt was in time"


def test_a_run_that_snoozed_is_not_late(db: psycopg.Connection) -> None:
    """The run began on time and snoozed for an hour. The attempt that began then is not its first one."""
    mine = job(db, max_lateness="10 minutes")
    run = slot(db, mine, 2, "succeeded")
    off = "UPDATE pgsched.runs SET {} = scheduled_at + interval '1 hour' WHERE id = %s"
    db.execute(off.format("started_at").encode(), [run])
    assert check(db) == [("opened", "lateness")], "nothing had put it off"
    db.execute(off.format("available_at").encode(), [run])
    assert check(db) == [("closed", "lateness")]
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET after_jobs = '{7}'")
    assert check(db) == [("opened", "lateness")], "what waited for other jobs was put off by them"


def test_a_locked_alert_does_not_make_the_leader_wait(db: psycopg.Connection, connect: Open) -> None:
    db.execute("INSERT INTO pgsched.alerts (job_id, kind, details) VALUES (0, 'no_leader', 'x')")
    db.execute(
        "INSERT INTO pgsched.alerts (job_id, kind, details, closed_at)"
        " VALUES (0, 'test', 'x', clock_timestamp() - interval '500 days')"
    )
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM pgsched.alerts FOR UPDATE")
    db.execute("SET lock_timeout = '1s'")
    alerts.close_no_leader(db)
    holder.rollback()
    alerts.close_no_leader(db)
    assert (open_kinds(db), len(alerts.list_alerts(db, everything=True))) == ([], 1)
