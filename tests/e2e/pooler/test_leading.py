"""Behind a pooler, without a session lock, there is one leader: a second one cannot write, a frozen one is replaced."""

from __future__ import annotations

import signal
import threading
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import BY_INDEX, connect
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.db.statements import sql
from pgsched.leader.election import Leader
from pgsched.leader.term import Term
from tests.support.bouncer import Bouncer
from tests.support.fleet import Fleet, clock, fleet_on, one, wait_for_leader
from tests.support.pooled import SECONDLY, check_slots
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

Db = psycopg.Connection[Any]


def slots_after(db: Db, at: object) -> None:
    later = "SELECT count(*) FROM pgsched.runs WHERE scheduled_at > %s AND state = 'succeeded'"
    wait_until(lambda: one(db, later, at) >= 2, 30, "slots after the change")
    check_slots(db)
    overlapping = db.execute(
        "SELECT a.term FROM pgsched.leader a JOIN pgsched.leader b ON b.term > a.term AND b.elected_at < a.seen_at"
    ).fetchall()
    assert overlapping == []


# A silent leader is replaced after ten seconds. By default, the tests below do not wait for that. They show that its
# term has ended, that another leader begins the next term, and that the old leader writes nothing any more.
SILENT = [pytest.param(how, marks=pytest.mark.long) for how in (signal.SIGKILL, signal.SIGSTOP)]


@pytest.mark.long
@pytest.mark.parametrize("how", [*SILENT, signal.SIGTERM])
def test_another_leads_when_the_leader_is_gone(fleet: Fleet, db: Db, how: signal.Signals) -> None:
    fleet.start(2)
    db.execute(SECONDLY.encode())
    wait_until(lambda: one(db, "SELECT count(*) FROM ledger") >= 1, 30, what="the first slot")
    leader = fleet.by_pid(wait_for_leader(db))
    gone_at = clock(db)
    leader.signal(how)
    wait_for_leader(db, other_than=leader.pid, timeout=20)
    took_s = (one(db, "SELECT max(elected_at) FROM pgsched.leader") - gone_at).total_seconds()
    print(f"{how.name}: another leads after {took_s:.2f} s")
    assert took_s <= (12 if how != signal.SIGTERM else 5)  # a leader that resigned is replaced without a wait
    if how == signal.SIGSTOP:
        leader.signal(signal.SIGCONT)
        wait_until(
            lambda: leader.logged("leadership lost") or leader.logged("connection lost"), 20, "it to be turned away"
        )
    slots_after(db, clock(db))


def test_of_two_processes_that_believe_they_lead_only_the_newest_writes(bouncer: Bouncer, db: Db) -> None:
    with connect(bouncer.dsn, settings=BY_INDEX) as old, connect(bouncer.dsn, settings=BY_INDEX) as new:
        with old.transaction():
            leadership.fence(old, None)
            first, _ = leadership.elect(old, "old")
        with new.transaction():
            leadership.fence(new, None)
            second, _ = leadership.elect(new, "new")
        assert second == first + 1
        with pytest.raises(NotLeading), Term(old, first, LeaderSettings()).leading():
            pytest.fail("the old leader may write")
        with Term(new, second, LeaderSettings()).leading() as writing:
            with pytest.raises(NotLeading), Term(old, second, LeaderSettings()).leading():
                pytest.fail("two write at once")
            writing.execute("SELECT 1")


def test_a_term_that_is_alive_is_left_alone(bouncer: Bouncer, db: Db) -> None:
    with connect(bouncer.dsn) as conn:
        assert leadership.is_vacant(conn, 10)
        with conn.transaction():
            leadership.fence(conn, None)
            term, _ = leadership.elect(conn, "somebody")
        assert not leadership.is_vacant(conn, 10)
        db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() - interval '11 s'")
        assert leadership.is_vacant(conn, 10)
        leadership.mark_term_alive(conn, term)
        assert not leadership.is_vacant(conn, 10)
        leadership.mark_term_alive(conn, term, resign=True)
        assert leadership.is_vacant(conn, 10)


def test_a_term_last_seen_far_in_the_future_is_not_waited_for(bouncer: Bouncer, db: Db) -> None:
    """Such a term would keep every process from leading until the clock has caught up."""
    with connect(bouncer.dsn) as conn:
        with conn.transaction():
            leadership.fence(conn, None)
            leadership.elect(conn, "somebody")
        db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() + interval '1 second'")
        assert not leadership.is_vacant(conn, 10), "so little is a correction, and no failover"
        db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() + interval '1 hour'")
        assert leadership.is_vacant(conn, 10)


def test_a_clock_that_goes_back_under_a_live_leader_leaves_one_leader(bouncer: Bouncer, db: Db) -> None:
    """A candidate then begins a new term, and the old leader writes nothing any more."""
    with connect(bouncer.dsn, settings=BY_INDEX) as old, connect(bouncer.dsn, settings=BY_INDEX) as new:
        with old.transaction():
            leadership.fence(old, None)
            first, _ = leadership.elect(old, "old")
        db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() + interval '1 hour'")
        with Term(old, first, LeaderSettings()).leading(), pytest.raises(NotLeading), new.transaction():
            leadership.fence(new, None)
        db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() + interval '1 hour'")
        assert leadership.is_vacant(new, 10)
        with new.transaction():
            leadership.fence(new, None)
            assert leadership.is_vacant(new, 10)
            second, _ = leadership.elect(new, "new")
        assert not leadership.is_vacant(old, 10)
        with pytest.raises(NotLeading), Term(old, first, LeaderSettings()).leading():
            pytest.fail("the old leader may write")
        with Term(new, second, LeaderSettings()).leading():
            pass


def test_after_a_failover_to_a_server_with_an_earlier_clock_a_candidate_leads(bouncer: Bouncer, db: Db) -> None:
    with connect(bouncer.dsn) as gone, gone.transaction():
        leadership.fence(gone, None)
        leadership.elect(gone, "gone without a word")
    db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() + interval '1 hour'")
    leader = Leader(bouncer.dsn, LeaderSettings(election_every_s=0.1), "candidate")
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: leader.term == 2, 10, "a new term")
    finally:
        leader.stop()
        thread.join(10)


def test_eight_candidates_behind_a_pooler_elect_one(bouncer: Bouncer, db: Db) -> None:
    leaders = [Leader(bouncer.dsn, LeaderSettings(election_every_s=0.1), f"candidate {n}") for n in range(8)]
    threads = [threading.Thread(target=leader.run, daemon=True) for leader in leaders]
    for thread in threads:
        thread.start()
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.leader") > 0, 30, "a term")
    seen = one(db, "SELECT max(seen_at) FROM pgsched.leader")
    wait_until(lambda: one(db, "SELECT max(seen_at) FROM pgsched.leader") > seen, 30, "the term to go on")
    assert [leader.term for leader in leaders if leader.term is not None] == [1]
    for leader in leaders:
        leader.stop()
    for thread in threads:
        thread.join(10)
    assert one(db, "SELECT count(*) FROM pgsched.leader WHERE resigned_at IS NULL") == 0


@pytest.mark.long  # by default: test_a_term_that_is_alive_is_left_alone, and a test of late locks in tests/hostile
def test_a_direct_leader_and_a_pooled_candidate_agree(
    bouncer: Bouncer, fleet: Fleet, db: Db, dsn: str, tmp_path_factory: Any
) -> None:
    """The pooled candidate waits until the direct leader's term ends. A direct candidate then doubles nothing."""
    with fleet_on(dsn, tmp_path_factory.mktemp("direct")) as direct:
        (first,) = direct.start(1)
        wait_for_leader(db)
        fleet.start(1)
        db.execute(SECONDLY.encode())
        wait_until(lambda: one(db, "SELECT count(*) FROM ledger") >= 3, 30, "slots")
        assert one(db, "SELECT max(term) FROM pgsched.leader") == 1
        first.kill()
        wait_for_leader(db, other_than=first.pid, timeout=20)
        direct.start(1)  # it gets the session lock, and leaves the leader without the lock alone
        slots_after(db, clock(db))


@pytest.mark.long
def test_a_candidate_that_holds_the_fence_does_not_end_a_term(bouncer: Bouncer, db: Db) -> None:
    leader = Leader(bouncer.dsn, LeaderSettings(), "leader")
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    wait_until(lambda: leader.term, 30, "a term")
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('j', '@every 1s', 'note')")
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.runs") > 0, 30, "a slot")
    with connect(bouncer.dsn) as candidate, candidate.transaction():
        wait_until(lambda: candidate.execute(sql("leader_fence"), {"term": None}).fetchone() == (1,), 10, "the fence")
        at = one(db, "SELECT count(*) FROM pgsched.runs")
        begun = clock(db)
        wait_until(lambda: (clock(db) - begun).total_seconds() > 2.5, 10, "rounds that cannot prove leadership")
        assert one(db, "SELECT count(*) FROM pgsched.runs") == at
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.runs") > at, 30, "slots again")
    assert (leader.term, one(db, "SELECT max(term) FROM pgsched.leader")) == (1, 1)
    leader.stop()
    thread.join(10)
