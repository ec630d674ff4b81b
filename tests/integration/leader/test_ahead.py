"""Runs that are claimed ahead of their instant: nobody sees them before it, and no rule of a claim is passed by."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.runs.claims import Wanted, claim_started
from pgsched.leader import loop as duties_module
from pgsched.leader.loop import Duties
from pgsched.leader.preparation import Cost, Offer
from pgsched.leader.preparation_lead import LONGEST_S
from tests.support.db.leading import add_coming_jobs, lead
from tests.support.db.setting import Open, add_runs, cut, row_of, slots, take
from tests.support.fleet import one
from tests.support.waiting import wait_until

LEAD_S = 0.6


class Fake:
    """Seats that say yes, and note what they hear."""

    def __init__(self, n: int = 1000, queues: tuple[str, ...] = (), tasks: Sequence[str] = ("t",)) -> None:
        self.room = n
        self.queues = queues
        self.wanted = Wanted(7, 30.0, [], list(tasks))
        self.asked: list[int] = []
        self.given: list[list[Claim]] = []
        self.sent_at: list[float] = []
        self.unknown: list[tuple[Sequence[str], UUID]] = []
        self.needed: list[int] = []

    def offer(self, n: int) -> Offer | None:
        self.asked.append(n)
        return Offer(self.wanted, self.queues, min(n, self.room)) if self.room else None

    def keep(self, n: int) -> None:
        self.needed.append(n)

    def give(self, claims: list[Claim], sent_at: float) -> None:
        self.given.append(claims)
        self.sent_at.append(sent_at)

    def unsure(self, queues: Sequence[str], token: UUID, sent_at: float) -> None:
        self.unknown.append((queues, token))


def leader(conn: psycopg.Connection, seats: Fake) -> Duties:
    duties = lead(conn)
    duties._lead._s = LEAD_S
    duties.seats = lambda: seats
    return duties


def until_decided(db: psycopg.Connection, duties: Duties, rows: int) -> None:
    """As a leader does it: what is prepared a few milliseconds ahead cannot wait for a poll."""
    deadline = time.monotonic() + 20
    while slots(db)[0] != rows:
        assert time.monotonic() < deadline, "the slots have no rows"
        time.sleep(min(duties.perform(), 0.05))


def while_it_waits(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], nth: int = 1) -> list[object]:
    """Do this in the nth wait of the batch that is prepared; what came of it."""
    really, waits, came = duties_module.sleep, list[float](), list[object]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == nth:
            came.append(act())
        really(seconds)

    monkeypatch.setattr(duties_module, "sleep", sleep)
    return came


def states(db: psycopg.Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT state, count(*) FROM pgsched.runs GROUP BY 1 ORDER BY 1").fetchall()


def test_they_are_claims_like_others_once_their_instant_has_come(db: psycopg.Connection, connect: Open) -> None:
    at = add_coming_jobs(db, 5, 0.9)
    seats = Fake()
    began = time.monotonic()
    until_decided(db, leader(connect(), seats), 5)
    now = db.execute("SELECT clock_timestamp()").fetchone()
    assert now is not None and now[0] >= at
    (claims,) = seats.given
    assert began < seats.sent_at[0] < time.monotonic()
    for claim in claims:
        row = row_of(db, claim.id)
        assert (row["state"], row["token"], row["worker_id"], row["attempt"]) == ("running", str(claim.token), 7, 1)
    assert len(claims) == 5 and len({claim.token for claim in claims}) == 1
    early = db.execute("SELECT count(*) FROM pgsched.runs WHERE started_at < scheduled_at OR lease_until < now()")
    assert early.fetchone() == (0,), "no attempt has started before its slot"
    assert db.execute("SELECT bool_and(created_at < scheduled_at) FROM pgsched.runs").fetchone() == (True,)
    assert take(db, 10) == [], "nobody else has them"


def test_nobody_sees_them_before(db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    add_coming_jobs(db, 5, 0.9)
    seats = Fake()
    seen = while_it_waits(monkeypatch, lambda: (slots(db), take(db, 10), list(seats.given)), nth=2)
    until_decided(db, leader(connect(), seats), 5)
    assert seen == [((0, 0), [], [])]


def test_what_there_is_no_room_for_is_left_to_all(db: psycopg.Connection, connect: Open) -> None:
    add_coming_jobs(db, 5, 0.9)
    db.execute("UPDATE pgsched.jobs SET priority = 1 WHERE name IN ('j4', 'j5')")
    seats = Fake(n=2)
    until_decided(db, leader(connect(), seats), 5)
    names = db.execute("SELECT name FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = job_id WHERE r.id = ANY(%s)",
                       [[claim.id for claim in seats.given[0]]]).fetchall()  # fmt: skip
    assert sorted(names) == [("j4",), ("j5",)], "those that come first"
    assert len(take(db, 10)) == 3


def test_a_worker_without_room_gets_none(db: psycopg.Connection, connect: Open) -> None:
    add_coming_jobs(db, 5, 0.9)
    seats = Fake(n=0)
    until_decided(db, leader(connect(), seats), 5)
    assert (seats.given, len(seats.asked), states(db)) == ([], 1, [("queued", 5)])


def test_there_is_no_claim_without_the_time_for_it(db: psycopg.Connection, connect: Open) -> None:
    """It would make the whole batch late."""
    add_coming_jobs(db, 5, 0.9)
    seats = Fake()
    duties = leader(connect(), seats)
    duties._lead._s, duties._claim_cost.each_s = 0.4, 0.1
    until_decided(db, duties, 5)
    assert seats.asked == [5]
    (n,) = seats.needed
    assert 0 < n < 4 and len(seats.given[0]) == n
    assert duties._lead.s(time.monotonic()) == LONGEST_S, "there will be more the next time"


def test_what_one_claim_took_is_no_reason_to_claim_nothing_any_more() -> None:
    cost = Cost()
    before = cost.within(0.01)
    cost.took(1, 5.0)
    assert cost.within(0.01) == before > 0
    cost.took(100, 60.0)
    assert 0 < cost.within(0.01) < before
    for _ in range(100):
        cost.took(100, cost.of(0))
    assert cost.within(0.01) > before


def test_the_lead_does_not_grow_for_what_there_is_no_room_for(db: psycopg.Connection, connect: Open) -> None:
    add_coming_jobs(db, 5, 0.4)
    seats = Fake(n=0)
    duties = leader(connect(), seats)
    duties._lead._s, duties._claim_cost.each_s = 0.2, 0.1
    until_decided(db, duties, 5)
    assert len(seats.asked) == 1 and duties._lead.s(time.monotonic()) < 0.2


def test_a_single_slot_gets_the_time_too(db: psycopg.Connection, connect: Open) -> None:
    seats, duties = Fake(), lead(connect())
    duties.seats = lambda: seats
    for _ in range(60):  # one stall of the machine is remembered for a while
        db.execute("DELETE FROM pgsched.runs")
        db.execute("DELETE FROM pgsched.jobs")
        add_coming_jobs(db, 1, 0.3)
        until_decided(db, duties, 1)
        if seats.given and seats.given[-1]:
            return
    pytest.fail("it is never claimed ahead")


def add_worker(
    db: psycopg.Connection,
    count: int,
    queues: list[str] | None,
    ago: int = 0,
    stopping: str | None = None,
    stopped: str | None = None,
) -> None:
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, queues, seen_at,"
        " stopping_at, stopped_at)"
        " SELECT 'w' || n, 'h', 1, '', 1, '{}', '{}', '30 s', %s, now() - make_interval(secs => %s), %s, %s"
        " FROM generate_series(1, %s) n",
        [queues, ago, stopping, stopped, count],
    )


@pytest.mark.parametrize(("workers", "expected"), [(1, 5), (2, 2), (4, 1), (9, 0)])
def test_a_worker_among_others_gets_its_share(
    workers: int, expected: int, db: psycopg.Connection, connect: Open
) -> None:
    """The others are woken for theirs. Those that are gone, stop or serve other queues do not count."""
    add_worker(db, workers, None)
    add_worker(db, 3, ["other"])
    add_worker(db, 3, None, ago=60)
    add_worker(db, 3, None, stopping="now")
    add_worker(db, 3, None, stopped="now")
    add_coming_jobs(db, 5, 0.9)
    seats = Fake(queues=("default",))
    until_decided(db, leader(connect(), seats), 5)
    assert [len(claims) for claims in seats.given] == [expected]
    assert len(take(db, 10)) == 5 - expected


def test_its_share_is_one_of_what_it_may_claim(db: psycopg.Connection, connect: Open) -> None:
    """Of ten runs it may claim four, which two workers can: that makes two."""
    add_worker(db, 2, None)
    add_coming_jobs(db, 10, 0.9)
    db.execute("UPDATE pgsched.jobs SET queue = 'mine' WHERE name IN ('j1', 'j2', 'j3', 'j4')")
    seats = Fake(queues=("mine",))
    until_decided(db, leader(connect(), seats), 10)
    assert [len(claims) for claims in seats.given] == [2]


def test_room_that_is_not_needed_is_given_back_at_once(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is paused then does not matter."""
    add_coming_jobs(db, 2, 0.9)
    seats = Fake(tasks=("another",))
    came = while_it_waits(
        monkeypatch, lambda: (list(seats.given), db.execute("INSERT INTO pgsched.pauses (what) VALUES ('all')"))[0]
    )
    until_decided(db, leader(connect(), seats), 2)
    assert (came, seats.given) == ([[[]]], [[]])
    assert one(db, "SELECT bool_and(created_at < scheduled_at) FROM pgsched.runs"), "they were made before"


def test_a_commit_that_takes_long_is_seen_in_when_they_started(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk, or a standby that has to answer: alerts of what is late must know."""
    add_coming_jobs(db, 2, 0.9)
    asked, ask = list[int](), duties_module.ask

    def ask_and_stall(*args: Any) -> float:
        asked.append(1)
        took_s = ask(*args)
        time.sleep(0.3 if len(asked) == 2 else 0)
        return took_s

    monkeypatch.setattr(duties_module, "ask", ask_and_stall)
    seats = Fake()
    until_decided(db, leader(connect(), seats), 2)
    assert len(seats.given[0]) == 2
    late = "SELECT min(extract(epoch FROM started_at - scheduled_at))::float8 FROM pgsched.runs"
    assert 0.25 < one(db, late) < 1.0


def test_also_of_those_that_have_ended_before_it_is_written_down(db: psycopg.Connection, connect: Open) -> None:
    """They were told first. What somebody holds does not hold up the leader."""
    add_runs(db, 3)
    claims = take(db, 3)
    db.execute("UPDATE pgsched.runs SET started_at = now() - interval '1 hour'")
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE id = 1")
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM pgsched.runs WHERE id = 2 FOR UPDATE")
    claim_started(connect(options="-c lock_timeout=500ms"), claims)
    told = (
        "SELECT started_at > now() - interval '1 minute', started_at <= coalesce(finished_at, now()) FROM pgsched.runs"
    )
    found = db.execute(told + " ORDER BY id").fetchall()
    assert found == [(True, True), (False, True), (True, True)]


@pytest.mark.parametrize(
    ("columns", "queues", "tasks"),
    [
        ({"queue": "other"}, ("mine",), ("t",)),
        ({}, (), ("another",)),
        ({"kind": "shell"}, (), ("t",)),
        ({"concurrency_key": "k", "concurrency_limit": 1}, (), ("t",)),
    ],
)
def test_it_takes_only_what_its_worker_may_claim(
    columns: dict[str, Any], queues: tuple[str, ...], tasks: tuple[str, ...], db: psycopg.Connection, connect: Open
) -> None:
    add_coming_jobs(db, 2, 0.9, **columns)
    seats = Fake(queues=queues, tasks=tasks)
    until_decided(db, leader(connect(), seats), 2)
    assert [claims for claims in seats.given if claims] == []
    assert ("running", 2) not in states(db)


PAUSES = [("all", ""), ("queue", "default"), ("task", "t"), ("limit", "default")]


@pytest.mark.parametrize(("what", "name"), PAUSES)
def test_what_is_paused_is_not_claimed(what: str, name: str, db: psycopg.Connection, connect: Open) -> None:
    add_coming_jobs(db, 2, 0.9)
    db.execute("INSERT INTO pgsched.pauses (what, name) VALUES (%s, %s)", [what, name])
    seats = Fake()
    until_decided(db, leader(connect(), seats), 2)
    assert (seats.given, states(db)) == ([[]], [("queued", 2)])


@pytest.mark.parametrize(("what", "name"), PAUSES)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("guarded", [True, False])
def test_what_is_paused_before_the_instant_is_not_run(
    guarded: bool,
    nth: int,
    what: str,
    name: str,
    db: psycopg.Connection,
    connect: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`nth`: in which of its two waits; the second one is the last before the instant."""
    if not guarded:
        cut(monkeypatch, leadership, "tick_crossed", "coalesce(%(pauses)s", "coalesce(false AND %(pauses)s")
    add_coming_jobs(db, 2, 0.9)
    pause = "INSERT INTO pgsched.pauses (what, name) VALUES (%s, %s)"
    paused = while_it_waits(monkeypatch, lambda: db.execute(pause, [what, name]), nth)
    seats = Fake()
    until_decided(db, leader(connect(), seats), 2)
    assert paused
    if guarded:
        assert [claims for claims in seats.given if claims] == []
        assert states(db) == [("queued", 2)]
    else:
        assert (len(seats.given[0]), states(db)) == (2, [("running", 2)])


def test_a_batch_that_is_given_up_gives_none(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_coming_jobs(db, 2, 0.9)
    seats = Fake()
    triggered = while_it_waits(monkeypatch, lambda: db.execute("SELECT pgsched.trigger('j1')").fetchone())
    until_decided(db, leader(connect(), seats), 3)
    assert triggered and seats.given[0] == [] and seats.unknown == []
    assert states(db) == [("queued", 2), ("skipped", 1)]


def test_what_nobody_knows_of_is_asked_for(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost in the commit: the claims may be there."""
    add_coming_jobs(db, 2, 0.9)
    seats, conn, asked = Fake(), connect(), list[int]()
    duties = leader(conn, seats)
    ask = duties_module.ask

    def ask_and_lose(*args: Any) -> float:
        asked.append(1)
        if len(asked) == 2:
            conn.execute("COMMIT")  # it arrives, its answer does not
            conn.pgconn.finish()
            raise psycopg.OperationalError("the connection is lost")
        return ask(*args)

    monkeypatch.setattr(duties_module, "ask", ask_and_lose)
    with pytest.raises(psycopg.OperationalError):
        wait_until(lambda: duties.perform() < 0, what="the connection to be lost")
    ((queues, token),) = seats.unknown
    assert (seats.given, queues, states(db)) == ([], ["default"], [("running", 2)])
    again = db.execute("SELECT count(*) FROM pgsched.runs WHERE token = %s", [token]).fetchone()
    assert again == (2,)
