"""The grace after an election counts from the last gap in which no leader saw the database, not from the election."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.leader.leadership import elect, fence, find_due_work
from tests.support.db.clocks import a_worker

pytestmark = pytest.mark.pg14

LEASE_S = 30.0


@pytest.fixture(autouse=True)
def workers(db: psycopg.Connection) -> None:
    a_worker(db, LEASE_S)


def elected(db: psycopg.Connection) -> tuple[int, float]:
    with db.transaction():
        fence(db, None)
        return elect(db, "test")


def passed(db: psycopg.Connection, seconds: float) -> None:
    """Move all terms this many seconds into the past."""
    db.execute("UPDATE pgsched.leader SET elected_at = elected_at - make_interval(secs => %(s)s),"
               " steady_since = steady_since - make_interval(secs => %(s)s),"
               " seen_at = seen_at - make_interval(secs => %(s)s)", {"s": seconds})  # fmt: skip


def test_the_first_leader_waits_for_the_longest_lease(db: psycopg.Connection) -> None:
    assert elected(db)[1] == pytest.approx(LEASE_S, abs=1)


def test_terms_that_end_soon_share_one_grace(db: psycopg.Connection) -> None:
    graces = []
    for _ in range(5):
        graces.append(elected(db)[1])
        passed(db, 11.0)
    assert graces == pytest.approx([30.0, 19.0, 8.0, 0.0, 0.0], abs=1)


def test_a_gap_of_half_a_lease_begins_the_grace_anew(db: psycopg.Connection) -> None:
    term, _ = elected(db)
    passed(db, 10.0)
    find_due_work(db, term)
    passed(db, 16.0)
    assert elected(db)[1] == pytest.approx(LEASE_S, abs=1)


def test_a_gap_within_a_term_begins_the_grace_anew(db: psycopg.Connection) -> None:
    term, _ = elected(db)
    passed(db, 16.0)
    find_due_work(db, term)
    passed(db, 5.0)
    assert elected(db)[1] == pytest.approx(LEASE_S - 5, abs=1)


def test_short_leases_get_the_whole_grace(db: psycopg.Connection) -> None:
    db.execute("UPDATE pgsched.workers SET lease = '2 seconds'")
    elected(db)
    passed(db, 0.5)
    assert elected(db)[1] == pytest.approx(2, abs=0.1)
