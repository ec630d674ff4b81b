"""Circles of runs that no insert could refuse, because two transactions or an old snapshot closed them."""

from __future__ import annotations

from itertools import count, pairwise
from random import Random
from types import SimpleNamespace

import psycopg
import pytest

from pgsched.db.queries.runs import dependencies
from pgsched.leader import circles
from pgsched.leader.circles import CircleSearch
from pgsched.leader.loop import LeaderLoop
from tests.support.db.dependencies import add, end, link, states
from tests.support.db.leading import lead
from tests.support.db.poisoning import heal, poison, until
from tests.support.db.setting import Aside, Open, cut, row_of, wait_until_blocked

LEVELS = [psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ]
OLD = "SELECT count(*) FROM pgsched.dependencies"


@pytest.fixture
def leader(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> LeaderLoop:
    """Return a leader that looks for circles in each round."""
    monkeypatch.setattr(circles, "EVERY_S", 0.0)
    monkeypatch.setattr(circles, "PAUSE_FACTOR", 0.0)
    return lead(db)


def rounds(leader: LeaderLoop, n: int = 5) -> None:
    for _ in range(n):
        leader.run_once()


def close(connect: Open, *edges: tuple[int, int], level: psycopg.IsolationLevel = LEVELS[0]) -> None:
    """Make these edges, each in a transaction that sees none of the others."""
    makers = [connect(autocommit=False) for _ in edges]
    for maker in makers:
        maker.isolation_level = level
        maker.execute(OLD)
    for maker, edge in zip(makers, edges, strict=True):
        maker.execute("SET LOCAL statement_timeout = '2s'")
        link(maker, *edge)
    for maker in makers:
        maker.commit()


@pytest.mark.pg14
@pytest.mark.parametrize("level", LEVELS)
def test_a_circle_that_two_transactions_close_ends_and_says_so(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop, level: psycopg.IsolationLevel
) -> None:
    a, b = add(db), add(db)
    behind, anyway, other = add(db, b), add(db, a, on_failure="run_anyway"), add(db)
    link(db, other, add(db))
    close(connect, (b, a), (a, b), level=level)
    rounds(leader)
    assert states(db, a, b, behind, anyway, other) == ["cancelled", "cancelled", "cancelled", "queued", "waiting"]
    assert row_of(db, a)["reason"] == f"dependency: run {b} (t) and this one wait for each other"
    assert row_of(db, b)["reason"] == f"dependency: run {a} (t) is cancelled"


def test_a_long_circle_that_an_old_snapshot_closes_is_ended(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop
) -> None:
    chain = [add(db)]
    for _ in range(30):
        chain.append(add(db, chain[-1]))
    other = [add(db)]
    for _ in range(30):
        other.append(add(db, other[-1]))
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute(OLD)
    link(db, chain[0], other[-1])
    link(old, other[0], chain[-1])
    old.commit()
    rounds(leader)
    assert set(states(db, *chain, *other)) == {"cancelled"}
    assert row_of(db, chain[0])["reason"] == f"dependency: run {chain[1]} (t) and this one wait for each other"


@pytest.mark.parametrize(("on_failure", "state"), [("run_anyway", "queued"), ("wait", "waiting")])
def test_the_other_runs_of_a_circle_follow_their_on_failure(
    on_failure: str, state: str, db: psycopg.Connection, connect: Open, leader: LeaderLoop
) -> None:
    a, b, c = add(db), add(db), add(db)
    link(db, b, a, on_failure=on_failure)
    close(connect, (c, b), (a, c))
    rounds(leader)
    assert states(db, a, b, c) == ["cancelled", state, "waiting"]


def test_slots_of_a_circle_are_skipped(db: psycopg.Connection, connect: Open, leader: LeaderLoop) -> None:
    a, b = add(db), add(db)
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('j', 't')")
    db.execute("UPDATE pgsched.runs r SET origin = 'schedule', job_id = j.id, scheduled_at = '2020-01-01Z'"
               " FROM pgsched.jobs j WHERE r.id = %s", [a])  # fmt: skip
    close(connect, (b, a), (a, b))
    rounds(leader)
    assert states(db, a, b) == ["skipped", "cancelled"]


def test_a_circle_that_is_retried_ends_again(db: psycopg.Connection, connect: Open, leader: LeaderLoop) -> None:
    a, b = add(db), add(db)
    close(connect, (b, a), (a, b))
    rounds(leader)
    for run_id in (b, a):
        db.execute("SELECT pgsched.retry(%s)", [run_id])
    rounds(leader)
    assert states(db, a, b) == ["cancelled", "waiting"], "b waits until somebody retries a"
    db.execute("DELETE FROM pgsched.dependencies WHERE run_id = %s", [a])
    db.execute("SELECT pgsched.retry(%s)", [a])
    end(db, a)
    rounds(leader)
    assert states(db, b) == ["queued"]


def test_a_circle_is_found_however_many_other_runs_wait_for_later_runs(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circles, "RUNS", 3)
    first = [add(db) for _ in range(20)]
    last = add(db)
    for run_id in first:
        link(db, run_id, last)
        add(db, run_id)
    a, b = add(db), add(db)
    close(connect, (b, a), (a, b))
    rounds(leader)
    assert states(db, a) == ["waiting"]
    rounds(leader, 10)
    assert states(db, a, b) == ["cancelled"] * 2
    assert set(states(db, *first)) == {"waiting"}


def test_a_look_stops_at_its_time_limit_and_is_followed_by_a_pause(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [add(db) for _ in range(6)]
    for a, b in zip(runs[:3], runs[3:], strict=True):
        close(connect, (b, a), (a, b))
    monkeypatch.setattr(circles, "LONGEST_S", -1.0)
    search = CircleSearch()
    ended = [search.look(db, leader.term.leading) for _ in range(4)]
    assert ended == [1, 1, 1, 0], "one run a look"
    monkeypatch.setattr(circles, "EVERY_S", 7.0)
    clock = count(50.0, 2.0)
    monkeypatch.setattr(circles, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(circles, "PAUSE_FACTOR", 5.0)
    search.look(db, leader.term.leading)
    assert search.at == 60.0, "it took two seconds"


def ring(db: psycopg.Connection, connect: Open, n: int) -> list[int]:
    """Make a circle of `n` runs: each waits for the one before it, and the first for the last."""
    runs = [add(db) for _ in range(n)]
    close_ring(connect, runs)
    return runs


def close_ring(connect: Open, runs: list[int]) -> None:
    close(connect, (runs[0], runs[-1]), *((later, run) for run, later in pairwise(runs)))


@pytest.mark.pg14
@pytest.mark.parametrize("edges", [1, 2, 3, 7])
def test_a_circle_among_many_runs_is_found_over_several_looks(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch, edges: int
) -> None:
    """Each statement reads a few edges, and another circle is found meanwhile."""
    monkeypatch.setattr(circles, "EDGES", edges)
    runs = [add(db) for _ in range(12)]
    for run_id in (runs[-1], runs[5]):  # these two wait for other runs as well
        link(db, run_id, *(add(db) for _ in range(10)))
    close_ring(connect, runs)
    other = ring(db, connect, 2)
    search, looks = CircleSearch(), 0
    while states(db, runs[0], other[0]) != ["cancelled"] * 2:
        search.look(db, leader.term.leading)
        looks += 1
        assert looks < 500
    assert looks > 1 or edges > 6
    assert states(db, *runs[1:], other[1]) == ["waiting"] * 12


def test_a_walk_reads_every_edge_however_few_at_a_time(db: psycopg.Connection) -> None:
    """In a random graph a walk finds a circle exactly if there is one, and returns its edges.

    Some runs of the graph wait for many others, and some edges are decided.
    """
    random = Random(1)
    runs = [add(db) for _ in range(60)]
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        for pair in {(random.choice(runs), random.choice(runs[: random.choice((5, 60))])) for _ in range(200)}:
            if pair[0] != pair[1]:
                link(db, *pair)
        db.execute("UPDATE pgsched.dependencies SET state = 'met' WHERE (run_id + parent_id) % 4 = 0")
    edges = set(db.execute("SELECT run_id, parent_id FROM pgsched.dependencies WHERE state = 'open'").fetchall())
    found = []
    for run_id in runs:
        reached, more = set[int](), {run_id}
        while more:
            reached |= (more := {b for a, b in edges if a in more and b >= run_id} - reached)
        for n in (1, 2, 5, 200):
            walk, steps = circles.Walk(run_id), 0
            while not walk.finished:
                walk.read_edges(db, n)
                steps += 1
                assert steps < 1000
            assert bool(walk.circle) is (run_id in reached)
            way = [(link.run_id, link.parent_id) for link in walk.circle]
            assert set(way) <= edges and all(a == b for (a, _), (_, b) in pairwise(way))
            assert not way or (way[0][1], way[-1][0]) == (run_id, run_id)
        found.append(run_id in reached)
    assert {True, False} == set(found)


def test_no_circle_is_searched_for_among_more_runs_than_a_walk_remembers(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circles, "EDGES", 2)
    runs = ring(db, connect, 8)
    monkeypatch.setattr(circles, "MAX_WALK_RUNS", 6)
    rounds(leader, 10)
    assert set(states(db, *runs)) == {"waiting"}
    monkeypatch.setattr(circles, "MAX_WALK_RUNS", 8)
    rounds(leader, 10)
    assert set(states(db, *runs)) == {"cancelled"}


def test_a_long_circle_closed_by_many_edges_at_once_is_left_to_the_leader(
    db: psycopg.Connection, leader: LeaderLoop
) -> None:
    """What an INSERT reads is bounded, however many edges it makes: the leader inserts edges too, between ticks."""
    made = db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 740) RETURNING id").fetchall()
    runs = [run_id for (run_id,) in made]
    chain, earlier, later = runs[:700], runs[700:720], runs[720:]
    insert = "INSERT INTO pgsched.dependencies (run_id, parent_id) SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
    db.execute(insert, [chain[:-1], chain[1:]])
    with pytest.raises(psycopg.errors.CheckViolation, match="would wait for itself"):
        link(db, chain[-1], chain[0])
    db.execute(insert, [[chain[-1], *earlier], [chain[0], *later]])
    search, looks = CircleSearch(), 0
    while states(db, chain[0]) != ["cancelled"]:
        search.look(db, leader.term.leading)
        looks += 1
        assert looks < 5000
    assert set(states(db, chain[1], chain[-1], *earlier)) == {"waiting"}


def test_no_run_of_a_circle_that_is_broken_meanwhile_is_ended(db: psycopg.Connection, connect: Open) -> None:
    runs = ring(db, connect, 4)
    walk = circles.Walk(runs[0])
    walk.read_edges(db, 100)
    assert walk.circle
    db.execute("DELETE FROM pgsched.dependencies WHERE run_id = %s", [runs[2]])
    assert not dependencies.end_circle(db, walk.circle)
    assert states(db, runs[0]) == ["waiting"]


def test_a_locked_run_of_a_circle_is_ended_later(db: psycopg.Connection, connect: Open, leader: LeaderLoop) -> None:
    a, b = add(db), add(db)
    close(connect, (b, a), (a, b))
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [a])
    rounds(leader)
    assert states(db, a) == ["waiting"]
    person.rollback()
    rounds(leader)
    assert states(db, a, b) == ["cancelled"] * 2


def test_without_skipping_a_locked_run_the_search_waits_for_a_person(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = add(db), add(db)
    close(connect, (b, a), (a, b))
    cut(monkeypatch, "dependencies_end_circle", "UPDATE SKIP LOCKED", "UPDATE")
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [a])
    aside = Aside(lambda: CircleSearch().look(db, leader.term.leading))
    wait_until_blocked(connect(), db)
    person.rollback()
    assert aside.result() == 1


@pytest.mark.long
def test_a_run_that_cannot_be_ended_holds_up_no_other_circle(
    db: psycopg.Connection, connect: Open, leader: LeaderLoop
) -> None:
    runs = [add(db) for _ in range(6)]
    for a, b in zip(runs[:3], runs[3:], strict=True):
        close(connect, (b, a), (a, b))
    poison(db, "UPDATE", f"NEW.state = 'cancelled' AND NEW.id = {runs[1]}")
    until(leader, db, f"SELECT state FROM pgsched.runs WHERE id = {runs[2]}", "cancelled")
    assert states(db, *runs[:2]) == ["cancelled", "waiting"]
    heal(db)
    until(leader, db, f"SELECT state FROM pgsched.runs WHERE id = {runs[1]}", "cancelled")


def test_an_edge_to_a_later_run_refuses_no_edge_from_an_old_snapshot(db: psycopg.Connection, connect: Open) -> None:
    a, b, c = add(db), add(db), add(db)
    link(db, a, c)
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute(OLD)
    link(db, add(db), add(db))
    child = add(old, b)
    link(old, b, add(old))
    with pytest.raises(psycopg.errors.CheckViolation, match="would wait for itself"), old.transaction():
        link(old, c, a)
    old.commit()
    assert states(db, child) == ["waiting"]
