"""after_jobs: a slot waits for the same slot of other jobs, in addition to the policies of its own job."""

from __future__ import annotations

import psycopg
import pytest

from pgsched import App, InputError
from pgsched.db.queries.jobs.declarations import declare
from pgsched.db.queries.leader import retention
from pgsched.db.queries.runs import dependencies
from pgsched.leader.ticker import tick
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.pruning import prune
from tests.support.db.setting import Aside, Open, cut, put_back, wait_until_blocked
from tests.support.planning.after_jobs import add_job, decide, end, lead, runs


def test_a_slot_starts_when_the_same_slot_of_the_other_jobs_has_succeeded(db: psycopg.Connection) -> None:
    add_job(db, "load", catch_up="all")
    add_job(db, "check", catch_up="all")
    add_job(db, "report", "load", "check", catch_up="all")
    decide(db)
    assert runs(db, "report") == [("waiting", None)]
    end(db, "load")
    assert runs(db, "report") == [("waiting", None)]
    end(db, "check")
    assert runs(db, "report") == [("queued", None)]
    assert db.execute("SELECT DISTINCT options FROM pgsched.runs").fetchall() == [(None,)]


def test_a_slot_whose_parent_failed_is_skipped_and_says_why(db: psycopg.Connection) -> None:
    add_job(db, "load")
    add_job(db, "report", "load")
    decide(db)
    end(db, "load", "dead")
    ((state, reason),) = runs(db, "report")
    assert state == "skipped"
    assert reason.startswith("dependency: run ")
    assert reason.endswith(" (t) is dead")


@pytest.mark.long
def test_a_slot_that_the_other_job_does_not_have_is_skipped_with_a_reason(db: psycopg.Connection) -> None:
    add_job(db, "yearly", schedule="0 0 1 1 *")
    add_job(db, "report", "yearly")
    with db.transaction():
        tick(db, 5000)
    db.execute("SELECT pg_sleep_until(next_run_at) FROM pgsched.jobs WHERE name = 'report'")
    lead(db)
    assert runs(db, "report")[0] == ("skipped", 'after_jobs: job "yearly" has no such slot')


def test_a_slot_waits_for_a_paused_job_and_not_for_a_deleted_one(db: psycopg.Connection) -> None:
    load = add_job(db, "load")
    add_job(db, "report", "load")
    put_back(db, 1)
    db.execute("UPDATE pgsched.jobs SET paused = true WHERE id = %s", [load])
    lead(db)
    assert runs(db, "report")[0] == ("waiting", None)
    db.execute("DELETE FROM pgsched.jobs WHERE id = %s", [load])
    lead(db)
    assert runs(db, "report")[0] == ("skipped", f"after_jobs: job {load} is gone")


def waiting_for_a_paused_job(db: psycopg.Connection) -> None:
    """Add a waiting slot of `report`: its slot of `load` succeeded long ago, and `check` is paused."""
    add_job(db, "load")
    check = add_job(db, "check")
    add_job(db, "report", "load", "check", catch_up="all")
    put_back(db, 1)
    db.execute("UPDATE pgsched.jobs SET paused = true, resume_from = 'pause' WHERE id = %s", [check])
    lead(db)
    end(db, "load")
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin) SELECT id, now() + interval '1 day', 't',"
               " 'schedule' FROM pgsched.jobs WHERE name = 'load'")  # fmt: skip
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '1 year' WHERE phase >= 3")
    assert runs(db, "report") == [("waiting", None)]


@pytest.mark.parametrize("stretch", [False, True])
def test_a_parent_slot_is_kept_while_another_parent_job_has_not_decided(stretch: bool, db: psycopg.Connection) -> None:
    waiting_for_a_paused_job(db)
    if stretch:
        db.execute(
            "UPDATE pgsched.runs SET covers_from = scheduled_at - interval '1 hour', covers_until = scheduled_at,"
            " scheduled_at = scheduled_at - interval '1 hour' WHERE state = 'succeeded'"
        )
    assert prune(db, 0.0) == 0
    assert retention.count_expired(db) == []
    db.execute("UPDATE pgsched.jobs SET paused = false")
    lead(db)
    end(db, "check")
    assert runs(db, "report") == [("queued", None)]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE state = 'queued' AND phase < 3"
               " AND scheduled_at < now()")  # fmt: skip
    assert [row["runs"] for row in retention.count_expired(db)] == [1]
    assert prune(db, 0.0) == 1


def test_without_the_pruners_guard_a_slot_with_a_succeeded_parent_is_skipped(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_for_a_paused_job(db)
    guard = "r.job_id IS NULL OR ((r.job_id, r.scheduled_at) IN (SELECT h.job_id, h.slot FROM held h)) IS NOT TRUE"
    cut(monkeypatch, "prune_delete", guard, "true")
    assert prune(db, 1.0) == 1
    lead(db)
    assert runs(db, "report") == [("skipped", 'after_jobs: job "load" has no such slot')]


def test_a_slot_that_waits_too_long_is_missed(db: psycopg.Connection) -> None:
    add_job(db, "load")
    add_job(db, "report", "load", start_deadline="1 hour")
    decide(db)
    db.execute("UPDATE pgsched.runs SET expires_at = now() WHERE state = 'waiting'")
    lead(db)
    assert runs(db, "report")[0][0] == "missed"


def test_a_slot_that_waits_counts_for_the_overlap_policy(db: psycopg.Connection) -> None:
    add_job(db, "load", catch_up="all", overlap="allow")
    add_job(db, "report", "load", overlap="skip")
    decide(db)
    decide(db)
    states = [state for state, _ in runs(db, "report")]
    assert states[0] == "waiting"
    assert states[1:] and set(states[1:]) <= {"skipped", "missed"}


def test_a_slot_waits_for_its_overlap_policy_and_for_other_jobs(db: psycopg.Connection) -> None:
    add_job(db, "load")
    add_job(db, "report", "load", overlap="buffer_all")
    row = db.execute("SELECT pgsched.trigger('report')").fetchone()
    assert row is not None
    decide(db)
    assert [state for state, _ in runs(db, "report")] == ["waiting", "queued"]
    end(db, "load")
    assert [state for state, _ in runs(db, "report")] == ["waiting", "queued"]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", row)
    lead(db)
    assert [state for state, _ in runs(db, "report")] == ["queued", "succeeded"]


def test_a_triggered_run_waits_for_no_other_job(db: psycopg.Connection) -> None:
    add_job(db, "load", schedule="0 0 1 1 *")
    add_job(db, "report", "load", schedule="0 0 1 1 *")
    db.execute("SELECT pgsched.trigger('report')")
    lead(db)
    assert runs(db, "report") == [("queued", None)]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("{4711}", "after_jobs: there is no job 4711"),
        ("{NULL}", "after_jobs: must not hold null"),
        ("{{1,2}}", "after_jobs: must be a plain list of the ids of jobs"),
    ],
)
def test_wrong_jobs_are_refused(db: psycopg.Connection, after: str, message: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as raised:
        db.execute("INSERT INTO pgsched.jobs (name, task, after_jobs) VALUES ('a', 't', %s)", [after])
    assert raised.value.diag.message_primary == message


def test_jobs_that_would_wait_in_a_circle_are_refused(db: psycopg.Connection) -> None:
    a = add_job(db, "a")
    b = add_job(db, "b", "a")
    c = add_job(db, "c", "b")
    with pytest.raises(psycopg.errors.CheckViolation, match='job "c" waits for this one already'):
        db.execute("UPDATE pgsched.jobs SET after_jobs = ARRAY[%s::bigint] WHERE id = %s", [c, a])
    with pytest.raises(psycopg.errors.CheckViolation, match="a job cannot wait for itself"):
        db.execute("UPDATE pgsched.jobs SET after_jobs = ARRAY[id] WHERE id = %s", [b])
    db.execute("DELETE FROM pgsched.jobs WHERE id = %s", [a])
    db.execute("UPDATE pgsched.jobs SET priority = 3 WHERE id = %s", [b])


def test_slots_of_jobs_that_two_edits_put_in_a_circle_are_skipped(db: psycopg.Connection, connect: Open) -> None:
    ids = [add_job(db, name) for name in "ab"]
    edits = [connect(autocommit=False) for _ in ids]
    for edit, job, after in zip(edits, ids, reversed(ids), strict=True):
        edit.execute("SET LOCAL statement_timeout = '2s'")
        edit.execute("UPDATE pgsched.jobs SET after_jobs = ARRAY[%s::bigint] WHERE id = %s", [after, job])
    for edit in edits:
        edit.commit()
    add_job(db, "load")
    add_job(db, "report", "load")
    decide(db)
    assert ("skipped", "after_jobs: its jobs wait for each other") in runs(db, "a") + runs(db, "b")
    assert {state for name in "ab" for state, _ in runs(db, name)} == {"skipped"}
    end(db, "load")
    assert runs(db, "report") == [("queued", None)]


def held_slots(db: psycopg.Connection, connect: Open) -> psycopg.Connection:
    """Add two slots that wait for one dead run each; return the session of an open retry of the first run."""
    for load, report in (("load", "report"), ("other load", "other report")):
        add_job(db, load)
        add_job(db, report, load)
    put_back(db, 1)
    with db.transaction():
        tick(db, 5000)
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE state = 'queued'")
    person = connect(autocommit=False)
    person.execute("SELECT pgsched.retry(r.id) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id"
                   " WHERE j.name = 'load'")  # fmt: skip
    db.execute("SET lock_timeout = '300ms'")
    return person


def test_a_slot_whose_parent_is_being_retried_holds_up_no_other(db: psycopg.Connection, connect: Open) -> None:
    person = held_slots(db, connect)
    lead(db)
    assert [state for state, _ in runs(db, "report") + runs(db, "other report")] == ["waiting", "skipped"]
    person.commit()
    lead(db)
    end(db, "load")
    assert runs(db, "report") == [("queued", None)]


def test_without_a_bound_the_leader_waits_for_the_retry_of_a_parent(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = held_slots(db, connect)
    monkeypatch.setattr(dependencies, "WAIT", "1min")
    aside = Aside(lambda: lead(db))
    wait_until_blocked(connect(), db)
    person.rollback()
    aside.result()


@pytest.mark.parametrize(
    ("match", "waited_for"), [("same", "the same slot"), ("latest", "the newest slot"), ("since_last", "a success")]
)
def test_explain_says_what_a_slot_waits_for(db: psycopg.Connection, match: str, waited_for: str) -> None:
    load = add_job(db, "load")
    add_job(db, "report", "load", after_match=match)
    put_back(db, 1)
    db.execute("UPDATE pgsched.jobs SET paused = true WHERE id = %s", [load])
    lead(db)
    row = db.execute(
        "SELECT scheduled_at, pgsched.explain('report', scheduled_at) FROM pgsched.runs WHERE state = 'waiting'"
    ).fetchone()
    assert row is not None
    found = explain_slot(db, "report", row[0].isoformat())
    assert found.answer == "waiting"
    assert found.text.endswith(f"it is to run after others: it waits for {waited_for} of load.")
    assert row[1].endswith(f"it is to run after others: it waits for {waited_for} of load.")


def test_code_declares_what_a_job_waits_for_by_name(db: psycopg.Connection) -> None:
    app = App("jobs")

    @app.job(schedule="0 2 * * *", name="a report", after_jobs=["load", "check"])
    @app.job(schedule="0 2 * * *", name="load")
    @app.job(schedule="0 2 * * *", name="check")
    @app.task
    def work() -> None: ...

    assert set(declare(db, app.declared_jobs, "jobs").values()) == {"created"}
    assert set(declare(db, app.declared_jobs, "jobs").values()) == {"unchanged"}
    found = db.execute(
        "SELECT array_agg(p.name ORDER BY p.name) FROM pgsched.jobs j JOIN pgsched.jobs p ON p.id = ANY (j.after_jobs)"
        " WHERE j.name = 'a report'"
    ).fetchone()
    assert found == (["check", "load"],)
    other = App("other")
    other.job(schedule="0 2 * * *", name="b", after_jobs=["nothing"])(other.task(name="b")(lambda: None))
    with pytest.raises(InputError, match='job b: after_jobs: there is no job named "nothing"'):
        declare(db, other.declared_jobs, "other")
    with pytest.raises(InputError, match="after_jobs: expected a list of the names of jobs, got 'load'"):
        app.job(schedule="0 2 * * *", after_jobs="load")
