"""The leader's round: no job, no lock and no bug holds up the rest, and none of it is silent."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.core.planning import plan
from pgsched.core.schedule import zones
from pgsched.db.queries.leader import expired_leases, ticks
from pgsched.errors import PgschedError
from pgsched.leader import election, ticker
from pgsched.leader.dependents import Turn
from pgsched.leader.duties import claims as claims_duty
from pgsched.leader.duties import waiting as waiting_duties
from pgsched.leader.election import Leader
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.ticker import tick
from tests.support.db.leading import lead
from tests.support.db.setting import Open, add_jobs, add_runs, let_expire, row_of, slots, take


@pytest.fixture
def impatient(connect: Open) -> psycopg.Connection:
    """A leader's connection that fails the test rather than wait for a lock."""
    return connect(options="-c lock_timeout=500ms")


def overlapping(db: psycopg.Connection, overlap: str) -> int:
    """A job whose first slot is running while further ones are due; the running run's id."""
    add_jobs(db, 1, 3, overlap=overlap)
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, '2020-01-01', 't' FROM pgsched.jobs")
    (claim,) = take(db)
    return claim.id


def test_a_handler_s_transaction_holds_up_no_other_job(
    db: psycopg.Connection, connect: Open, impatient: psycopg.Connection
) -> None:
    run = overlapping(db, "terminate")
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('other', 't')")
    token = row_of(db, run)["token"]
    handler = connect(autocommit=False)
    handler.execute("SELECT pgsched.assert_claim(%s, %s)", [run, token])
    with impatient.transaction():
        tick(impatient, 100)
    other = db.execute("SELECT count(*) FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = job_id WHERE name = 'other'")
    assert other.fetchone() == (1,)
    row = row_of(db, run)
    assert (row["state"], row["token"]) == ("running", token), "what a transaction has asserted is not taken away"
    assert row["cancel_requested_at"] is not None, "it is asked instead"


def test_slots_that_cannot_be_decided_yet_hold_up_no_others(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_duties, "BATCH", 2)
    db.execute("INSERT INTO pgsched.jobs (name, task, paused) VALUES ('paused', 't', true), ('load', 't', false)")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, available_at, options)"
        " SELECT 1000 + n, '2020-01-01Z', 't', 'waiting', '8998-01-01Z', jsonb_build_object('after_jobs', ARRAY[id])"
        " FROM generate_series(1, 6) n JOIN pgsched.jobs ON name = CASE WHEN n > 5 THEN 'load' ELSE 'paused' END"
        " ORDER BY n"
    )
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task)"
               " SELECT id, '2020-01-01Z', 't' FROM pgsched.jobs WHERE name = 'load'")  # fmt: skip
    leader = lead(db)
    for _ in range(4):
        leader.run_once()
    assert db.execute("SELECT run_id, parent_id FROM pgsched.dependencies").fetchall() == [(6, 7)]
    db.execute("UPDATE pgsched.jobs SET paused = false")
    for _ in range(10):
        leader.run_once()
    reasons = db.execute("SELECT DISTINCT reason FROM pgsched.runs WHERE id < 6").fetchall()
    assert reasons == [('after_jobs: job "paused" has no such slot',)]


def test_runs_whose_parent_is_locked_hold_up_no_others(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_duties, "BATCH", 2)
    add_runs(db, 8)
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = 2")
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = 1 FOR UPDATE")
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id)"
               " SELECT id, CASE WHEN id < 8 THEN 1 ELSE 2 END FROM pgsched.runs WHERE id > 2")  # fmt: skip
    leader = lead(db)
    for _ in range(4):
        leader.run_once()
    assert row_of(db, 8)["state"] == "queued"
    person.rollback()
    for _ in range(4):
        leader.run_once()
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = 1")
    for _ in range(4):
        leader.run_once()
    assert db.execute("SELECT DISTINCT state FROM pgsched.runs WHERE id > 2").fetchall() == [("queued",)]


def test_terminate_takes_a_claim_that_nobody_asserted(db: psycopg.Connection, impatient: psycopg.Connection) -> None:
    run = overlapping(db, "terminate")
    with impatient.transaction():
        tick(impatient, 100)
    assert (row_of(db, run)["state"], row_of(db, run)["token"]) == ("cancelled", None)
    assert db.execute("SELECT outcome FROM pgsched.attempts").fetchall() == [("cancelled",)]


@pytest.mark.parametrize("overlap", ["terminate", "replace"])
def test_slots_of_one_batch_replace_each_other(overlap: str, db: psycopg.Connection) -> None:
    overlapping(db, overlap)
    with db.transaction():
        tick(db, 100)
    states = db.execute("SELECT state FROM pgsched.runs WHERE attempt = 0 ORDER BY scheduled_at").fetchall()
    assert [row[0] for row in states] == ["skipped", "skipped", "queued" if overlap == "terminate" else "waiting"]
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE reason LIKE '%replaced%'").fetchone() == (3,)


def test_a_due_job_that_somebody_edits_does_not_make_the_leader_spin(
    db: psycopg.Connection, connect: Open, impatient: psycopg.Connection
) -> None:
    add_jobs(db, 1, 3)
    person = connect(autocommit=False)
    person.execute("UPDATE pgsched.jobs SET description = 'being edited'")
    loop = lead(impatient)
    waits = [loop.run_once() for _ in range(12)]
    assert waits[-1] >= 0.1
    assert max(waits) <= 0.2
    person.rollback()
    loop.run_once()
    assert slots(db) == (3, 3)


def test_a_batch_of_many_slots_ends_early_and_goes_on(
    db: psycopg.Connection, impatient: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "MOST_SLOTS", 30)
    add_jobs(db, 10, 20)
    loop = lead(impatient)
    assert loop.run_once() == 0.0
    assert slots(db) == (40, 40)
    while slots(db)[0] < 200:
        loop.run_once()
    assert slots(db) == (200, 200)


def test_a_batch_of_schedules_that_take_long_to_read_ends_early_and_goes_on(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "READ_S", 0.0)
    for n in range(4):
        # by the wall clock of Berlin all of them lie in the hour that is skipped
        add_job(db, f"*/{n + 2} 2 * 3 0L", timezone="Europe/Berlin")
    ticks = []
    for _ in range(5):
        with db.transaction():
            ticks.append(tick(db, 100))
    assert [(ticked.jobs, ticked.errors) for ticked in ticks] == [(1, 1)] * 4 + [(0, 0)]


def test_jobs_whose_schedules_are_not_read_yet_are_not_prepared_ahead(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "READ_S", 0.0)
    for n in range(3):
        add_job(db, "@every 1h", max_buffer=n + 1)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET anchor_at = c, next_run_at = c + interval '1 hour', decided_until = c"
                   " FROM (SELECT clock_timestamp() AS c) now")  # fmt: skip
    with db.transaction():
        ticked = tick(db, 100, 4000.0)
    assert (ticked.jobs, ticked.slots, ticked.left) == (1, 1, 2)


def add_job(db: psycopg.Connection, schedule: str, **columns: Any) -> None:
    given = {"schedule": schedule, "task": "t"} | columns
    db.execute(
        f"INSERT INTO pgsched.jobs (name, {', '.join(given)}) VALUES (gen_random_uuid(){', %s' * len(given)})",
        [*given.values()],
    )


def test_reaping_more_than_a_batch_does_not_wait_for_the_next_period(
    db: psycopg.Connection, impatient: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_duty, "BATCH", 2)
    add_runs(db, 5)
    take(db, 5)
    let_expire(db)
    loop = lead(impatient, reap_every_s=3600)
    for _ in range(3):
        loop.run_once()
    assert db.execute("SELECT DISTINCT state FROM pgsched.runs").fetchall() == [("queued",)]


def test_a_job_that_fails_half_way_leaves_nothing(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add_jobs(db, 2, 5)
    real, bad = plan.due, db.execute("SELECT min(id) FROM pgsched.jobs").fetchone()
    calls: list[int] = []

    def third_time_bad(job: plan.Job, *rest: Any) -> plan.SlotRow:
        calls.append(job["id"])
        if bad and job["id"] == bad[0] and calls.count(job["id"]) == 3:
            raise OverflowError("too large")
        return real(job, *rest)

    monkeypatch.setattr(plan, "due", third_time_bad)
    with db.transaction():
        assert tick(db, 100).errors == 1
    per_job = db.execute("SELECT job_id, count(*) FROM pgsched.runs GROUP BY job_id").fetchall()
    assert [row[1] for row in per_job] == [5]


def test_a_job_whose_zone_one_leader_does_not_know_is_planned_again_by_the_next(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "paused"):
        db.execute("INSERT INTO pgsched.jobs (name, schedule, timezone, task, catch_up)"
                   " VALUES (%s, '* * * * * *', 'Pacific/Chatham', 't', 'all')", [name])  # fmt: skip
    known = zones.names()
    zones.zone.cache_clear()
    with monkeypatch.context() as old:
        old.setattr(zones, "names", lambda: known - {"Pacific/Chatham"})
        lead(db).run_once()
        look = "SELECT DISTINCT split_part(error, '; did', 1), next_run_at FROM pgsched.jobs"
        told = ('timezone: "Pacific/Chatham" is not a known IANA zone', None)
        assert db.execute(look).fetchall() == [told]
        since = db.execute("SELECT error_at FROM pgsched.jobs WHERE name = 'a'").fetchone()
        lead(db).run_once()
        assert db.execute(look).fetchall() == [told]
        assert db.execute("SELECT error_at FROM pgsched.jobs WHERE name = 'a'").fetchone() == since
    db.execute("UPDATE pgsched.jobs SET paused = true WHERE name = 'paused'")
    db.execute("SELECT pg_sleep_until(decided_until + interval '1 second') FROM pgsched.jobs WHERE name = 'a'")
    lead(db).run_once()
    found = db.execute("SELECT name, split_part(error, '; did', 1) FROM pgsched.jobs ORDER BY name").fetchall()
    assert found == [("a", None), ("paused", told[0])]
    first = db.execute("SELECT min(scheduled_at) = date_trunc('second', anchor_at) + interval '1 second'"
                       " FROM pgsched.runs JOIN pgsched.jobs j ON j.id = job_id GROUP BY j.id").fetchone()  # fmt: skip
    assert first == (True,), "no slot of the time between is lost"


def test_a_host_that_cannot_read_zones_marks_no_job(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another leader can, or this one once it has a descriptor again: the job is to be due then."""
    add_jobs(db, 1, 5, timezone="Antarctica/Troll")
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('other', 't')")

    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as once:
        once.setattr(zones, "zone", full)
        with db.transaction():
            assert tick(db, 100).errors == 0
    assert db.execute("SELECT name, error FROM pgsched.jobs WHERE next_run_at IS NOT NULL").fetchall() == [("j1", None)]
    with db.transaction():
        assert tick(db, 100).slots == 5


def test_a_fixed_delay_counts_from_the_mark_once_the_last_run_is_forgotten(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('j', '@after 10d', 't')")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET anchor_at = clock_timestamp() - interval '19 days', next_run_at = now(),"
            " decided_until = clock_timestamp() - interval '9 days', run_count = 1"
        )
    with db.transaction():
        tick(db, 100)
    assert slots(db) == (0, 0), "the slot of 9 days ago is not repeated"
    row = db.execute("SELECT next_run_at - clock_timestamp() FROM pgsched.jobs").fetchone()
    assert row is not None
    assert timedelta(hours=23) < row[0] <= timedelta(days=1)


def test_a_leader_that_fails_for_an_unknown_reason_says_so(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LeaderLoop) -> float:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(election.LeaderLoop, "run_once", broken)
    monkeypatch.setattr(election, "back_off_s", lambda *_: 0.01)
    told: list[PgschedError] = []
    Leader(dsn, LeaderSettings(), "test", on_fatal=told.append).run()
    assert [str(error) for error in told] == ["leader failed: ZeroDivisionError('a bug')"]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Every descriptor below 1024 is taken."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    taken: list[int] = []
    try:
        while not taken or taken[-1] < 1100:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
def test_a_leader_works_with_descriptors_beyond_1023(connect: Open) -> None:
    leader, conn = Leader("", LeaderSettings(), "test"), connect()
    assert conn.fileno() > 1023
    leader.pauses.pause(conn, 0.01)


def test_a_leader_gives_its_descriptors_back() -> None:
    before = set(os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else [])  # noqa: PTH208, PTH112
    for _ in range(20):
        Leader("", LeaderSettings(), "test").stop()
    after = set(os.listdir("/proc/self/fd") if before else [])  # noqa: PTH208
    assert len(after) <= len(before) + 2


@pytest.mark.parametrize("impossible", [b"SELECT 'infinity'::timestamptz", b"SELECT 1/0"])
def test_a_duty_that_fails_stops_no_other(
    impossible: bytes, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick that cannot be done, whatever the reason, must not keep expired claims from being taken back."""
    monkeypatch.setattr(ticks, "due_jobs", lambda conn, *_: conn.execute(impossible).fetchall())
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    lead(connect()).run_once()
    assert row_of(db, claim.id)["state"] == "queued"


def test_a_reap_that_fails_does_not_make_the_leader_spin(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_leases, "reap", lambda conn, *_: conn.execute("SELECT 1/0").fetchall())
    add_runs(db, 1)
    take(db)
    let_expire(db)
    loop = lead(connect(), reap_every_s=3.0)
    waits = [loop.run_once() for _ in range(3)]
    assert min(waits) > 0.5


def test_an_excluded_stretch_whose_row_is_locked_holds_up_nobody(
    db: psycopg.Connection, impatient: psycopg.Connection, connect: Open
) -> None:
    add_jobs(db, 2, 5)
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date)"
               " SELECT min(id), (now() - interval '1 day')::date + n FROM pgsched.jobs, generate_series(0, 2) n"
               " GROUP BY n")  # fmt: skip
    with impatient.transaction():
        tick(impatient, 100)
    three_seconds_later(db)
    person = connect(autocommit=False)
    (stretch,) = person.execute("SELECT id, covers_count FROM pgsched.runs WHERE state = 'skipped' FOR UPDATE")
    with impatient.transaction():
        assert tick(impatient, 100).jobs == 2
    person.rollback()
    assert row_of(db, stretch[0])["covers_count"] == stretch[1]
    rest = db.execute("SELECT sum(covers_count) FROM pgsched.runs WHERE state = 'skipped'").fetchone()
    assert rest is not None and rest[0] >= stretch[1] + 3


def three_seconds_later(db: psycopg.Connection) -> None:
    """Move the jobs and their skipped stretches three seconds into the past; the jobs go on."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        ago = "- interval '3 seconds'"
        db.execute(f"UPDATE pgsched.jobs SET anchor_at = anchor_at {ago}, decided_until = decided_until {ago},"
                   " next_run_at = clock_timestamp(), ends_at = NULL")  # fmt: skip
        db.execute("DELETE FROM pgsched.runs WHERE state <> 'skipped'")
        db.execute(f"UPDATE pgsched.runs SET scheduled_at = scheduled_at {ago}, covers_from = covers_from {ago},"
                   f" covers_until = covers_until {ago}")  # fmt: skip


@pytest.mark.parametrize("column", ["anchor_at", "decided_until", "next_run_at"])
def test_no_job_gets_a_time_that_the_leader_cannot_read(db: psycopg.Connection, column: str) -> None:
    add_jobs(db, 1, 1)
    db.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(f"UPDATE pgsched.jobs SET {column} = 'infinity'")


def test_a_file_that_this_host_cannot_read_ends_no_leader(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(waiting_duties, "resolve", full)
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET state = 'scheduled'")
    lead(db).run_once()
    assert row_of(db, 1)["state"] == "queued"


def test_what_cannot_be_resolved_holds_up_nothing_else(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(conn: psycopg.Connection, n: int, turn: Turn) -> int:
        conn.execute("SELECT 'no instant'::timestamptz")
        return 0

    monkeypatch.setattr(waiting_duties, "resolve", broken)
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET state = 'scheduled'")
    lead(db).run_once()
    assert row_of(db, 1)["state"] == "queued"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ('{"not_before": 1767225600}', "not_before"),
        ('{"not_before": "soon"}', "not_before"),
        ('{"not_before": "infinity"}', "not_before"),
        ('{"after_jobs": 7}', "after_jobs"),
        ('{"after_jobs": null}', "after_jobs"),
        ('{"after_jobs": ["x"]}', "after_jobs"),
    ],
)
def test_what_a_run_keeps_until_it_is_let_go_is_readable(options: str, field: str, db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=f"options: .*{field}"):
        db.execute("INSERT INTO pgsched.runs (task, options) VALUES ('t', %s)", [options])
    kept = '{"not_before": "2030-01-01T00:00:00+00:00", "after_jobs": [1, 2], "x": 1}'
    db.execute("INSERT INTO pgsched.runs (task, options) VALUES ('t', %s)", [kept])
