"""Expired claims are found in time however many runs are queued, and the search makes no slot late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.queries.leader import expired_leases, leadership
from pgsched.db.queries.runs import workers
from pgsched.leader import reaper
from pgsched.leader.duties import claims as claims_duty
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.reaper import LeaseSearch, ReapQuery, ReapResult
from tests.support.db.clocks import moved
from tests.support.db.leading import lead
from tests.support.db.plans import nodes
from tests.support.db.setting import Open, add_jobs, add_runs, let_expire, row_of, slots, take
from tests.support.waiting import wait_until

QUEUED = 200_000
SLOW_S = 1.5


def a_worker(db: psycopg.Connection, silent_s: float = 0.0, lease_s: float = 30.0) -> int:
    """Register a worker whose last heartbeat was `silent_s` seconds ago; return its id."""
    worker = workers.insert_worker(db, workers.Registration("host:1", "1", None, 1, None, ["task"], ["t"], lease_s))
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - make_interval(secs => %s) WHERE id = %s",
               [silent_s, worker])  # fmt: skip
    return worker


def read(db: psycopg.Connection, name: str, **values: Any) -> float:
    """Return how many rows of pgsched.runs a statement reads."""
    text = b"EXPLAIN (ANALYZE, FORMAT JSON) " + leadership.sql(name)
    with db.transaction(force_rollback=True):
        ((found,),) = db.execute(text, values).fetchall()
    scans = [node for node in nodes(found[0]["Plan"]) if node.get("Relation Name") == "runs"]
    each = [scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) for scan in scans]
    return sum(rows * scan["Actual Loops"] for rows, scan in zip(each, scans, strict=True))


@pytest.fixture
def backlog(db: psycopg.Connection) -> psycopg.Connection:
    """Return a connection to a database in which 200,000 runs are queued."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("INSERT INTO pgsched.runs (task) SELECT 'other' FROM generate_series(1, %s)", [QUEUED])
    db.execute("VACUUM ANALYZE pgsched.runs")
    return db


@pytest.fixture
def loop(connect: Open, dsn: str) -> Iterator[LeaderLoop]:
    """Return a leader that may search for expired claims in a session of its own."""
    loop = lead(connect(), reap_every_s=0.2)
    loop.claims.search = LeaseSearch(dsn)
    yield loop
    wait_until(
        lambda: not loop.claims.search.busy or loop.claims.search.take_result() or not loop.claims.search.busy,
        30,
        "the last look",
    )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make searches for claims slow; return the list of the instants at which they began."""
    really, began = expired_leases.find_bad_leases, []

    def astray(conn: psycopg.Connection, *given: Any, **more: Any) -> tuple[list[int], list[int]]:
        began.append(time.monotonic())
        conn.execute("SELECT pg_sleep(%s)", [SLOW_S])
        return really(conn, *given, **more)

    monkeypatch.setattr(expired_leases, "find_bad_leases", astray)
    return began


def rounds(loop: LeaderLoop, seconds: float, until: Callable[[], bool] = bool) -> list[float]:
    """Run rounds for `seconds` or until `until` holds; return how long each round took."""
    took, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends and not until():
        began = time.monotonic()
        wait_s = loop.run_once()
        took.append(time.monotonic() - began)
        time.sleep(min(wait_s, 0.1))
    return took


@pytest.mark.long
def test_a_round_of_the_leader_does_not_read_the_queued_runs(backlog: psycopg.Connection, connect: Open) -> None:
    conn = connect(options="-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off")
    look: dict[str, Any] = {"term": 1, "searched_s": 0.0, "count": True, "lead_s": 0.01, "aside": "{}"}
    look |= dict.fromkeys(("jobs_s", "scheduled_s", "expires_s", "held_s"), 0.0)
    assert read(conn, "leader_look", **look) < 1000
    assert read(conn, "reap", ids="{5,6,7}", crash_limit=5, before_s=None) < 1000
    assert read(conn, "lease_shorten", ids="{5,6,7}") < 1000
    assert read(conn, "lease_look", n=10, before_s=None, long=True) >= QUEUED, "which is why the leader does not ask it"


@pytest.mark.long
def test_claims_are_found_behind_very_many_queued_runs(backlog: psycopg.Connection, loop: LeaderLoop) -> None:
    add_runs(backlog, 3)
    claims = take(backlog, 3)
    let_expire(backlog)
    rounds(loop, 20, lambda: row_of(backlog, claims[2].id)["state"] == "queued")
    assert [row_of(backlog, claim.id)["state"] for claim in claims] == ["queued"] * 3
    assert loop.claims.search.uses_thread


@pytest.mark.long
def test_a_slow_search_for_claims_makes_no_slot_late(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float]
) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    add_jobs(db, 1, 3)
    took = rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"
    assert len(slow) == 2, "the one in the leader's session is given up"
    assert slots(db)[0] >= 3
    assert max(took) < SLOW_S / 2


@pytest.mark.long
def test_without_a_session_of_its_own_a_slow_search_delays_the_leader(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float]
) -> None:
    loop.claims.search = LeaseSearch()
    assert max(rounds(loop, 1)) > SLOW_S


@pytest.mark.long
def test_slow_searches_take_a_small_share_of_the_time(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "FIRST_PAUSE_S", 1.0)
    rounds(loop, 20, lambda: len(slow) > 2)
    first, second, *others = slow
    assert second - first < 0.5
    assert others and others[0] - second >= SLOW_S + 1.0
    assert len(others) == 1


@pytest.mark.long
def test_a_quick_search_is_made_every_period_only_while_a_worker_is_silent(
    db: psycopg.Connection, loop: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, made = expired_leases.find_bad_leases_within, []

    def counted(*given: Any, **more: Any) -> Any:
        made.append(time.monotonic())
        return really(*given, **more)

    monkeypatch.setattr(expired_leases, "find_bad_leases_within", counted)
    monkeypatch.setattr(reaper, "QUICK_S", 5.0)
    rounds(loop, 3)  # 15 periods
    assert len(made) == 2
    made.clear()
    a_worker(db, silent_s=31)
    rounds(loop, 2)
    assert len(made) >= 5


@pytest.mark.long
def test_claims_of_a_silent_worker_are_searched_for_at_once(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float]
) -> None:
    """The worker's claims end within two leases of its last heartbeat. Until then slow searches come every period."""
    add_runs(db, 1)
    (claim,) = take(db)
    rounds(loop, 20, lambda: loop.claims.search.next_at > time.monotonic() + 3)
    a_worker(db, silent_s=31)
    let_expire(db)
    began = time.monotonic()
    rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert time.monotonic() - began < SLOW_S + 1.5


@pytest.mark.long
def test_a_new_leader_searches_at_once_only_if_a_worker_is_silent(
    db: psycopg.Connection, loop: LeaderLoop, dsn: str
) -> None:
    """A search reads all queued runs, and this is the very moment at which a fleet starts."""
    loop.claims.search = LeaseSearch(dsn, time.monotonic() + 600)
    a_worker(db)
    rounds(loop, 1)  # five periods
    assert loop.claims.search.last_reap_search_s == 0.0
    a_worker(db, silent_s=31)
    rounds(loop, 20, lambda: loop.claims.search.last_reap_search_s > 0)
    assert loop.claims.search.last_reap_search_s > 0


@pytest.mark.parametrize(
    ("silent_s", "searched_s", "silent"),
    [(0, 0, False), (29, 0, False), (31, 0, True), (59, 0, True), (59, 1, True), (61, 2, True), (61, 0, False),
     (63, 2, False), (58, 0, True), (70, 20, True)],
)  # fmt: skip
def test_claims_of_a_silent_worker_are_searched_for_until_they_have_ended(
    silent_s: float, searched_s: float, silent: bool, db: psycopg.Connection
) -> None:
    """`searched_s`: the seconds since the last search."""
    a_worker(db, silent_s)
    assert leadership.find_due_work(db, 0, searched_s=time.time() - searched_s).silent is silent


@pytest.mark.parametrize(
    ("silent_s", "searched_s", "silent"),
    [(0, 0, False), (29, 29, False), (31, 0, False), (31, 2, True), (59, 0, False), (59, 28, False), (59, 30, True)],
)
def test_claims_of_a_stopped_worker_are_searched_for_once_they_have_ended(
    silent_s: float, searched_s: float, silent: bool, db: psycopg.Connection
) -> None:
    worker = a_worker(db, silent_s)
    db.execute("UPDATE pgsched.workers SET stopped_at = seen_at WHERE id = %s", [worker])
    assert leadership.find_due_work(db, 0, searched_s=time.time() - searched_s).silent is silent


def test_claims_left_by_a_stopped_worker_are_reaped_in_the_next_period(db: psycopg.Connection, connect: Open) -> None:
    loop = lead(connect(), reap_every_s=0.2)
    worker = a_worker(db, lease_s=1.0)
    add_runs(db, 1)
    (claim,) = take(db, lease_s=1.0)
    rounds(loop, 20, lambda: loop.claims.search.next_at > 0)
    loop.claims.search.next_at = time.monotonic() + 600
    workers.stop(db, worker, "host:1", stopped=True)
    rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"


def test_the_leader_searches_itself_if_no_thread_can_be_started(
    db: psycopg.Connection, loop: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(reaper.ReapThread, "start", refuse)
    loop.claims.search.uses_thread = True
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"


@pytest.mark.parametrize("expired", [0, 1])
def test_leases_that_are_too_long_are_searched_for_until_none_is_left(
    expired: int, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_duty, "BATCH", 1)
    add_runs(db, 2 + expired)
    claims = take(db, 2 + expired)
    db.execute("UPDATE pgsched.runs SET lease_until = lease_until + interval '1 hour'")
    db.execute("UPDATE pgsched.runs SET lease_until = now() - interval '1 s' WHERE id = ANY (%s)",
               [[claim.id for claim in claims[:expired]]])  # fmt: skip
    loop = lead(connect(), reap_every_s=0.2)
    long = "SELECT count(*) FROM pgsched.runs WHERE lease_until > clock_timestamp() + interval '61 s'"
    rounds(loop, 10, lambda: db.execute(long).fetchone() == (0,))
    assert db.execute(long).fetchone() == (0,)


def test_shortened_claims_are_searched_for_when_they_have_ended(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search just before that would find nothing, and the next one would come a minute later."""
    monkeypatch.setattr(claims_duty, "SELDOM", 10_000)
    worker = a_worker(db, lease_s=1.0)
    add_runs(db, 1)
    (claim,) = take(db, lease_s=1.0)
    db.execute("UPDATE pgsched.runs SET lease_until = lease_until + interval '1 hour', worker_id = %s", [worker])
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at + interval '1 hour'")
    loop = lead(connect(), reap_every_s=0.05)
    loop.clock.stepped_s = lambda *_: -3600.0  # type: ignore[method-assign]
    loop.run_once()
    loop.clock.stepped_s = lambda *_: 0.0  # type: ignore[method-assign]
    rounds(loop, 3, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"


@pytest.mark.long
def test_the_result_of_a_search_from_before_a_clock_step_is_ignored(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "FIRST_PAUSE_S", 0.5)
    a_worker(db)
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    rounds(loop, 20, lambda: loop.claims.search.busy)
    moved(loop, 30)  # 30 s: all workers get one lease to renew
    rounds(loop, SLOW_S + 1)
    assert row_of(db, claim.id)["state"] == "running"
    loop.claims.period.set_due_at(0)
    rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"


def test_leases_that_are_too_long_are_found_before_anything_is_reaped(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float]
) -> None:
    add_runs(db, 2)
    held, other = take(db, 2)
    db.execute("UPDATE pgsched.runs SET lease_until = lease_until + interval '1 hour' WHERE id = %s", [held.id])
    db.execute("UPDATE pgsched.runs SET lease_until = clock_timestamp() WHERE id = %s", [other.id])
    loop.claims.period.set_due_at(time.monotonic() + 600)
    left = "SELECT lease_until < clock_timestamp() + interval '61 s' FROM pgsched.runs WHERE id = %s"
    rounds(loop, 20, lambda: db.execute(left, [held.id]).fetchone() == (True,))
    assert db.execute(left, [held.id]).fetchone() == (True,)
    assert row_of(db, other.id)["state"] == "running", "no time to reap"


@pytest.mark.long
def test_the_leader_searches_itself_if_it_gets_no_further_session(
    db: psycopg.Connection, dsn: str, loop: LeaderLoop, slow: list[float]
) -> None:
    loop.claims.search = LeaseSearch(make_conninfo(dsn, dbname="not_there"))
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"


def test_a_quick_search_stays_in_the_leader_s_session(
    db: psycopg.Connection, loop: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "QUICK_S", 5.0)
    loop.claims.search = LeaseSearch("host=/not/there")
    found = loop.claims.search.search(loop.term.conn, query := ReapQuery(10, time.time(), True, True))
    assert found == ReapResult(query, [], [])


@pytest.mark.long
def test_a_search_that_timed_out_gets_more_time_the_next_time(
    db: psycopg.Connection, loop: LeaderLoop, slow: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "TIMEOUT_S", SLOW_S / 2)
    monkeypatch.setattr(reaper, "FIRST_PAUSE_S", 0.1)
    add_runs(db, 1)
    (claim,) = take(db)
    let_expire(db)
    rounds(loop, 20, lambda: row_of(db, claim.id)["state"] == "queued")
    assert row_of(db, claim.id)["state"] == "queued"
    assert len(slow) == 3
