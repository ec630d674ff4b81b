"""Failing runs are retried until they are dead, unknown tasks wait, and a worker that cannot work says why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, enqueue, fleet_on, one, open_gate, state, unaccounted
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

BASE_S, JITTER = 0.8, 0.5


@pytest.mark.long
def test_a_failing_run_is_retried_with_jitter_until_dead_and_can_be_revived(
    fleet: Fleet, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, args, max_attempts, backoff_base, backoff_jitter)"
        """ SELECT 'fail', '{"mended_by": "g"}', 3, make_interval(secs => %s), %s FROM generate_series(1, 8)""",
        [BASE_S, JITTER],
    )
    fleet.start(1)
    delays: dict[int, list[float]] = {1: [], 2: []}
    held = "SELECT count(*) FROM pgsched.attempts WHERE attempt = %s"
    for attempt, seen in delays.items():
        wait_until(lambda n=attempt: one(db, held, n) == 8, what="the failure of every run")  # type: ignore[misc]
        rows = db.execute(
            "SELECT extract(epoch FROM r.available_at - a.finished_at)::float8 FROM pgsched.runs r"
            " JOIN pgsched.attempts a ON a.run_id = r.id AND a.attempt = %s WHERE r.state = 'scheduled'", [attempt]
        ).fetchall()  # fmt: skip
        seen += [row[0] for row in rows]
    for attempt, seen in delays.items():
        longest = BASE_S * 2 ** (attempt - 1)
        assert seen, "nobody was seen waiting"
        assert all(longest * (1 - JITTER) - 0.05 <= delay <= longest + 0.05 for delay in seen), (attempt, seen)
        assert len({round(delay, 2) for delay in seen}) > 1, f"all waited equally long: {seen}"
    dead = "SELECT count(*) FROM pgsched.runs WHERE state = 'dead' AND reason = 'all 3 attempts used'"
    wait_until(lambda: one(db, dead) == 8, what="the end of every run")
    kept = db.execute(
        "SELECT attempt, outcome, error, traceback FROM pgsched.attempts WHERE run_id = 1 ORDER BY attempt"
    )
    for number, (attempt, outcome, error, traceback) in enumerate(kept.fetchall(), 1):
        assert (attempt, outcome, error) == (number, "failed", "ValueError: no luck")
        assert 'raise ValueError("no luck")' in traceback
        assert "ledger.py" in traceback
    assert one(db, "SELECT count(*) FROM ledger WHERE run_id = 1") == 3
    assert unaccounted(db) == []

    open_gate(db, "g")
    retry = [sys.executable, "-m", "pgsched", "run", "retry", "1", "--dsn", fleet.dsn]
    subprocess.run(retry, cwd=ROOT, check=True, timeout=30, capture_output=True)
    wait_until(lambda: state(db, 1) == "succeeded", what="the revived run")
    assert [row_of(db, 1)[key] for key in ("attempt", "max_attempts", "error")] == [4, 4, None]
    assert state(db, 2) == "dead", "the others stay"


@pytest.mark.long
def test_a_run_of_an_unknown_task_waits_and_delays_no_other_run(fleet: Fleet, db: psycopg.Connection) -> None:
    stranger = enqueue(db, "nobody.knows_it")
    fleet.start(1)
    known = enqueue(db, "note")
    wait_until(lambda: state(db, known) == "succeeded", what="the run behind it")
    assert [row_of(db, stranger)[key] for key in ("state", "attempt", "error")] == ["queued", 0, None]


def unreachable(dsn: str, db: psycopg.Connection) -> str:
    return make_conninfo(dsn, host="127.0.0.1", port="1")


def unmigrated(dsn: str, db: psycopg.Connection) -> str:
    db.execute("DROP SCHEMA pgsched CASCADE")
    return dsn


def too_new(dsn: str, db: psycopg.Connection) -> str:
    db.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
    return dsn


def no_grants(dsn: str, db: psycopg.Connection) -> str:
    role = f"stranger_{os.getpid()}"
    db.execute(f'CREATE ROLE "{role}" LOGIN')
    db.execute(f'GRANT CONNECT ON DATABASE "{db.info.dbname}" TO "{role}"')
    return make_conninfo(dsn, options=f"{conninfo_to_dict(dsn).get('options') or ''} -c role={role}".strip())


def no_such_database(dsn: str, db: psycopg.Connection) -> str:
    return make_conninfo(dsn, dbname="there_is_no_such_database", password="a-secret")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        (unreachable, 3, "cannot reach"),
        (no_such_database, 3, "does not exist"),
        (unmigrated, 5, "pgsched migrate"),
        (too_new, 6, "upgrade"),
        (no_grants, 7, "grant"),
    ],
)
def test_a_worker_that_cannot_work_says_why_in_one_line(
    make: Callable[[str, psycopg.Connection], str], code: int, word: str, dsn: str, db: psycopg.Connection,
    tmp_path: Path
) -> None:  # fmt: skip
    broken = make(dsn, db)
    try:
        with fleet_on(broken, tmp_path) as fleet:
            worker = fleet.launch()
            assert worker.ended(30) == code
            (line,) = worker.log.read_text().splitlines()
            assert word in line
            assert "a-secret" not in line
    finally:
        if make is no_grants:
            role = f"stranger_{os.getpid()}"
            db.execute(f'DROP OWNED BY "{role}"')
            db.execute(f'DROP ROLE "{role}"')
