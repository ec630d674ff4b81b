"""A job, a duty or a host that fails in the leader's round stops nothing else, and no failure is silent."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.core.planning import plan
from pgsched.core.schedule import zones
from pgsched.db.queries.leader import expired_leases, ticks
from pgsched.errors import PgschedError
from pgsched.leader import election
from pgsched.leader.dependents import DependencyCursor
from pgsched.leader.duties import waiting as waiting_duties
from pgsched.leader.election import Leader
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.ticker import tick
from tests.support.db.leading import lead
from tests.support.db.setting import Open, add_jobs, add_runs, let_expire, row_of, take


def test_a_job_that_fails_half_way_leaves_no_row(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add_jobs(db, 2, 5)
    real, bad = plan.row_to_run, db.execute("SELECT min(id) FROM pgsched.jobs").fetchone()
    calls: list[int] = []

    def third_time_bad(job: plan.Job, *rest: Any) -> plan.SlotRow:
        calls.append(job["id"])
        if bad and job["id"] == bad[0] and calls.count(job["id"]) == 3:
            raise OverflowError("too large")
        return real(job, *rest)

    monkeypatch.setattr(plan, "row_to_run", third_time_bad)
    with db.transaction():
        assert tick(db, 100).errors == 1
    per_job = db.execute("SELECT job_id, count(*) FROM pgsched.runs GROUP BY job_id").fetchall()
    assert [row[1] for row in per_job] == [5]


@pytest.mark.long
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
    """The job stays due for another leader, or for this one once it has a free descriptor again."""
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


def test_a_leader_that_fails_for_an_unknown_reason_reports_the_error(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LeaderLoop) -> float:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(election.LeaderLoop, "run_once", broken)
    monkeypatch.setattr(election, "back_off_s", lambda *_: 0.01)
    told: list[PgschedError] = []
    Leader(dsn, LeaderSettings(), "test", on_fatal=told.append).run()
    assert [str(error) for error in told] == ["leader failed: ZeroDivisionError('a bug')"]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Open files until every descriptor below 1024 is taken."""
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
    folder = next((path for path in ("/proc/self/fd", "/dev/fd") if Path(path).is_dir()), None)
    if folder is None:
        pytest.skip("this system does not list the descriptors of a process")
    before = os.listdir(folder)  # noqa: PTH208
    for _ in range(20):
        Leader("", LeaderSettings(), "test").stop()
    assert len(os.listdir(folder)) <= len(before) + 2  # noqa: PTH208


@pytest.mark.parametrize("impossible", [b"SELECT 'infinity'::timestamptz", b"SELECT 1/0"])
def test_a_duty_that_fails_stops_no_other(
    impossible: bytes, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expired claims are taken back although the tick cannot be done, whatever the reason."""
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

    monkeypatch.setattr(waiting_duties, "decide_dependencies", full)
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET state = 'scheduled'")
    lead(db).run_once()
    assert row_of(db, 1)["state"] == "queued"


def test_dependencies_that_cannot_be_decided_hold_up_nothing_else(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(conn: psycopg.Connection, n: int, turn: DependencyCursor) -> int:
        conn.execute("SELECT 'no instant'::timestamptz")
        return 0

    monkeypatch.setattr(waiting_duties, "decide_dependencies", broken)
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
def test_options_that_a_run_keeps_until_its_admission_must_be_readable(
    options: str, field: str, db: psycopg.Connection
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=f"options: .*{field}"):
        db.execute("INSERT INTO pgsched.runs (task, options) VALUES ('t', %s)", [options])
    kept = '{"not_before": "2030-01-01T00:00:00+00:00", "after_jobs": [1, 2], "x": 1}'
    db.execute("INSERT INTO pgsched.runs (task, options) VALUES ('t', %s)", [kept])
