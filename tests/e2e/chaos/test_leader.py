"""When the leader dies or freezes, another process leads, and no slot is lost or doubled.

The workers have default settings.
"""

from __future__ import annotations

import signal

import psycopg
import pytest

from tests.support.fleet import Fleet, Member, clock, one, wait_for_leader
from tests.support.waiting import wait_until


def start_with_slots(fleet: Fleet, db: psycopg.Connection) -> tuple[Member, int]:
    """Start two workers and a job that is due each second. Return the leading worker and its term."""
    fleet.start(2)
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, overlap) VALUES ('j', '@every 1s', 'note', 'allow')")
    wait_until(lambda: one(db, "SELECT count(*) FROM ledger") >= 1, what="the first slot")
    return fleet.by_pid(wait_for_leader(db)), one(db, "SELECT max(term) FROM pgsched.leader")


def elected_at(db: psycopg.Connection, term: int) -> object:
    return one(db, "SELECT elected_at FROM pgsched.leader WHERE term = %s", term)


def check_slots(db: psycopg.Connection, at_least_after: object) -> None:
    """Check that slots go on after this instant, that none is missing or doubled, and that each ran once."""
    later = "SELECT count(*) FROM pgsched.runs WHERE scheduled_at > %s AND state = 'succeeded'"
    wait_until(lambda: one(db, later, at_least_after) >= 2, what="slots after the change")
    gaps = db.execute(
        "SELECT scheduled_at - lag(scheduled_at) OVER (ORDER BY scheduled_at) AS gap, count(*) OVER (PARTITION BY"
        " scheduled_at) FROM pgsched.runs"
    ).fetchall()
    assert {(None if gap is None else gap.total_seconds(), n) for gap, n in gaps} == {(None, 1), (1.0, 1)}
    twice = db.execute("SELECT run_id FROM ledger GROUP BY run_id HAVING count(*) > 1").fetchall()
    assert twice == []
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE phase >= 3 AND state <> 'succeeded'") == 0


def test_another_leads_within_two_seconds_of_the_leader_s_death(fleet: Fleet, db: psycopg.Connection) -> None:
    leader, term = start_with_slots(fleet, db)
    killed_at = clock(db)
    leader.kill()
    wait_for_leader(db, other_than=leader.pid)
    takeover = elected_at(db, term + 1) - killed_at  # type: ignore[operator]
    print(f"another leads after {takeover.total_seconds():.2f} s")
    assert takeover.total_seconds() <= 2.0
    check_slots(db, elected_at(db, term + 1))


@pytest.mark.long
def test_another_leads_within_twelve_seconds_of_the_leader_s_freezing(fleet: Fleet, db: psycopg.Connection) -> None:
    leader, term = start_with_slots(fleet, db)
    frozen_at = clock(db)
    leader.signal(signal.SIGSTOP)
    wait_for_leader(db, other_than=leader.pid, timeout=15)
    takeover = elected_at(db, term + 1) - frozen_at  # type: ignore[operator]
    print(f"another leads after {takeover.total_seconds():.2f} s")
    assert takeover.total_seconds() <= 12.0
    seen = one(db, "SELECT seen_at FROM pgsched.leader WHERE term = %s", term)
    leader.signal(signal.SIGCONT)
    wait_until(
        lambda: leader.logged("connection lost") or leader.logged("leadership lost"), what="it to be turned away"
    )
    check_slots(db, elected_at(db, term + 1))
    assert one(db, "SELECT seen_at FROM pgsched.leader WHERE term = %s", term) == seen, "it wrote nothing any more"
    assert one(db, "SELECT max(term) FROM pgsched.leader") == term + 1
    # The thawed process is a candidate again: it leads when the new leader is killed.
    fleet.by_pid(wait_for_leader(db)).kill()
    assert (
        wait_for_leader(db, other_than=one(db, "SELECT pid FROM pgsched.leader WHERE term = %s", term + 1))
        == leader.pid
    )
