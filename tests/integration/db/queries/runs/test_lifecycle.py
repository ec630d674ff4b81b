"""Runs change their states only as `pgsched.core.lifecycle` allows.

The tests play all scenes, while a trigger writes down each change of state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgsched.core.lifecycle import CHANGES, FIRST_STATES
from pgsched.core.model import Result, State
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from pgsched.db.queries.leader import ticks
from tests.support.db.backfilling import work
from tests.support.db.limiting import add, admit, limit_queue
from tests.support.db.setting import done, let_expire, reap, take
from tests.support.db.settling import settle
from tests.support.docs.timelines import SCENES, draw

Change = tuple[str, str]
WRITE_DOWN = """
CREATE TABLE public.changes (was text, is_now text);
CREATE FUNCTION public.write_down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.changes SELECT CASE TG_OP WHEN 'UPDATE' THEN OLD.state ELSE '[*]' END, NEW.state
    WHERE current_setting('test.by_hand', true) IS DISTINCT FROM 'on';
    RETURN NULL; END $$;
CREATE TRIGGER zz_write_down AFTER INSERT OR UPDATE ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION public.write_down();
"""
# Changes that only slots make. The test of slots plays all of them except (succeeded, waiting): a backfill of a job
# with a limit.
OF_SLOTS = {("[*]", "skipped"), ("[*]", "missed"), ("waiting", "skipped")}
LAST_DAY = "SELECT date_trunc('day', clock_timestamp()) - make_interval(days => %s)"


@pytest.fixture
def written(db: psycopg.Connection[Any]) -> Callable[[], set[Change]]:
    """Return a function that returns the changes written down until now."""
    db.execute(WRITE_DOWN)
    return lambda: {*db.execute("SELECT DISTINCT was, is_now FROM public.changes WHERE was <> is_now").fetchall()}


def allowed() -> set[Change]:
    changes = {(str(begin), str(end)) for begin, ends in CHANGES.items() for end in ends}
    return changes | {("[*]", str(state)) for state in FIRST_STATES}


@contextlib.contextmanager
def by_hand(db: psycopg.Connection[Any]) -> Iterator[None]:
    """Do not write down the changes that only prepare a scene."""
    db.execute("SET test.by_hand = 'on'")
    yield
    db.execute("RESET test.by_hand")


def enqueue(db: psycopg.Connection[Any], **options: Any) -> int:
    named = "".join(f", {name} => %s" for name in options)
    row = db.execute(f"SELECT pgsched.enqueue('t'{named})".encode(), [*options.values()]).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.long
def test_slots_change_their_states_as_the_table_says(
    db: psycopg.Connection[Any], dsn: str, written: Callable[[], set[Change]]
) -> None:
    for title in ("overlap = replace", "overlap = skip, retry_within = 8 minutes", "overlap = skip", "catch_up = skip",
                  "start_deadline = 16 minutes"):  # fmt: skip
        draw(db, dsn, SCENES[title])
        db.execute("DELETE FROM pgsched.jobs")
        db.execute("DELETE FROM pgsched.runs")
    assert written() - allowed() == set()
    assert written() >= OF_SLOTS


def test_runs_change_their_states_as_the_table_says(
    db: psycopg.Connection[Any], dsn: str, written: Callable[[], set[Change]]
) -> None:
    ends_of_attempts(db, dsn)
    deadlines_and_cancelling(db)
    waiting_for_others(db)
    putting_off(db)
    limited(db, dsn)
    assert written() - allowed() == set()
    assert allowed() - written() == OF_SLOTS


def ends_of_attempts(db: psycopg.Connection[Any], dsn: str) -> None:
    """Play each outcome, and then a retry or a backfill by a person."""
    for result in (Result.SUCCEEDED, Result.FAILED, Result.CANCELLED, Result.INTERRUPTED):
        enqueue(db)
        (claim,) = take(db)
        settle(dsn, done(claim, result))
        db.execute("DELETE FROM pgsched.runs WHERE state = 'queued'")
    dead = enqueue(db, max_attempts=1)
    (claim,) = take(db)
    settle(dsn, done(claim, Result.FAILED))
    for ended in (dead, cancelled(db), missed(db), *by_hand_ended(db, State.SKIPPED)):
        assert db.execute("SELECT pgsched.retry(%s)", [ended]).fetchone() == ("queued",)
    db.execute("DELETE FROM pgsched.runs")
    backfilled(db, "default")
    db.execute("DELETE FROM pgsched.jobs")
    db.execute("DELETE FROM pgsched.runs")


def backfilled(db: psycopg.Connection[Any], queue: str) -> None:
    """Run a slot that succeeded once more, by a backfill."""
    job = jobs.add(db, {"name": queue, "task": "t", "schedule": "0 0 * * *", "queue": queue})
    slot = db.execute(LAST_DAY, [1]).fetchone()
    values = [job["id"], queue, *(slot or ()) * 2]
    with by_hand(db):
        db.execute("INSERT INTO pgsched.runs (job_id, queue, scheduled_at, state, finished_at, task, origin)"
                   " VALUES (%s, %s, %s, 'succeeded', %s, 't', 'schedule')", values)  # fmt: skip
    asked = Request(*(str(row[0]) for days in (1, 0) if (row := db.execute(LAST_DAY, [days]).fetchone())), mode="all")
    backfills.add_backfill(db, queue, asked)
    while work(db):
        pass


def cancelled(db: psycopg.Connection[Any], **options: Any) -> int:
    run = enqueue(db, **options)
    assert db.execute("SELECT pgsched.cancel(%s)", [run]).fetchone() == ("cancelled",)
    return run


def missed(db: psycopg.Connection[Any], **options: Any) -> int:
    run = enqueue(db, **options)
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", [run])
    ticks.admit(db, 100)
    return run


def by_hand_ended(db: psycopg.Connection[Any], state: State) -> list[int]:
    with by_hand(db):
        rows = db.execute("INSERT INTO pgsched.runs (task, state, finished_at) VALUES ('t', %s, clock_timestamp())"
                          " RETURNING id", [state]).fetchall()  # fmt: skip
    return [row[0] for row in rows]


def deadlines_and_cancelling(db: psycopg.Connection[Any]) -> None:
    """Cancel runs that have not started, and let others miss their deadline, in each state."""
    limit_queue(db, "full", concurrency_limit=0)
    for options in ({}, {"delay": "1 hour"}, {"queue": "full"}):
        cancelled(db, **options)
        missed(db, **options)
    db.execute("DELETE FROM pgsched.runs")


def waiting_for_others(db: psycopg.Connection[Any]) -> None:
    """Hold queued and scheduled runs by edges that are added later."""
    parent = enqueue(db, delay="1 hour")
    for options in ({}, {"delay": "1 hour"}):
        run = enqueue(db, **options)
        db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [run, parent])
    db.execute("DELETE FROM pgsched.runs")


def putting_off(db: psycopg.Connection[Any]) -> None:
    """Put off runs that are queued or held by a limit, by an enqueue with the same key."""
    come_due(db)
    for queue in ("default", "full"):
        for delay in (None, "1 hour"):
            enqueue(db, queue=queue, unique_key=queue, on_conflict="replace", delay=delay)
    db.execute("DELETE FROM pgsched.runs")


def limited(db: psycopg.Connection[Any], dsn: str) -> None:
    """Return runs to a limited queue, where they wait again; then take back queued runs by a lower limit."""
    limit_queue(db, "default", concurrency_limit=3)
    add(db, 3)
    admit(db)
    (one, *_) = take(db, 1)
    settle(dsn, done(one, Result.INTERRUPTED))
    take(db, 1)
    let_expire(db)
    reap(db)
    admit(db)
    db.execute("UPDATE pgsched.queues SET concurrency_limit = 1 WHERE name = 'default'")
    admit(db)
    for ended in (cancelled(db), missed(db), *by_hand_ended(db, State.DEAD), *by_hand_ended(db, State.SKIPPED)):
        assert db.execute("SELECT pgsched.retry(%s)", [ended]).fetchone() == ("waiting",)
    backfilled(db, "full")
    come_due(db)


def come_due(db: psycopg.Connection[Any]) -> None:
    run = enqueue(db, delay="1 hour")
    db.execute("UPDATE pgsched.runs SET available_at = clock_timestamp() WHERE id = %s", [run])
    ticks.admit(db, 100)
