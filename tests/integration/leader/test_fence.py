"""Only one leader at a time can write, even if several sessions believe that they lead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.leader.leadership import NotLeading, elect, fence, try_lead
from pgsched.leader import candidacy
from pgsched.leader.candidacy import try_period_s
from pgsched.leader.election import Leader
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.term import Term
from pgsched.leader.ticker import tick
from tests.support.db.setting import Open, add_jobs, add_runs, cut, let_expire, slots, take
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14

SESSION_LOCK = "pg_try_advisory_lock(hashtextextended('pgsched.leader', 0::bigint))"
FENCE_LOCK = "    FOR NO KEY UPDATE SKIP LOCKED\n"
QUICK = LeaderSettings(election_every_s=0.1, reap_every_s=0.1, session_timeout_s=2)


def begin_term(conn: psycopg.Connection, holder: str, *, locked: bool = False) -> int:
    with conn.transaction():
        fence(conn, None)
        return elect(conn, holder, locked=locked)[0]


Lead = Callable[[int], list[Leader]]


@pytest.fixture
def lead(dsn: str) -> Iterator[Lead]:
    """Return a function that starts candidates in threads; all are stopped after the test."""
    started: list[tuple[Leader, threading.Thread]] = []

    def start(count: int) -> list[Leader]:
        for n in range(count):
            leader = Leader(dsn, QUICK, f"candidate {n}")
            thread = threading.Thread(target=leader.run)
            thread.start()
            started.append((leader, thread))
        return [leader for leader, _ in started]

    yield start
    for leader, _ in started:
        leader.stop()
    for _, thread in started:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("guarded", [True, False])
def test_one_session_wins_the_election(guarded: bool, connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    if not guarded:
        cut(monkeypatch, "leader_try", SESSION_LOCK, "true")
    assert [try_lead(connect()) for _ in range(3)] == [True, not guarded, not guarded]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_second_leader_cannot_enter_while_one_is_inside(
    guarded: bool, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "leader_fence", FENCE_LOCK, "")
    begin_term(connect(), "somebody")
    first, second = connect(autocommit=False), connect(autocommit=False)
    fence(first, None)
    if guarded:
        with pytest.raises(NotLeading, match="inside a transaction"):
            fence(second, None)
    else:
        fence(second, None)


@pytest.mark.parametrize("guarded", [True, False])
def test_of_two_candidates_without_a_term_to_lock_one_begins_the_first_term(guarded: bool, connect: Open) -> None:
    one, other = connect(), connect()
    with other.transaction():
        assert fence(other, None) is None
        assert begin_term(one, "one") == 1
        if guarded:
            with pytest.raises(NotLeading, match="another candidate began the first term"):
                elect(other, "other", first=True)
        else:
            assert elect(other, "other")[0] == 2


@pytest.mark.parametrize("guarded", [True, False])
def test_a_leader_whose_term_has_ended_writes_nothing(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 3, 20)
    old, new = connect(), connect()
    stale = LeaderLoop(Term(old, begin_term(old, "old"), LeaderSettings()), reap_from=0.0)
    assert begin_term(new, "new") == stale.term.number + 1
    if guarded:
        with pytest.raises(NotLeading, match=r"term 1 has ended: term 2 leads"):
            stale.run_once()
        assert slots(db) == (0, 0)
    else:
        cut(monkeypatch, "leader_term", "max(term)", "min(term)")
        stale.run_once()
        assert slots(db) == (60, 60)


def test_a_leader_frozen_inside_a_transaction_is_ended_and_rolled_back(
    dsn: str, db: psycopg.Connection, connect: Open
) -> None:
    add_jobs(db, 3, 20)
    frozen = Leader(dsn, LeaderSettings(session_timeout_s=0.5), "frozen")
    control = connect(autocommit=False)  # holds a lock of its own, and has no timeout
    with frozen.session() as conn:
        assert try_lead(conn)
        term = begin_term(conn, "frozen")
        control.execute("SELECT pg_try_advisory_xact_lock(1)")
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout), conn.transaction():
            fence(conn, term)
            assert tick(conn, 100).slots == 60
            new = connect()
            # until the server ends the frozen session, no other leader can write
            with pytest.raises(NotLeading), new.transaction():
                fence(new, None)
            wait_until(lambda: try_lead(new), what="the session lock of the frozen leader")
            assert begin_term(new, "new") == term + 1
            with new.transaction():
                fence(new, term + 1)
                assert tick(new, 100).slots == 60
            conn.execute("SELECT 1")  # the frozen leader wakes up
    assert slots(db) == (60, 60)
    control.execute("SELECT 1")  # a session that was idle for as long, but without a timeout, still holds its lock
    held = db.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s",
                      [control.info.backend_pid]).fetchone()  # fmt: skip
    assert held == (1,)


def test_an_idle_frozen_leader_loses_its_session_lock(dsn: str, connect: Open) -> None:
    frozen = Leader(dsn, LeaderSettings(session_timeout_s=0.5), "frozen")
    other = connect()
    with frozen.session() as conn:
        assert try_lead(conn)
        assert not try_lead(other)
        wait_until(lambda: try_lead(other), what="the lock of the idle session")
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")


@pytest.mark.few(1)
@pytest.mark.parametrize("forced", [False, True])
def test_many_leaders_make_no_slot_twice(
    forced: bool, db: psycopg.Connection, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`forced`: every candidate believes that it has the session lock, so only fence and term protect the slots."""
    if forced:
        cut(monkeypatch, "leader_try", SESSION_LOCK, "true")
    add_jobs(db, 300, 20)
    lead(3)
    wait_until(lambda: slots(db)[0] >= 6000, what="all slots", timeout=30)
    terms = "SELECT count(*), count(DISTINCT holder) FROM pgsched.leader"
    if forced:
        wait_until(lambda: (db.execute(terms).fetchone() or (0, 0))[1] > 1, what="a second leader")
    else:
        assert db.execute(terms).fetchone() == (1, 1)
    assert slots(db) == (6000, 6000)


def test_a_resigning_leader_is_followed_at_once(db: psycopg.Connection, lead: Lead) -> None:
    candidates = lead(2)
    first = wait_until(lambda: next((c for c in candidates if c.term), None), what="a leader")
    first.stop()
    wait_until(lambda: any(c.term == 2 for c in candidates), what="the second term")
    ended = db.execute("SELECT resigned_at IS NOT NULL FROM pgsched.leader WHERE term = 1").fetchone()
    assert ended == (True,)


@pytest.mark.long
@pytest.mark.parametrize("guarded", [True, False])
def test_a_new_leader_reaps_nothing_for_a_full_lease(
    guarded: bool, db: psycopg.Connection, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage longer than a lease every claim looks expired, although its worker is healthy."""
    if not guarded:
        monkeypatch.setattr(leadership, "elect", lambda conn, holder, **more: (elect(conn, holder, **more)[0], 0.0))
    lease_s = 3
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
        " VALUES ('w', 'h', 1, '0', 1, '{task}', '{t}', make_interval(secs => %s))",
        [lease_s],
    )
    add_runs(db, 1)
    take(db)
    let_expire(db)
    (leader,) = lead(1)
    wait_until(lambda: leader.term, what="a leader")
    elected = db.execute("SELECT elected_at FROM pgsched.leader").fetchone()
    wait_until(lambda: db.execute("SELECT 1 FROM pgsched.attempts").fetchone(), what="the claim to be reaped")
    after = db.execute("SELECT extract(epoch FROM finished_at - %s) FROM pgsched.attempts", elected).fetchone()
    assert after is not None
    assert (after[0] >= lease_s) is guarded


@pytest.mark.long
@pytest.mark.parametrize("closed", [False, True])
def test_a_full_disk_ends_no_term_unless_the_session_is_closed(
    closed: bool, db: psycopg.Connection, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk once caused 47 terms in twelve seconds, and no leader of these terms could write anything."""
    look, times = leadership.find_due_work, []

    def refuse(conn: psycopg.Connection, *args: Any, **more: Any) -> leadership.DueWork:
        times.append(time.monotonic())
        if len(times) < 4:
            conn.execute("SELECT 1")
            if closed:
                conn.close()
            raise psycopg.errors.DiskFull("could not extend file")
        return look(conn, *args, **more)

    monkeypatch.setattr(leadership, "find_due_work", refuse)
    lead(1)
    wait_until(lambda: len(times) > 5, 20, "rounds after the shortage")
    assert db.execute("SELECT count(*) FROM pgsched.leader").fetchone() == (4 if closed else 1,)
    if not closed:
        assert times[3] - times[0] > 2.5, "it does not ask again at once"


@pytest.mark.parametrize(("count", "seconds"), [(0, 1.0), (1, 1.0), (20, 1.0), (40, 2.0), (60, 3.0), (1000, 3.0)])
def test_one_of_many_candidates_asks_less_often(count: int, seconds: float) -> None:
    assert try_period_s(LeaderSettings(election_every_s=1.0), count) == seconds


def test_a_candidate_asks_often_enough_to_keep_its_session() -> None:
    assert try_period_s(LeaderSettings(election_every_s=60.0, session_timeout_s=2), 1000) == 1


def test_candidates_of_this_database_are_counted(lead: Lead, connect: Open, dsn: str) -> None:
    lead(3)
    conn = connect()
    wait_until(lambda: leadership.count_candidates(conn) == 3, what="three candidates")
    with psycopg.connect(dsn, application_name="pgsched leader here"):
        assert leadership.count_candidates(conn) == 4
    with psycopg.connect(dsn, dbname="postgres", application_name="pgsched leader elsewhere"):
        wait_until(lambda: leadership.count_candidates(conn) == 3, what="the fourth to be gone")


def test_a_candidate_adapts_its_period_to_the_number_of_candidates(
    dsn: str, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = connect()
    assert try_lead(holder)
    begin_term(holder, "holder", locked=True)
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1), "candidate")
    monkeypatch.setattr(candidacy, "RECOUNT", 3)
    counts, pauses = iter((1, 40, 1, 40, 60, 20)), []
    monkeypatch.setattr(leadership, "count_candidates", lambda _conn: next(counts))

    def pause(_conn: object, seconds: float, _deaf_s: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 11:
            leader.stop()

    monkeypatch.setattr(leader.pauses, "pause", pause)
    leader.run()
    assert pauses == pytest.approx([0.1, 0.2, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 0.1])
