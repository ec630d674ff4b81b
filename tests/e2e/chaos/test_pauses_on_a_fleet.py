"""With real workers a pause and a changed limit hold within a second (docs/how-to/limits.md)."""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg
import pytest

from pgsched.db.queries.jobs import queues
from tests.support.fleet import Fleet, clock, one
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ADD = (
    "INSERT INTO pgsched.runs (task, args, queue) SELECT 'spend', '{\"seconds\": 0.01}', %s FROM generate_series(1, %s)"
)
ENDED = "SELECT count(*) FROM pgsched.runs WHERE phase >= 3"
OPEN = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
ADMITTED = "SELECT count(*) FROM pgsched.runs WHERE phase = 2"
PROMISED = timedelta(seconds=1)


def assert_none_starts(db: psycopg.Connection, since: datetime) -> None:
    """Check that in the second after the promised one no worker starts a run, although there are runs to start."""
    wait_until(lambda: clock(db) > since + 2 * PROMISED, 30, "two seconds to pass on the database's clock")
    late = "SELECT max(started_at) FROM pgsched.runs WHERE started_at > %s"
    assert one(db, late, since + PROMISED) is None
    assert one(db, OPEN) > 0


def test_nothing_starts_within_a_second_of_a_pause_until_it_is_resumed(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(2, "--concurrency", "4")
    db.execute(ADD.encode(), ["default", 6000])
    wait_until(lambda: one(db, ENDED) > 20, 30, "work to be under way")
    queues.pause(db, "all", "", "incident", None, None)
    assert_none_starts(db, clock(db))
    left = one(db, OPEN)
    queues.resume(db, "all", "")
    wait_until(lambda: one(db, OPEN) < left, 30, "work to go on")


def test_a_changed_limit_takes_effect_within_a_second(fleet: Fleet, db: psycopg.Connection) -> None:
    queues.set_queue(db, "narrow", {"concurrency_limit": 8})
    fleet.start(2, "--concurrency", "8")
    db.execute(ADD.encode(), ["narrow", 6000])
    wait_until(lambda: one(db, ENDED) > 20, 30, "work to be under way")
    queues.set_queue(db, "narrow", {"concurrency_limit": 0})
    changed_at = clock(db)
    wait_until(lambda: one(db, ADMITTED) == 0, 30, "what was admitted to end or wait again")
    assert clock(db) < changed_at + PROMISED
    assert_none_starts(db, changed_at)
    ended = one(db, ENDED)
    queues.set_queue(db, "narrow", {"concurrency_limit": None})
    wait_until(lambda: one(db, ENDED) > ended, 30, "work to go on")
