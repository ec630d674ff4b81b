"""`reset-mark` sets back a high-water mark that is ahead of the clock, but never so far that a slot runs twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.leader.ticker import tick
from tests.support.logins import DENIED, Logins, one

Pgsched = Callable[..., Any]
SLOT = timedelta(days=200)


def ahead(db: psycopg.Connection, name: str = "a", by: str = "1 year") -> int:
    """Make a job whose slots were decided while the clock was ahead; return its id."""
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES (%s, 't', '* * * * * *')", [name])
    with db.transaction():
        db.execute("SELECT set_config('pgsched.ticks', 'on', true)")
        db.execute(
            "UPDATE pgsched.jobs SET decided_until = clock_timestamp() + %s::interval,"
            " next_run_at = clock_timestamp() + %s::interval WHERE name = %s",
            [by, by, name],
        )
    return one(db, "SELECT id FROM pgsched.jobs WHERE name = %s", name)  # type: ignore[no-any-return]


def mark(db: psycopg.Connection) -> timedelta:
    """Return how far the high-water mark of job a is ahead of the clock."""
    return one(db, "SELECT decided_until - clock_timestamp() FROM pgsched.jobs WHERE name = 'a'")  # type: ignore[no-any-return]


def runs(db: psycopg.Connection) -> list[datetime]:
    return [row[0] for row in db.execute("SELECT scheduled_at FROM pgsched.runs ORDER BY 1").fetchall()]


def test_only_reset_mark_lowers_the_mark_and_the_job_goes_on_at_once(db: psycopg.Connection, pgsched: Pgsched) -> None:
    ahead(db)
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp() WHERE name = 'a'")
    assert mark(db) > SLOT, "whoever writes it, it only rises"
    said = pgsched("job", "reset-mark", "a")
    assert said.code == 0 and "job a goes on" in said.out
    assert abs(mark(db)) < timedelta(seconds=20)
    assert one(db, "SELECT next_run_at <= clock_timestamp() FROM pgsched.jobs")
    with db.transaction():
        tick(db, 100)
    assert one(db, "SELECT next_run_at < clock_timestamp() + interval '3 seconds' FROM pgsched.jobs")
    (action,) = db.execute("SELECT action, name FROM pgsched.audit WHERE action = 'mark reset'").fetchall()
    assert action == ("mark reset", "a")
    assert "not ahead of the clock" in pgsched("job", "reset-mark", "a").out
    assert pgsched("job", "reset-mark", "nobody").code == 8


def test_the_mark_is_not_set_before_the_newest_slot_that_has_a_row(db: psycopg.Connection, pgsched: Pgsched) -> None:
    job = ahead(db)
    db.execute("INSERT INTO pgsched.runs (job_id, task, scheduled_at, state, finished_at, attempt) VALUES"
               " (%s, 't', now() + %s, 'succeeded', now(), 1)", [job, SLOT])  # fmt: skip
    assert pgsched("job", "reset-mark", "a").code == 0
    assert abs(mark(db) - SLOT) < timedelta(seconds=20)
    assert "its newest slot has a row" in pgsched("job", "reset-mark", "a").out
    # if the row stands for a stretch, the end of the stretch counts
    db.execute("DELETE FROM pgsched.jobs")
    job = ahead(db)
    db.execute("INSERT INTO pgsched.runs (job_id, task, scheduled_at, state, finished_at, covers_from, covers_until,"
               " covers_count) VALUES (%s, 't', now(), 'missed', now(), now(), now() + %s, 7)",
               [job, SLOT])  # fmt: skip
    assert pgsched("job", "reset-mark", "a").code == 0
    assert abs(mark(db) - SLOT) < timedelta(seconds=20)


@pytest.mark.parametrize("wish", ["clock_timestamp() - interval '1 day'", "'-infinity'"])
def test_the_mark_cannot_be_lowered_to_before_the_current_time(db: psycopg.Connection, wish: str) -> None:
    ahead(db)
    with db.transaction():
        db.execute("SELECT set_config('pgsched.lowers_mark', 'on', true)")
        db.execute(f"UPDATE pgsched.jobs SET decided_until = {wish}".encode())
    assert abs(mark(db)) < timedelta(seconds=20)


def again(db: psycopg.Connection) -> bool:
    """Return whether a slot whose row was pruned runs again after the mark was lowered to before the slot."""
    ahead(db)
    slot = one(db, "SELECT date_trunc('second', clock_timestamp()) - interval '5 seconds'")
    with db.transaction():
        db.execute("SELECT set_config('pgsched.lowers_mark', 'on', true)")
        db.execute("UPDATE pgsched.jobs SET anchor_at = %s, catch_up = 'all', overlap = 'allow', decided_until = %s,"
                   " next_run_at = clock_timestamp()", [slot - SLOT, slot - timedelta(seconds=1)])  # fmt: skip
    with db.transaction():
        tick(db, 100)
    return slot in runs(db)


def test_the_bound_of_the_trigger_keeps_a_pruned_slot_from_running_twice(db: psycopg.Connection) -> None:
    assert not again(db)
    db.execute("DELETE FROM pgsched.jobs")
    body = one(db, "SELECT pg_get_functiondef('pgsched.jobs_high_water_mark'::regproc)")
    bound = "greatest(NEW.decided_until, clock_timestamp(), pgsched.newest_slot(NEW.id))"
    assert body.count(bound) == 1
    db.execute(body.replace(bound, "NEW.decided_until").encode())
    assert again(db), "without it"


def test_only_the_owner_and_operators_can_reset_the_mark(db: psycopg.Connection, logins: Logins) -> None:
    alice, bob, ops = (logins.connect(who) for who in ("alice", "bob", "ops"))
    alice.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '* * * * * *')")
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp() + interval '1 year'")
    with pytest.raises(psycopg.Error) as refused:
        bob.execute("SELECT pgsched.reset_mark('a')")
    assert refused.value.sqlstate == DENIED
    alice.execute("SELECT pgsched.reset_mark('a')")
    assert abs(mark(db)) < timedelta(seconds=20)
    with pytest.raises(psycopg.Error) as refused:
        alice.execute("UPDATE pgsched.jobs SET decided_until = '-infinity'")
    assert refused.value.sqlstate == DENIED
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp() + interval '1 year'")
    ops.execute("SELECT pgsched.reset_mark('a')")
    assert abs(mark(db)) < timedelta(seconds=20)
