"""A process is registered together with the jobs that it declares.

A declared job is not removed while a process that declares it may be there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.db.queries.jobs import jobs, registration
from pgsched.db.queries.jobs.registration import delete_undeclared, register
from pgsched.db.queries.leader import retention
from pgsched.db.queries.runs import claims, workers
from pgsched.leader import declarations
from pgsched.leader.duties.housekeeping import DeclarationsDuty
from pgsched.worker.registration import register_again
from tests.support.apps.releases import new, nothing, old, release
from tests.support.db.clocks import HOUR, moved
from tests.support.db.leading import duty_of, lead
from tests.support.db.setting import Aside, Open, cut, wait_until_blocked
from tests.support.fleet import one
from tests.support.releases import a_run_that_waits, begin, declared, end, process, rounds, state_of, time_passes

GRACE_S = 600.0
LOCK = "pgsched.try_declare_turn()"
BOTH = {"salaries", "letters", "bonuses"}


def test_a_process_records_the_jobs_that_its_code_declares(db: psycopg.Connection) -> None:
    begin(db, new)
    register(db, replace(process(new), jobs=None))
    found = db.execute("SELECT app, declares FROM pgsched.workers ORDER BY id").fetchall()
    assert found == [("payroll", ["bonuses", "salaries"]), ("payroll", None)]


def test_a_process_and_its_jobs_are_written_together_or_not_at_all(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(workers, "insert_worker", fails)
    with pytest.raises(ZeroDivisionError):
        begin(db, new)
    assert declared(db) == set()


# ---- at the start of a process


def test_a_process_that_is_alone_removes_undeclared_jobs_at_once(db: psycopg.Connection) -> None:
    end(db, *begin(db, old, old))
    register(db, process(release(App("other"), theirs="@daily")))
    jobs.add(db, {"name": "by hand", "task": "t", "schedule": "@daily"})
    assert register(db, process(new))[1] == {"salaries": "unchanged", "bonuses": "created", "letters": "removed"}
    assert declared(db) == {"salaries", "bonuses", "theirs", "by hand"}


def test_a_process_that_is_not_alone_removes_no_job(db: psycopg.Connection) -> None:
    begin(db, new)
    assert register(db, process(old))[1] == {"salaries": "unchanged", "letters": "created", "bonuses": "left"}


def test_a_process_that_has_not_recorded_its_jobs_counts_as_well(db: psycopg.Connection) -> None:
    begin(db, new)
    db.execute("UPDATE pgsched.workers SET declares = NULL")
    assert register(db, process(old))[1]["bonuses"] == "left"


def test_a_killed_process_counts_because_it_may_come_back(db: psycopg.Connection) -> None:
    """A process may also only seem killed: after an outage of the database, every process was silent that long."""
    begin(db, old)
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '9 minutes'")
    first, done = register(db, process(new))
    assert done["letters"] == "left"
    end(db, first)
    retention.delete_other_rows(db, GRACE_S, 10)
    again, done = register(db, process(new))
    assert done["letters"] == "left", "given up, but not for long"
    end(db, again)
    db.execute("UPDATE pgsched.workers SET stopped_at = stopped_at - interval '1 minute' WHERE stopping_at IS NULL")
    assert register(db, process(new))[1]["letters"] == "removed"


# ---- the leader


def test_a_job_is_removed_a_while_after_its_last_declaring_process(db: psycopg.Connection) -> None:
    first, _, last = begin(db, new, old, new)
    leader = rounds(db)
    waits = a_run_that_waits(db, "bonuses")
    end(db, first)
    time_passes(db, 60)
    assert declared(leader()) == BOTH
    end(db, last)
    db.execute("UPDATE pgsched.workers SET stopped_at = stopped_at - interval '9 minutes' WHERE id = %s", [last])
    assert declared(leader()) == BOTH, "a crash loop starts again within five"
    db.execute("UPDATE pgsched.workers SET stopped_at = stopped_at - interval '1 minute' WHERE id = %s", [last])
    assert declared(leader()) == BOTH - {"bonuses"}
    assert state_of(db, waits) == "cancelled"


def test_a_deploy_removes_jobs_as_a_rollback_does(db: psycopg.Connection) -> None:
    before, _ = begin(db, old, new)
    end(db, before)
    time_passes(db, 10)
    assert declared(rounds(db)()) == BOTH - {"letters"}


def test_a_process_that_was_killed_counts_until_it_is_given_up(db: psycopg.Connection) -> None:
    killed, _ = begin(db, new, old)
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '80 seconds' WHERE id = %s", [killed])
    leader = rounds(db)
    assert declared(leader()) == BOTH
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '8 minutes' WHERE id = %s", [killed])
    assert declared(leader()) == BOTH, "given up, but not for long"
    db.execute("UPDATE pgsched.workers SET stopped_at = stopped_at - interval '2 minutes' WHERE id = %s", [killed])
    assert declared(leader()) == BOTH - {"bonuses"}


def test_no_job_is_removed_while_the_whole_app_is_down(db: psycopg.Connection) -> None:
    before, last = begin(db, new, old)
    begin(db, release(App("other"), theirs="@daily"))
    end(db, before)
    time_passes(db, 60)
    end(db, last)
    leader = rounds(db)
    assert declared(leader()) == BOTH | {"theirs"}
    time_passes(db, 60)
    assert declared(leader()) == BOTH | {"theirs"}


def test_no_job_is_removed_while_the_only_process_is_silent(db: psycopg.Connection) -> None:
    before, last = begin(db, new, old)
    end(db, before)
    time_passes(db, 60)
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '31 seconds' WHERE id = %s", [last])
    assert declared(rounds(db)()) == BOTH


def test_no_job_is_removed_while_a_process_has_not_recorded_its_jobs(db: psycopg.Connection) -> None:
    before, silent, _ = begin(db, new, new, old)
    end(db, before)
    time_passes(db, 60)
    db.execute("UPDATE pgsched.workers SET declares = NULL WHERE id = %s", [silent])
    leader = rounds(db)
    assert declared(leader()) == BOTH
    end(db, silent)
    assert declared(leader()) == BOTH, "nor a while after it"
    time_passes(db, 10)
    assert declared(leader()) == BOTH - {"bonuses"}


def test_jobs_of_other_apps_and_jobs_made_by_hand_stay(db: psycopg.Connection) -> None:
    jobs.add(db, {"name": "by hand", "task": "t", "schedule": "@daily"})
    begin(db, new, release(App("other"), theirs="@daily"))
    assert declared(rounds(db)()) == {"salaries", "bonuses", "theirs", "by hand"}


def test_no_job_is_removed_while_a_process_is_declaring(db: psycopg.Connection, connect: Open) -> None:
    before, _ = begin(db, new, old)
    end(db, before)
    time_passes(db, 60)
    starting, leader = connect(), connect()
    with starting.transaction():
        begin(starting, release(App("other")))
        with leader.transaction():
            assert delete_undeclared(leader, GRACE_S, 10) == []
    with leader.transaction():
        assert [row["name"] for row in delete_undeclared(leader, GRACE_S, 10)] == ["bonuses"]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_process_that_declares_during_a_removal_keeps_its_jobs(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = begin(db, new, old)
    end(db, before)
    time_passes(db, 60)
    if not guarded:
        cut(monkeypatch, "declare_try_lock", LOCK, "true")
    starting, leader, asides, look = connect(), connect(), [], registration.find_undeclared

    def looked(*given: Any) -> Any:
        found = look(*given)
        asides.append(Aside(lambda: register(starting, process(new))))
        wait_until_blocked(db, starting) if guarded else asides[0].result()
        return found

    monkeypatch.setattr(registration, "find_undeclared", looked)
    with leader.transaction():
        delete_undeclared(leader, GRACE_S, 10)
    asides[0].result()
    assert ("bonuses" in declared(db)) == guarded


def test_a_job_that_is_being_edited_is_removed_in_the_next_round(db: psycopg.Connection, connect: Open) -> None:
    before, _ = begin(db, release(App("payroll"), bonuses="@daily", taxes="@daily"), old)
    end(db, before)
    time_passes(db, 60)
    editor, leader = connect(autocommit=False), rounds(db)
    editor.execute("UPDATE pgsched.jobs SET priority = 1 WHERE name = 'taxes'")
    assert declared(leader()) == {"salaries", "letters", "taxes"}
    editor.commit()
    assert declared(leader()) == {"salaries", "letters"}


def test_a_clock_moved_ahead_removes_no_job(db: psycopg.Connection) -> None:
    """All processes are given up before their first heartbeat; then the old release sends the first one."""
    _, heard = begin(db, new, old)
    loop = lead(db)
    loop.run_once()
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '2 hours'")  # as the clock makes them look
    retention.delete_other_rows(db, GRACE_S, 10)
    db.execute("UPDATE pgsched.workers SET seen_at = now(), stopped_at = NULL WHERE id = %s", [heard])
    duty_of(loop, DeclarationsDuty).period.set_due_at(0)
    moved(loop, 2 * HOUR)
    loop.run_once()
    assert declared(db) == BOTH
    assert duty_of(loop, DeclarationsDuty).period.at - time.monotonic() > 25, "a lease for everybody to be heard"


def test_an_idle_leader_looks_for_undeclared_jobs_once_a_minute(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    real = registration.find_undeclared

    def counted(*given: Any) -> Any:
        looks.append(time.monotonic())
        return real(*given)

    monkeypatch.setattr(declarations.registration, "find_undeclared", counted)
    begin(db, new)
    loop = lead(db)
    for _ in range(5):
        loop.run_once()
    assert looks == []
    duty_of(loop, DeclarationsDuty).period.set_due_at(0)
    for _ in range(5):
        loop.run_once()
    assert len(looks) == 1
    assert duty_of(loop, DeclarationsDuty).period.by - time.monotonic() > 50


# ---- a worker whose row the database had lost or given up


def test_a_worker_that_was_given_up_is_told_until_it_registers_again(db: psycopg.Connection) -> None:
    given_up, _ = begin(db, new, old)
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '10 minutes' WHERE id = %s", [given_up])
    assert declared(rounds(db)()) == BOTH - {"bonuses"}
    for _ in range(2):  # the first answer may be lost
        assert not claims.heartbeat(db, given_up, 30.0, [], name="host:1").known


def test_a_worker_that_comes_back_only_restores_missing_jobs(db: psycopg.Connection) -> None:
    """A newer release may have changed the other jobs in the meantime."""
    begin(db, old)
    jobs.delete(db, "letters")
    db.execute("UPDATE pgsched.jobs SET schedule = '@hourly', declared_by = 'payroll'")
    register(db, process(release(App("payroll"), salaries="@hourly", bonuses="@daily")))
    again, _ = register_again(db, process(old))
    assert declared(db) == BOTH
    assert one(db, "SELECT schedule FROM pgsched.jobs WHERE name = 'salaries'") == "@hourly"
    assert one(db, "SELECT declares FROM pgsched.workers WHERE id = %s", again) == ["letters", "salaries"]


def test_a_worker_that_comes_back_alone_removes_no_job(db: psycopg.Connection) -> None:
    end(db, *begin(db, new))
    register_again(db, process(old))
    assert declared(db) == BOTH


def test_a_worker_whose_jobs_cannot_be_restored_is_still_registered(db: psycopg.Connection) -> None:
    app = App("payroll")
    app.job(schedule="@daily", name="report", after_jobs=["load"])(app.task(name="report")(nothing))
    register_again(db, process(app))
    assert declared(db) == set()
    assert one(db, "SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL") == 1


def test_a_locked_job_keeps_no_worker_from_registering_again(db: psycopg.Connection, connect: Open) -> None:
    begin(db, new)
    editor = connect(autocommit=False)
    editor.execute("UPDATE pgsched.jobs SET priority = 1")
    db.execute("SET lock_timeout = '100ms'")
    register_again(db, process(new))
    assert one(db, "SELECT count(*) FROM pgsched.workers") == 2


def test_a_given_up_worker_that_was_asked_to_drain_is_told_to_drain(db: psycopg.Connection) -> None:
    (worker_id,) = begin(db, new)
    db.execute("UPDATE pgsched.workers SET stopped_at = seen_at")
    db.execute("UPDATE pgsched.workers SET drain_asked_at = now(), drain_asked_by = 'ops'")
    for _ in range(2):
        beat = claims.heartbeat(db, worker_id, 30.0, [], name="host:1")
        assert (beat.known, beat.drain_by) == (True, "ops")


def test_a_draining_worker_is_not_told_that_it_was_given_up(db: psycopg.Connection) -> None:
    """A draining worker claims nothing more, and its row says that the worker is there."""
    (worker_id,) = begin(db, new)
    db.execute("UPDATE pgsched.workers SET stopped_at = seen_at")
    claims.heartbeat(db, worker_id, 30.0, [], claims.Vitals(stopping=True), name="host:1")
    assert db.execute("SELECT stopping_at IS NULL, stopped_at IS NULL FROM pgsched.workers").fetchone() == (False, True)
    workers.stop(db, worker_id, "host:1", stopped=True)


def test_a_worker_that_signed_off_does_not_look_given_up(db: psycopg.Connection) -> None:
    """A given-up worker has stopped_at = seen_at. One that signs off has a stopped_at that is a microsecond later."""
    for _ in range(100):
        (worker_id,) = begin(db, new)
        workers.stop(db, worker_id, "host:1", stopped=True)
    assert one(db, "SELECT count(*) FROM pgsched.workers WHERE stopped_at > seen_at") == 100
