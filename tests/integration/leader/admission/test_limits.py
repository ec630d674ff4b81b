"""Limits: which runs are admitted and when, and that every way back to `queued` is limited.

Tests of guards have a twin that runs without the guard.
"""

from __future__ import annotations

import psycopg
import pytest

from pgsched.chaos.checks.limits import Attempt, find_limit_violations
from pgsched.config import LeaderSettings
from pgsched.core import admission as gates
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.leader import leadership, limits, ticks
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.leader import admission
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.term import Term
from tests.support.db.limiting import add, admit, claim_all, end, limit, limit_queue, release, states
from tests.support.db.setting import Open, cut, let_expire, reap, row_of, take
from tests.support.fleet import one


def retry_in(db: psycopg.Connection, run_id: int, delay: str) -> None:
    db.execute("UPDATE pgsched.runs SET state = 'scheduled', available_at = clock_timestamp() + %s::interval"
               " WHERE id = %s", [delay, run_id])  # fmt: skip


# ---- which runs wait, and which are admitted


def test_a_run_without_limits_is_claimable_at_once(db: psycopg.Connection) -> None:
    limit(db, "customer", 1)
    limit_queue(db, "elsewhere", concurrency_limit=1)
    add(db, 3)
    assert states(db) == {"queued": 3}


def test_no_more_runs_of_a_key_are_admitted_than_its_limit_says(db: psycopg.Connection) -> None:
    limit(db, "customer", 2)
    for key in ("customer:1", "customer:2", "customer"):
        add(db, 5, key)
    assert [admit(db), admit(db)] == [6, 0]
    assert states(db) == {"queued": 6, "waiting": 9}
    end(db, claim_all(db)[0])
    assert [admit(db), admit(db)] == [1, 0]


def test_the_limit_of_a_whole_key_comes_before_that_of_its_prefix(db: psycopg.Connection) -> None:
    limit(db, "customer", 1)
    limit(db, "customer:big", 3)
    add(db, 5, "customer:big")
    assert admit(db) == 3


def test_a_key_that_no_limit_binds_passes_through(db: psycopg.Connection) -> None:
    add(db, 4, "whatever")
    assert states(db) == {"waiting": 4}
    assert admit(db) == 4


def test_a_queue_admits_no_more_than_its_limit(db: psycopg.Connection) -> None:
    limit_queue(db, concurrency_limit=3)
    add(db, 5)
    add(db, 5, "k")
    assert [admit(db), admit(db)] == [3, 0]


def test_a_key_is_counted_over_all_queues(db: psycopg.Connection) -> None:
    limit(db, "k", 3)
    add(db, 2, "k", "a")
    add(db, 2, "k", "b")
    assert admit(db) == 3


def test_a_job_may_have_a_limit_of_its_own(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, overlap, concurrency_limit)"
               " VALUES ('j', '0 0 1 1 *', 't', 'allow', 2)")  # fmt: skip
    for _ in range(4):
        db.execute("SELECT pgsched.trigger('j')")
    assert states(db) == {"waiting": 4}
    assert [admit(db), admit(db)] == [2, 0]
    db.execute("UPDATE pgsched.jobs SET concurrency_limit = 3 WHERE name = 'j'")
    admit(db)
    assert states(db) == {"queued": 3, "waiting": 1}


def test_a_jobs_key_is_made_from_its_arguments(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, overlap, args, concurrency_key)"
               """ VALUES ('j', '0 0 1 1 *', 't', 'allow', '{"id": 7}', 'customer:{id}')""")  # fmt: skip
    db.execute("SELECT pgsched.trigger('j'), pgsched.trigger('j', '{\"id\": \"x\"}')")
    keys = db.execute("SELECT concurrency_key FROM pgsched.runs ORDER BY id").fetchall()
    assert keys == [("customer:7",), ("customer:x",)]


def test_a_limit_of_a_job_binds_the_runs_that_it_has_already(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, overlap) VALUES ('j', '0 0 1 1 *', 't', 'allow')")
    for _ in range(4):
        db.execute("SELECT pgsched.trigger('j')")
    assert states(db) == {"queued": 4}
    db.execute("UPDATE pgsched.jobs SET concurrency_limit = 1 WHERE name = 'j'")
    assert states(db) == {"waiting": 4}
    assert admit(db) == 1


def test_the_most_urgent_run_is_admitted_first_then_the_oldest(db: psycopg.Connection) -> None:
    limit(db, "k", 1)
    late, first, second = add(db, 1, "k", priority=7)[0], *add(db, 2, "k")
    order = []
    for _ in range(3):
        admit(db)
        order.append(claim_all(db)[0])
        end(db, order[-1])
    assert order == [first, second, late]


@pytest.mark.parametrize("ageing", [None, "1 minute"])
@pytest.mark.parametrize("key", [None, "k"])
def test_many_runs_of_a_paused_task_do_not_block_the_runs_behind_them(
    key: str | None, ageing: str | None, db: psycopg.Connection
) -> None:
    if key:
        limit(db, key, 2)
    limit_queue(db, concurrency_limit=None if key else 2, ageing=ageing)
    paused = add(db, 5, key, task="paused")
    others = add(db, 3, key)
    queues.pause(db, "task", "paused", None, None, None)
    admit(db)
    assert claim_all(db) == others[:2]
    queues.resume(db, "task", "paused")
    for run_id in others[:2]:
        end(db, run_id)
    admit(db)
    assert states(db) == {"queued": 2, "succeeded": 2, "waiting": 4}
    assert row_of(db, paused[0])["state"] == row_of(db, paused[1])["state"] == "queued"


def test_in_an_ordered_key_a_paused_task_holds_the_key(db: psycopg.Connection) -> None:
    limit(db, "k", 1, ordered=True)
    (paused,) = add(db, 1, "k", task="paused")
    add(db, 1, "k")
    queues.pause(db, "task", "paused", None, None, None)
    assert admit(db) == 0
    queues.resume(db, "task", "paused")
    admit(db)
    assert row_of(db, paused)["state"] == "queued"


# ---- every way back to `queued`


def test_a_released_claim_waits_again(db: psycopg.Connection, dsn: str) -> None:
    limit(db, "k", 1)
    add(db, 2, "k")
    admit(db)
    (claim,) = take(db, 5)
    assert release(dsn, claim) == ["waiting"]
    assert admit(db) == 1
    assert claim_all(db) == [claim.id], "it keeps its place"


def test_a_reaped_run_waits_again(db: psycopg.Connection) -> None:
    limit(db, "k", 1)
    first, _ = add(db, 2, "k")
    admit(db)
    take(db, 1)
    let_expire(db)
    with db.transaction():
        reap(db)
    assert states(db) == {"waiting": 2}
    assert admit(db) == 1
    assert claim_all(db) == [first]


def test_a_retry_waits_again_when_it_is_due(db: psycopg.Connection) -> None:
    limit(db, "k", 1)
    first, second = add(db, 2, "k")
    admit(db)
    claim_all(db)
    retry_in(db, first, "1 hour")
    assert admit(db) == 1, "a run that waits for its next attempt gives its place up"
    db.execute("UPDATE pgsched.runs SET available_at = clock_timestamp() WHERE id = %s", [first])
    assert admit(db) == 0
    assert row_of(db, first)["state"] == "waiting"
    end(db, second)
    admit(db)
    assert row_of(db, first)["state"] == "queued"


def test_a_revived_run_waits_again(db: psycopg.Connection) -> None:
    limit(db, "k", 1)
    (first,) = add(db, 1, "k")
    end(db, first, "dead")
    assert one(db, "SELECT pgsched.retry(%s)", first) == "waiting"
    assert admit(db) == 1


def test_in_an_ordered_key_a_retry_holds_the_key(db: psycopg.Connection) -> None:
    limit(db, "k", 1, ordered=True)
    first, second, third = add(db, 3, "k")
    db.execute("UPDATE pgsched.runs SET priority = 0 WHERE id = %s", [third])
    admit(db)
    assert claim_all(db) == [first]
    retry_in(db, first, "1 hour")
    assert admit(db) == 0
    db.execute("UPDATE pgsched.runs SET available_at = clock_timestamp() WHERE id = %s", [first])
    admit(db)
    assert claim_all(db) == [first]
    end(db, first)
    admit(db)
    assert claim_all(db) == [second], "first in, first out, whatever the priority"


# ---- the guards


def test_a_locked_run_is_not_admitted_and_costs_no_place(db: psycopg.Connection, connect: Open) -> None:
    limit(db, "k", 1)
    first, _ = add(db, 2, "k")
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [first])
    assert admit(db) == 0
    person.rollback()
    assert admit(db) == 1


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_was_cancelled_meanwhile_is_not_admitted(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "limit_admit", " AND r.state = 'waiting'")
        db.execute("ALTER TABLE pgsched.runs DROP CONSTRAINT runs_state")
    (first,) = add(db, 1, "k")
    db.execute("SELECT pgsched.cancel(%s)", [first])
    with db.transaction():
        limits.admit(db, [(first, "default", "k")])
    assert row_of(db, first)["state"] == ("cancelled" if guarded else "queued")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_that_has_got_another_key_meanwhile_is_not_admitted(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "limit_admit", " AND coalesce(r.concurrency_key, '') = given.key")
    (first,) = add(db, 1, "k")
    db.execute("UPDATE pgsched.runs SET concurrency_key = 'job:1'")
    with db.transaction():
        limits.admit(db, [(first, "default", "k")])
    assert row_of(db, first)["state"] == ("waiting" if guarded else "queued")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_released_claim_does_not_slip_past_the_limit(guarded: bool, db: psycopg.Connection) -> None:
    if not guarded:
        db.execute("CREATE OR REPLACE FUNCTION pgsched.back_in_line(state text, queue text, concurrency_key text)"
                   " RETURNS text LANGUAGE sql STABLE AS 'SELECT $1'")  # fmt: skip
    limit(db, "k", 1)
    first, second = add(db, 2, "k")
    admit(db)
    take(db, 1)
    end(db, first, "dead")
    admit(db)  # the other run takes the place
    assert row_of(db, second)["state"] == "queued"
    db.execute("UPDATE pgsched.runs SET state = 'scheduled', finished_at = NULL WHERE id = %s", [first])
    with db.transaction():
        ticks.admit(db, 100)
    assert len(claim_all(db)) == (1 if guarded else 2)


# ---- the checker itself


def test_the_checker_finds_each_kind_of_violation() -> None:
    a, b = Attempt(1, "q", "k:1", 1.0, 2.0, "succeeded", 0.1), Attempt(2, "q", "k:1", 1.9, 3.0, "succeeded", 0.2)
    assert len(find_limit_violations([a, b], {"k": 1}, {"q": 1}, {"k": (1, 1.0, 0)}, {"q": (1, 1.0, 0)}, ["k"])) == 5
    c = Attempt(2, "q", "k:1", 2.0, 3.0, "succeeded", 0.2)
    assert find_limit_violations([a, c], {"k": 1}, {"q": 1}, {"k": (1, 1.0, 0)}, {"q": (1, 1.0, 0)}, ["k"]) == []
    assert gates.default_burst(5) == 1


# ---- one leader


@pytest.mark.parametrize("guarded", [True, False])
def test_a_leader_whose_term_has_ended_admits_nothing(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(db, "k", 1)
    add(db, 3, "k")
    old, new = connect(), connect()
    with old.transaction():
        term, _ = leadership.elect(old, "old")
    stale = LeaderLoop(Term(old, term, LeaderSettings()), reap_from=0.0)
    with new.transaction():
        leadership.elect(new, "new")
    if guarded:
        with pytest.raises(NotLeading, match="term 1 has ended: term 2 leads"):
            stale.run_once()
        assert states(db) == {"waiting": 3}
    else:
        cut(monkeypatch, "leader_term", "max(term)", "min(term)")
        stale.run_once()
        assert states(db) == {"queued": 1, "waiting": 2}


@pytest.mark.parametrize("guarded", [True, False])
def test_two_leaders_do_not_admit_at_the_same_moment(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(db, "k", 1)
    first, second = connect(), connect()
    add(db, 2, "k")
    if not guarded:
        cut(monkeypatch, "leader_fence", "    FOR NO KEY UPDATE SKIP LOCKED\n", "")
    with db.transaction():
        term, _ = leadership.elect(db, "one")
    with first.transaction():
        leadership.fence(first, term)
        admission.admit_limited_runs(first, admission.AdmissionState())
        with second.transaction():
            if guarded:
                with pytest.raises(NotLeading, match="another leader is inside a transaction"):
                    leadership.fence(second, term)
            else:
                second.execute("SET LOCAL lock_timeout = '1s'")
                leadership.fence(second, term)
                run = one(second, "SELECT max(id) FROM pgsched.runs")
                # the run that this leader would choose, as it does not see what the first one admitted
                limits.admit(second, [(run, "default", "k")])
    assert states(db) == ({"queued": 1, "waiting": 1} if guarded else {"queued": 2})
