"""A row with which a duty fails is set aside if other rows succeed; where no row succeeds, nothing is set aside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.core import problems
from pgsched.db.queries.leader import set_aside as notes
from pgsched.leader import admission, backfill
from pgsched.leader.isolation import duty_guard, pieces, set_aside
from pgsched.leader.loop import LeaderLoop
from pgsched.services.doctor import report_set_aside
from pgsched.services.status import read_status
from tests.support.db.leading import lead
from tests.support.db.poisoning import GOOD, add_backfills, aside, heal, poison, until, waiting_run
from tests.support.db.setting import Open, add_runs, let_expire, take
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten all pauses, so that rows that are set aside are tried again within a test."""
    monkeypatch.setattr(set_aside, "PROVEN_S", (0.5, 0.5, 0.5))
    monkeypatch.setattr(set_aside, "JOB_MOST_S", 0.5)
    monkeypatch.setattr(set_aside, "UNHEARD_S", 0.5)
    monkeypatch.setattr(duty_guard, "MOST_S", 0.5)
    monkeypatch.setattr(duty_guard, "FIRST_S", 0.2)
    monkeypatch.setattr(duty_guard, "PIECES_S", 60.0)  # a busy machine may stop a round for a second
    monkeypatch.setattr(problems, "FAILING_S", 0.0)


def scheduled(db: psycopg.Connection) -> str:
    waiting_run(db, GOOD, "state, available_at", "'scheduled', now() - interval '1 second'")
    return "state <> 'scheduled'"


def expiring(db: psycopg.Connection) -> str:
    waiting_run(db, GOOD, "state, expires_at", "'queued', now() - interval '1 second'")
    return "state = 'missed'"


def held(db: psycopg.Connection) -> str:
    waiting_run(db, GOOD, "state, available_at", "'waiting', now() - interval '1 second'")
    return "state = 'queued'"


def new_edges(db: psycopg.Connection) -> str:
    db.execute("INSERT INTO pgsched.runs (id, task) VALUES (1000, 't')")
    add_runs(db, GOOD)
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) SELECT id, 1000 FROM pgsched.runs WHERE id < 1000")
    return "available_at = '9000-01-01Z'"


def ended_parents(db: psycopg.Connection) -> str:
    new_edges(db)
    lead(db).run_once()
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = 1000")
    return "state = 'queued'"


def limited(db: psycopg.Connection) -> str:
    db.execute("INSERT INTO pgsched.limits (name, concurrency) VALUES ('k', 5)")
    waiting_run(db, GOOD, "concurrency_key", "'k:' || n")
    return "state = 'queued'"


def expired(db: psycopg.Connection) -> str:
    add_runs(db, GOOD)
    take(db, GOOD)
    let_expire(db)
    return "state <> 'running'"


Made = Callable[[psycopg.Connection], str]
MADE: list[tuple[str, Made]] = [
    ("scheduled runs", scheduled), ("expiry", expiring), ("waiting runs", held), ("new dependencies", new_edges),
    ("dependent runs", ended_parents), ("limited runs", limited), ("expired claims", expired),
]  # fmt: skip


def rounds(loop: LeaderLoop, n: int = 4) -> None:
    for _ in range(n):
        loop.run_once()


@pytest.mark.few(2)
@pytest.mark.parametrize(("duty", "make"), MADE)
def test_one_run_that_cannot_be_written_stops_no_other(duty: str, make: Made, db: psycopg.Connection) -> None:
    done = make(db)
    poison(db, "UPDATE", "OLD.id = 7")
    loop = lead(db, reap_every_s=0.05, prune_every_s=0.05)
    rounds(loop)
    rest = f"SELECT array_agg(id ORDER BY id) FROM pgsched.runs WHERE id < 1000 AND NOT ({done})"
    assert db.execute(rest.encode()).fetchone() == ([7],)
    (found,) = aside(db)
    assert (found[0], found[2]) == (duty, "poisoned")
    finding = next(report_set_aside(notes.list_for_people(db)))
    assert finding.text.startswith(f"of {duty}, {found[1]} is set aside")
    assert not [problem for problem in read_status(db).problems if "duty" in problem], "the duty is done"
    heal(db)
    until(loop, db, rest, None)
    until(loop, db, "SELECT count(*) FROM pgsched.set_aside", 0)


@pytest.mark.few(3)
@pytest.mark.parametrize(("duty", "make"), MADE)
def test_where_no_row_succeeds_nothing_is_set_aside(duty: str, make: Made, db: psycopg.Connection) -> None:
    done = make(db)
    poison(db, "UPDATE", "OLD.id < 1000")
    loop = lead(db, reap_every_s=0.05, prune_every_s=0.05)
    rounds(loop)
    (found,) = aside(db)
    if make is ended_parents:  # there is one row only: the parent of all runs
        assert found == ("ended parents", "1000", "poisoned")
        heal(db)
        return
    assert found[1:] == ("", "poisoned"), "the duty as a whole"
    (problem,) = [problem for problem in read_status(db).problems if "duty" in problem]
    assert f"duty {found[0]} has failed" in problem
    heal(db)
    rest = f"SELECT count(*) FROM pgsched.runs WHERE id < 1000 AND NOT ({done})"
    until(loop, db, rest, 0)
    until(loop, db, "SELECT count(*) FROM pgsched.set_aside", 0)


def test_a_search_that_begins_in_the_middle_tries_the_first_rows_too(db: psycopg.Connection) -> None:
    """The pass before ended at the group `k:7`. All groups after it fail; the first ones do not."""
    limited(db)
    poison(db, "UPDATE", "OLD.concurrency_key > 'k:7'")
    term, admission_state = lead(db).term, admission.AdmissionState(last_group=("default", "k:7"))
    term.guard.run(
        "limits", lambda: pieces.run_admission_pass(term, admission_state), pieces.limited(term, admission_state)
    )
    assert aside(db) == [("limited runs", f"default k:{n}", "poisoned") for n in (8, 9)]


def test_one_bad_group_among_more_than_a_pass_takes_stops_no_other(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.limits (name, concurrency) VALUES ('k', 5)")
    waiting_run(db, 600, "concurrency_key", "'k:' || n")
    poison(db, "UPDATE", "OLD.concurrency_key = 'k:100'")
    rounds(lead(db))
    assert aside(db) == [("limited runs", "default k:100", "poisoned")]
    left = db.execute("SELECT concurrency_key FROM pgsched.runs WHERE state = 'waiting'").fetchall()
    assert left == [("k:100",)]
    heal(db)


def add_due_jobs(db: psycopg.Connection, n: int) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, run_at) SELECT 'due' || n, 't', now() FROM generate_series(1, %s) n", [n]
    )


MISSING = (
    "SELECT array_agg(j.id) FROM pgsched.jobs j WHERE NOT EXISTS (SELECT FROM pgsched.runs r WHERE r.job_id = j.id)"
)


def test_a_job_whose_slot_is_refused_for_a_while_keeps_it(db: psycopg.Connection) -> None:
    add_due_jobs(db, GOOD)
    poison(db, "INSERT", "NEW.job_id = 7")
    loop = lead(db)
    rounds(loop)
    assert db.execute(MISSING.encode()).fetchone() == ([7],)
    assert aside(db) == [("jobs", "7", "poisoned")]
    kept = db.execute("SELECT error, next_run_at IS NOT NULL FROM pgsched.jobs WHERE id = 7").fetchone()
    assert kept == (None, True)
    pauses = [loop.run_once() for _ in range(5)]
    assert min(pauses) > 0, "a job that is set aside does not make the leader spin"
    heal(db)
    until(loop, db, MISSING, None)
    until(loop, db, "SELECT count(*) FROM pgsched.set_aside", 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 5, 40])
def test_where_no_slot_can_be_written_no_job_is_put_in_error(jobs: int, db: psycopg.Connection) -> None:
    add_due_jobs(db, jobs)
    poison(db, "INSERT", "true")
    loop = lead(db)
    rounds(loop, 6)
    due = "SELECT count(*) FROM pgsched.jobs WHERE error IS NULL AND next_run_at <= now()"
    assert db.execute(due).fetchone() == (jobs,)
    if jobs > duty_guard.FEW:
        assert aside(db) == [("tick", "", "poisoned")]
    heal(db)
    until(loop, db, MISSING, None)
    until(loop, db, "SELECT count(*) FROM pgsched.set_aside", 0)


@pytest.mark.long
def test_a_sequence_of_run_ids_that_lags_behind_puts_no_job_in_error(db: psycopg.Connection) -> None:
    add_runs(db, 60)
    db.execute("SELECT setval(pg_get_serial_sequence('pgsched.runs', 'id'), 1, false)")
    add_due_jobs(db, 20)
    loop = lead(db)
    until(loop, db, MISSING, None)
    assert db.execute("SELECT count(*) FROM pgsched.jobs WHERE error IS NOT NULL").fetchone() == (0,)


def test_a_bad_value_of_a_job_puts_the_job_in_error_at_once(db: psycopg.Connection) -> None:
    add_due_jobs(db, 3)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET queue = ' a' WHERE id = 2")
    lead(db).run_once()
    found = db.execute("SELECT id, error FROM pgsched.jobs WHERE error IS NOT NULL").fetchall()
    assert found == [(2, "the database refuses its row: queue: must not begin or end with a space")]
    assert aside(db) == []


@pytest.mark.long
def test_a_python_error_counts_for_the_duty_and_logs_its_traceback_once(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_backfills(db, 1)
    add_due_jobs(db, 1)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(duty_guard.logger, "error", lambda _, **more: said.append(more))

    def broken(*_: object) -> Any:
        raise TypeError("'NoneType' object is not iterable")

    with monkeypatch.context() as once:
        once.setattr(backfill, "run_backfills", broken)
        loop = lead(db)
        wait_until(lambda: loop.run_once() >= 0 and len(said) >= 3, what="further tries")
    assert [more["exc_info"] for more in said[:3]] == [True, False, False]
    assert said[0]["retry_in_s"] < said[1]["retry_in_s"], "it backs off"
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE origin = 'schedule'").fetchone() == (1,)
    assert aside(db) == [("backfills", "", "'NoneType' object is not iterable")]
    started = "SELECT started FROM pgsched.backfills"
    until(loop, db, started, 1)


def test_the_next_leader_knows_what_is_set_aside(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "PROVEN_S", (60.0, 60.0, 60.0))
    scheduled(db)
    poison(db, "UPDATE", "OLD.id = 7")
    rounds(lead(db))
    loop = lead(db)
    loop.term.set_aside.load(db)
    heal(db)
    rounds(loop)
    assert db.execute("SELECT array_agg(id) FROM pgsched.runs WHERE state = 'scheduled'").fetchone() == ([7],)


def test_a_duty_that_twice_cost_the_session_is_left_undone(db: psycopg.Connection, connect: Open) -> None:
    add_backfills(db, 1)
    for times in (1, 2):
        notes.session_lost(db, "backfills", "idle-in-transaction timeout")
        loop = lead(db)
        loop.term.set_aside.load(db)
        if times == 2:
            rounds(loop)
    assert db.execute("SELECT started FROM pgsched.backfills").fetchone() == (0,)
    (problem,) = [problem for problem in read_status(db).problems if "duty" in problem]
    assert problem.startswith("the leader's duty backfills is left undone")
    db.execute("UPDATE pgsched.set_aside SET next_at = clock_timestamp()")
    loop = lead(db)
    loop.term.set_aside.load(db)
    rounds(loop)
    assert db.execute("SELECT started FROM pgsched.backfills").fetchone() == (1,)
    assert aside(db) == []
    began = time.monotonic()
    notes.session_lost(db, "backfills", "again")
    loop = lead(db)
    loop.term.set_aside.load(db)
    rounds(loop)
    assert aside(db) == [], "once is chance"
    assert time.monotonic() - began < 30
