"""A batch prepared before its instant is decided as if at the instant, and its rows are visible only from then on."""

from __future__ import annotations

import time

import psycopg
import pytest

from pgsched.db.queries.leader import ticks
from pgsched.leader.ticker import tick
from pgsched.leader.timing import preparation
from pgsched.leader.timing.preparation import FIRST_S, LONGEST_S, SHORTEST_S, PreparationLead
from tests.support.db.leading import add_coming_jobs, lead
from tests.support.db.setting import Aside, Open, cut, slots, wait_until_blocked
from tests.support.waiting import wait_until


def states(db: psycopg.Connection) -> list[tuple[str, str | None]]:
    return db.execute("SELECT state, reason FROM pgsched.runs ORDER BY id").fetchall()


def test_prepared_runs_are_claimable_at_the_commit(db: psycopg.Connection) -> None:
    at = add_coming_jobs(db, 3, 5)
    with db.transaction():
        done = tick(db, 100, lead_s=10)
        assert (done.jobs, done.slots, done.instant, done.undecided_count) == (3, 3, at, 0)
    assert states(db) == [("queued", None)] * 3, "not scheduled for later, and not late"
    row = db.execute("SELECT DISTINCT scheduled_at, decided_until FROM pgsched.runs, pgsched.jobs").fetchall()
    assert row == [(at, at)]


def test_the_leader_commits_no_earlier_than_the_instant(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "FIRST_S", 0.3)
    at = add_coming_jobs(db, 20, 1)
    loop = lead(connect())
    while slots(db) == (0, 0):
        seen = db.execute("SELECT clock_timestamp()").fetchone()
        time.sleep(min(0.01, loop.run_once()))
    after = db.execute("SELECT clock_timestamp()").fetchone()
    assert seen is not None and after is not None
    assert after[0] >= at, "nobody sees a run before its slot"
    assert slots(db) == (20, 20)
    prepared = db.execute("SELECT bool_or(created_at < scheduled_at) FROM pgsched.runs").fetchone()
    assert prepared == (True,), "its rows were made before"


def test_jobs_with_an_unfinished_run_are_decided_at_the_instant(db: psycopg.Connection) -> None:
    """The run may end before the instant. A slot prepared ahead would be skipped because of a run that has ended."""
    add_coming_jobs(db, 2, 5)
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT min(id), '2020-01-01', 't' FROM pgsched.jobs"
    )
    with db.transaction():
        done = tick(db, 100, lead_s=10)
        assert (done.jobs, done.undecided_count) == (1, 1)
    assert slots(db) == (2, 2)


def test_jobs_that_are_due_now_are_not_delayed_by_coming_jobs(db: psycopg.Connection) -> None:
    add_coming_jobs(db, 1, 5)
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('now', 't')")
    with db.transaction():
        done = tick(db, 100, lead_s=10)
        assert (done.jobs, done.instant) == (1, None)
    assert db.execute("SELECT count(*) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = job_id WHERE name = 'now'"
                      ).fetchone() == (1,)  # fmt: skip


def test_only_one_instant_is_prepared_at_once(db: psycopg.Connection) -> None:
    add_coming_jobs(db, 2, 5)
    db.execute("UPDATE pgsched.jobs SET next_run_at = next_run_at + interval '1 ms' WHERE name = 'j2'")
    with db.transaction():
        assert tick(db, 100, lead_s=10).jobs == 1, "the other's batch would have to wait for its own"


def test_a_leader_that_can_prepare_nothing_waits_without_a_lock(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "FIRST_S", 10.0)
    at = add_coming_jobs(db, 1, 0.5)
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-01', 't' FROM pgsched.jobs")
    loop = lead(connect())
    rounds = 0
    while slots(db) == (1, 1):
        time.sleep(loop.run_once())
        rounds += 1
    assert rounds < 15, "and does not spin"
    assert states(db)[1][0] == "skipped"
    now = db.execute("SELECT clock_timestamp()").fetchone()
    assert now is not None and now[0] >= at


def test_an_edit_of_a_prepared_job_waits_for_the_commit_and_applies_after_it(
    db: psycopg.Connection, connect: Open
) -> None:
    add_coming_jobs(db, 1, 5)
    leader, person = connect(autocommit=False), connect()
    leader.execute("SELECT 1")
    tick(leader, 100, lead_s=10)
    pausing = Aside(lambda: person.execute("UPDATE pgsched.jobs SET paused = true"))
    wait_until_blocked(db, person)
    leader.commit()
    pausing.result()
    assert states(db) == [("queued", None)]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_starts_while_a_batch_waits_counts_for_its_overlap(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "tick_crossed", "r.phase < 3", "r.phase < 0")
    add_coming_jobs(db, 2, 0.5)
    really, triggered = preparation.sleep, list[int]()

    def sleep(seconds: float) -> None:
        if not triggered:
            triggered.extend(db.execute("SELECT pgsched.trigger('j1')").fetchone() or ())
        really(seconds)

    monkeypatch.setattr(preparation, "FIRST_S", 1.0)
    loop = lead(connect())
    monkeypatch.setattr(preparation, "sleep", sleep)
    wait_until(lambda: loop.run_once() >= 0 and slots(db)[0] == 3, what="both slots to have their row")
    assert triggered, "the batch was prepared"
    found = db.execute("SELECT j.name, r.state FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id"
                       " WHERE r.origin = 'schedule' ORDER BY 1").fetchall()  # fmt: skip
    assert found == [("j1", "skipped" if guarded else "queued"), ("j2", "queued")]


@pytest.mark.parametrize("ahead", [True, False])
def test_a_clock_that_goes_back_does_not_stop_the_leader(
    ahead: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes back an hour between the query for due jobs and the query for the seconds until they are due."""
    add_coming_jobs(db, 2, 0.5 if ahead else -0.5)
    monkeypatch.setattr(preparation, "FIRST_S", 5.0)
    loop = lead(connect())
    slept, before = list[float](), ticks.seconds_until
    with monkeypatch.context() as back:
        back.setattr(ticks, "seconds_until", lambda conn, at: before(conn, at) + 3600)
        back.setattr(preparation, "sleep", slept.append)
        loop.run_once()
    assert (slept, slots(db)) == ([], (0, 0))
    wait_until(lambda: loop.run_once() >= 0 and slots(db) == (2, 2), what="the slots to have their rows")


def test_a_clock_step_back_stops_preparation_for_the_lead_at_most(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = add_coming_jobs(db, 1, 5)
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-01', 't' FROM pgsched.jobs")
    one, before = PreparationLead(), ticks.seconds_until
    monkeypatch.setattr(ticks, "seconds_until", lambda conn, at: before(conn, at) + 3600)
    with db.transaction():
        done = tick(db, 100, lead_s=10)
        assert (done.jobs, done.instant) == (0, at)
        one.wait(db, done, at, lead_s=10)
    assert (one.s(time.monotonic()), one.s(time.monotonic() + 11)) == (0.0, FIRST_S)


def test_the_lead_follows_the_time_that_batches_take() -> None:
    one = PreparationLead()
    assert one.s(0.0) == FIRST_S
    one.took(0.04)
    assert 0.04 < one.s(0.0) < 0.06, "at once: a batch that is not ready at its instant is late"
    for _ in range(3):
        one.took(0.01)
    assert one.s(0.0) > 0.03, "it may have been one that was quick"
    one.took(60.0)
    assert one.s(0.0) == LONGEST_S
    for _ in range(200):
        one.took(0.0)
    assert one.s(0.0) == SHORTEST_S
    one.off_until(5.0)
    assert (one.s(4.9), one.s(5.0)) == (0.0, SHORTEST_S)
