"""Several backfills at once, while people lock or delete rows: each goes on by itself, and no run is left open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event
from typing import Any

import psycopg
import pytest

from pgsched.db import rows as querying
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from pgsched.leader import backfill
from tests.support.db.setting import Aside, Open, cut
from tests.support.waiting import wait_until

MAY = datetime(2026, 5, 1, tzinfo=UTC)


def add(db: psycopg.Connection, name: str = "a") -> dict[str, Any]:
    return jobs.add(db, {"name": name, "task": "t", "schedule": "0 0 * * *", "max_attempts": 2})


def ask(db: psycopg.Connection, name: str = "a", days: int = 1, **more: Any) -> int:
    return int(backfills.add_backfill(db, name, Request("2026-05-01", f"2026-05-{days + 1:02}", **more))["id"])


def rounds(conn: psycopg.Connection) -> Iterator[bool]:
    """Yield, for each round of a leader, whether the leader would go on at once."""
    turn = backfill.BackfillCursor()
    while True:
        with conn.transaction():
            more = backfill.run_backfills(conn, turn).more
        yield more


def started(db: psycopg.Connection, number: int) -> int:
    return int(backfills.show_backfill(db, number)["started"])


def dead_slot(db: psycopg.Connection, name: str) -> int:
    """Add a dead run for the first slot of May; return its id."""
    row = db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, state, task, finished_at, started_at)"
        " SELECT id, %s, 'dead', 't', %s, %s FROM pgsched.jobs WHERE name = %s RETURNING id",
        [MAY, MAY, MAY, name],
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_backfills_that_wait_for_their_last_runs_do_not_starve_the_next(db: psycopg.Connection) -> None:
    add(db)
    waiting = [ask(db, "a", mode="all", max_active=5) for _ in range(backfill.BACKFILLS)]
    leader = rounds(db)
    next(leader)
    db.execute("UPDATE pgsched.runs SET backfill_id = %s", [waiting[0]])
    # each of these backfills has a run that never ends, and no slot left
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin, backfill_id)"
               " SELECT j.id, clock_timestamp() + n * interval '1 s', 't', 'backfill', n"
               " FROM pgsched.jobs j, unnest(%s::bigint[]) n", [waiting[1:]])  # fmt: skip
    add(db, "b")
    last = ask(db, "b")
    assert next(leader) is False
    assert started(db, last) == 1
    assert all(backfills.show_backfill(db, number)["state"] == "running" for number in waiting)


def test_more_backfills_than_a_round_takes_have_their_turns(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "BACKFILLS", 2)
    numbers = []
    for name in "abcde":
        add(db, name)
        numbers.append(ask(db, name, days=9))
    leader = rounds(db)
    for _ in range(3):
        next(leader)
        db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE phase < 3")
    assert [started(db, number) for number in numbers] == [2, 1, 1, 1, 1]


def test_a_backfill_whose_row_is_locked_holds_up_no_other(db: psycopg.Connection, connect: Open) -> None:
    for name in "abc":
        add(db, name)
    run = dead_slot(db, "b")
    numbers = [ask(db, name, mode="failed" if name == "b" else "missing") for name in "abc"]
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [run])
    leader = rounds(connect(options="-c lock_timeout=500ms"))
    assert next(leader) is False, "and does not spin either"
    assert [started(db, number) for number in numbers] == [1, 0, 1]
    person.rollback()
    next(leader)
    assert [started(db, number) for number in numbers] == [1, 1, 1], "its slot was not passed by"


def test_a_backfill_that_fails_holds_up_no_other(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add(db), add(db, "b")
    bad, good = ask(db), ask(db, "b")
    real = backfill.run_batch

    def broken(conn: psycopg.Connection, wanted: querying.Row, *rest: Any) -> bool:
        real(conn, wanted, *rest)
        if wanted["id"] == bad:
            conn.execute("SELECT 1/0")
        return False

    monkeypatch.setattr(backfill, "run_batch", broken)
    next(rounds(db))
    assert [started(db, number) for number in (bad, good)] == [0, 1]


# ---- a job that is deleted meanwhile


@pytest.mark.parametrize("mode", ["missing", "failed"])
def test_no_run_of_a_deleted_job_stays_open(db: psycopg.Connection, connect: Open, mode: str) -> None:
    delete_meets_the_leader(db, connect, mode)
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE phase < 3").fetchone() == (0,)


@pytest.mark.parametrize(
    ("mode", "statement", "guard"),
    [("missing", "backfill_insert", "FOR KEY SHARE OF j NOWAIT"),
     ("failed", "backfill_rerun", " FOR KEY SHARE OF j NOWAIT")],
)  # fmt: skip
def test_without_the_lock_on_the_job_a_run_would_stay_open(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch, mode: str, statement: str, guard: str
) -> None:
    cut(monkeypatch, statement, guard)
    delete_meets_the_leader(db, connect, mode)
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE phase < 3").fetchone() == (1,)


def delete_meets_the_leader(db: psycopg.Connection, connect: Open, mode: str) -> None:
    """Delete the job after the leader has made its run, and before it commits."""
    add(db)
    if mode == "failed":
        dead_slot(db, "a")
    ask(db, mode=mode)
    leader = connect(autocommit=False)
    backfill.run_backfills(leader)
    person, deleted = connect(), Event()

    def delete() -> None:
        person.execute("DELETE FROM pgsched.jobs")
        deleted.set()

    deleting = Aside(delete)
    wait_until(lambda: deleted.is_set() or blocked(db, person), what="the deletion to end or to wait")
    leader.commit()
    deleting.result()


def blocked(db: psycopg.Connection, conn: psycopg.Connection) -> bool:
    pid = conn.info.backend_pid
    return db.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone() == (True,)


def test_the_leader_does_not_wait_for_a_deletion_in_progress(db: psycopg.Connection, connect: Open) -> None:
    add(db), add(db, "b")
    doomed, other = ask(db), ask(db, "b")
    person = connect(autocommit=False)
    person.execute("DELETE FROM pgsched.jobs WHERE name = 'a'")
    leader = rounds(connect(options="-c lock_timeout=500ms"))
    assert next(leader) is False
    assert [started(db, number) for number in (doomed, other)] == [0, 1]
    person.commit()
    next(leader)
    assert backfills.show_backfill(db, doomed)["error"] == "job a was deleted"
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE phase < 3").fetchone() == (1,)
