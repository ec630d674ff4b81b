"""After PostgreSQL crashes under load, all workers reconnect, nothing is lost, and nothing is settled twice."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from pgsched.db.schema.migrate import upgrade
from tests.support.apps import ledger
from tests.support.fleet import fleet_on, one, unaccounted
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

RUNS = 1500
FINISHED = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"


def load(dsn: str) -> None:
    """Enqueue runs whose next attempt comes soon after a failure, and add ten jobs that are due each second."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET synchronous_commit = on")  # what was committed must be there after the crash
        db.execute("SELECT pg_reload_conf()")
        db.execute(
            "INSERT INTO pgsched.runs (task, max_attempts, backoff_base, backoff_max)"
            " SELECT 'note', 100, '0.2 s', '1 s' FROM generate_series(1, %s)",
            [RUNS],
        )
        db.execute(
            "INSERT INTO pgsched.jobs (name, schedule, task, overlap, max_attempts, backoff_base, backoff_max)"
            " SELECT 'j' || n, '@every 1s', 'note', 'allow', 100, '0.2 s', '1 s' FROM generate_series(1, 10) n"
        )


@pytest.mark.long
@pytest.mark.timeout(150)
def test_a_crash_of_the_server_under_load_loses_nothing(private_cluster: PrivateCluster, tmp_path: Path) -> None:
    dsn = private_cluster.dsn
    upgrade(dsn)
    ledger.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("ALTER TABLE ledger SET LOGGED")
    with fleet_on(dsn, tmp_path) as fleet:
        members = fleet.start(3, "--lease", "3", "--reap-every", "0.5", "--concurrency", "4")
        load(dsn)
        for term in (1, 2):
            with psycopg.connect(dsn, autocommit=True) as db:
                base = one(db, FINISHED)
                wait_until(lambda: one(db, FINISHED) >= base + 200, 30, "the load")  # noqa: B023
                wait_until(lambda: one(db, "SELECT max(term) FROM pgsched.leader") == term, 30, "a leader")  # noqa: B023
            private_cluster.stop("immediate")
            wait_until(lambda: all(m.logged("connection lost") or m.logged("again") for m in members))
            private_cluster.start()
        with psycopg.connect(dsn, autocommit=True) as db:
            restarted = one(db, "SELECT pg_postmaster_start_time()")
            after = "SELECT count(*) FROM pgsched.runs WHERE scheduled_at > %s AND state = 'succeeded'"
            wait_until(lambda: one(db, after, restarted) >= 20, 30, "slots after the crash")
            db.execute("UPDATE pgsched.jobs SET ends_at = clock_timestamp()")
            idle = "SELECT count(*) = 0 FROM pgsched.runs WHERE phase < 3"
            wait_until(
                lambda: (
                    one(db, idle) and one(db, "SELECT count(*) FROM pgsched.jobs WHERE next_run_at IS NOT NULL") == 0
                ),
                60,
                "everything to end",
            )
            assert all(member.alive for member in members)
            check(db)
        private_cluster.stop("immediate")
        for member in members:
            member.signal(signal.SIGTERM)
        assert [member.ended(30) for member in members] == [0, 0, 0], "without a server they still come to an end"


def check(db: psycopg.Connection) -> None:
    assert db.execute("SELECT state, count(*) FROM pgsched.runs WHERE job_id IS NULL GROUP BY state").fetchall() == [
        ("succeeded", RUNS)
    ]
    per_job = db.execute(
        "SELECT job_id, count(*), count(DISTINCT scheduled_at),"
        " extract(epoch FROM max(scheduled_at) - min(scheduled_at))::int + 1 FROM pgsched.runs"
        " WHERE job_id IS NOT NULL AND state = 'succeeded' GROUP BY job_id"
    ).fetchall()
    assert len(per_job) == 10
    for job, rows, distinct, span in per_job:
        assert rows == distinct == span, f"job {job}: {rows} rows, {distinct} slots, a span of {span} s"
    # At least once: the ledger has every run. Exactly once: every attempt has one settlement.
    missing = "SELECT count(*) FROM pgsched.runs r WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.run_id = r.id)"
    assert one(db, missing) == 0
    assert unaccounted(db) == []
    assert one(db, "SELECT max(term) FROM pgsched.leader") >= 3, "a new term after each crash"
