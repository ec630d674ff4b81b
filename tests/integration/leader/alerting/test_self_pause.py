"""jobs.pause_after_failures: a job whose runs fail in a row pauses itself, says why, and is resumed as any other."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import alerts
from pgsched.leader.alerting import incidents
from pgsched.leader.alerting.incidents import UNWATCHED_S
from pgsched.leader.duties.housekeeping import AlertsDuty
from tests.support.db.alerting import check, job, slot
from tests.support.db.leading import duty_of, lead
from tests.support.db.setting import Aside, Open


def pause(db: psycopg.Connection) -> list[str]:
    return [row["job"] for row in alerts.pause_failing_jobs(db) if row["error"] is None]


def test_a_job_pauses_itself_after_so_many_dead_runs_in_a_row(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=2)
    slot(db, mine, 9, "dead")
    slot(db, mine, 8, "succeeded")
    slot(db, mine, 7, "dead")
    slot(db, mine, 6, "skipped")
    slot(db, mine, 5.5, "dead", origin="backfill")
    assert pause(db) == []
    last = slot(db, mine, 5, "dead")
    assert pause(db) == ["j"]
    found = jobs.show_job(db, "j")
    why = f"2 of its runs in a row failed (pause_after_failures), the last, run {last}, with: broke"
    assert (found["paused"], found["paused_by"], found["paused_reason"]) == (True, "pgsched", why)
    assert pause(db) == []


def test_it_is_in_the_audit_and_an_incident_until_it_is_resumed(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=1)
    run = slot(db, mine, 5, "dead")
    pause(db)
    (one,) = alerts.list_alerts(db)
    assert (one["kind"], one["run_id"], one["job"]) == ("paused", run, "j")
    assert one["details"].startswith("it has paused itself: 1 of its runs")
    assert check(db) == [], "it is watched for nothing else"
    noted = db.execute("SELECT action, what, name, change ->> 'paused_by' FROM pgsched.audit WHERE action = 'paused'")
    ((action, what, name, _),) = noted.fetchall()
    assert (action, what, name) == ("paused", "job", "j")
    jobs.update(db, "j", {"paused": False})
    assert check(db) == [("closed", "paused")]
    assert alerts.list_alerts(db, everything=True)[0]["recovery"] == "it was resumed"


def test_after_a_resume_it_counts_anew(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=2)
    for hours in (9, 8):
        slot(db, mine, hours, "dead")
    pause(db)
    jobs.update(db, "j", {"paused": False})
    assert pause(db) == []
    slot(db, mine, -1, "dead")
    assert pause(db) == []
    slot(db, mine, -2, "dead")
    assert pause(db) == ["j"]


def test_without_the_instant_of_the_resume_it_pauses_at_once_again(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=1)
    slot(db, mine, 9, "dead")
    pause(db)
    jobs.update(db, "j", {"paused": False})
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET resumed_at = NULL")
    assert pause(db) == ["j"]


def test_a_locked_job_or_one_that_cannot_be_edited_holds_up_no_other(db: psycopg.Connection, connect: Open) -> None:
    for name in ("locked", "wrong", "right"):
        slot(db, job(db, name, pause_after_failures=1), 5, "dead")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET timezone = 'Nowhere' WHERE name = 'wrong'")
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.jobs WHERE name = 'locked' FOR UPDATE")
    assert Aside(lambda: pause(db)).result(10) == ["right"]
    person.rollback()
    assert pause(db) == ["locked"]


def test_a_job_that_cannot_be_paused_is_said_once(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, str]] = []
    monkeypatch.setattr(incidents.logger, "error", lambda event, **more: said.append(more))
    slot(db, job(db, "wrong", pause_after_failures=1), 5, "dead")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET timezone = 'Nowhere'")
    loop = lead(db)
    for _ in range(2):
        duty_of(loop, AlertsDuty).watch.look(db, loop.term.leading, leads=True)
    (line,) = said
    assert line["job"] == "wrong" and line["error"].startswith("timezone: ")


def test_the_leader_does_it_with_its_alerts_and_says_so(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=1)
    slot(db, mine, 5, "dead")
    loop = lead(db)
    duty = duty_of(loop, AlertsDuty)
    duty.watch.look(db, loop.term.leading, leads=True)
    assert jobs.show_job(db, "j")["paused"] is True


def test_a_worker_without_a_leader_pauses_nothing(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=1)
    slot(db, mine, 5, "dead")
    loop = lead(db)
    assert duty_of(loop, AlertsDuty).watch.look(db, loop.term.leading, leads=False) == UNWATCHED_S
    assert jobs.show_job(db, "j")["paused"] is False


def test_a_job_in_mode_shadow_goes_on_deciding_its_slots(db: psycopg.Connection) -> None:
    mine = job(db, pause_after_failures=1, mode="shadow")
    slot(db, mine, 5, "dead", origin="manual")
    assert pause(db) == []
    jobs.set_mode(db, "j", "run")
    assert pause(db) == ["j"]


@pytest.mark.parametrize("wrong", [0, 1001, -1])
def test_a_wrong_number_is_refused(db: psycopg.Connection, wrong: int) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="pause_after_failures: "):
        job(db, pause_after_failures=wrong)
