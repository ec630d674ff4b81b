"""Runs that wait for parents while other transactions enqueue, lock, cancel or delete runs.

Tests of guards have a twin that runs without the guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs import dependencies
from pgsched.db.queries.runs.claims import success_parameters
from pgsched.db.statements import sql
from pgsched.leader.dependents import DeletedParentSweep, DependencyCursor, decide_dependencies
from pgsched.leader.pruner import Pruner
from pgsched.leader.rollups import RunCounter
from tests.support.db.dependencies import add, admit, end, states
from tests.support.db.pruning import keep, prune
from tests.support.db.setting import Aside, Open, cut, row_of, take, wait_until_blocked


def test_a_locked_child_or_parent_is_looked_at_again(db: psycopg.Connection, connect: Open) -> None:
    a = add(db)
    b = add(db, a)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [a])
    admit(db)
    person.rollback()
    end(db, a)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [b])
    admit(db)
    assert states(db, b) == ["waiting"]
    person.rollback()
    admit(db)
    admit(db)
    assert states(db, b) == ["queued"]


def end_long_ago(db: psycopg.Connection, *run_ids: int) -> None:
    end(db, *run_ids)
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '1 year' WHERE id = ANY (%s)", [list(run_ids)])


def test_an_old_snapshot_can_wait_only_for_a_parent_that_still_exists(db: psycopg.Connection, connect: Open) -> None:
    a, b, c = add(db), add(db), add(db)
    take(db, 3)
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("SELECT count(*) FROM pgsched.runs")
    end_long_ago(db, a)
    assert prune(db, 1.0) == 1
    with pytest.raises(psycopg.errors.SerializationFailure):
        add(old, a)
    old.rollback()
    old.execute("SELECT count(*) FROM pgsched.runs")
    end_long_ago(db, b, c)
    with old.transaction():
        child = add(old, b)
    assert prune(db, 1.0) == 1, "c goes, b is waited for"
    old.commit()
    admit(db)
    assert states(db, child) == ["queued"]


def test_a_parent_is_claimed_either_before_or_after_its_child_is_committed(
    db: psycopg.Connection, connect: Open
) -> None:
    a, b = add(db), add(db)
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("SELECT count(*) FROM pgsched.runs")
    assert [claim.id for claim in take(db)] == [a]
    with pytest.raises(psycopg.errors.SerializationFailure):
        add(old, a)
    old.rollback()
    old.execute("SELECT count(*) FROM pgsched.runs")
    add(old, b)
    assert take(db) == []
    old.commit()
    assert [claim.id for claim in take(db)] == [b]


def test_a_parent_that_ends_while_its_child_is_enqueued_stays(db: psycopg.Connection, connect: Open) -> None:
    a = add(db)
    slow = connect(autocommit=False)
    slow.execute("SELECT count(*) FROM pgsched.runs")
    child = add(slow, a)
    end(db, a)
    keep(db, any="0")
    counting, pruner = RunCounter(), Pruner()

    @contextmanager
    def begin() -> Iterator[psycopg.Connection]:
        with db.transaction():
            yield db

    for _ in range(3):
        counting.count_batch(db, begin)
        with db.transaction():
            assert pruner.prune_batch(db, 100) == 0
    slow.commit()
    assert states(db, child) == ["waiting"]
    admit(db)
    assert states(db, child) == ["queued"]
    counting.count_batch(db, begin)
    assert prune(db, 0.0) == 0, "its child has not ended"


def test_only_the_end_of_a_parent_wakes_the_leader(db: psycopg.Connection, connect: Open) -> None:
    a, b = add(db), add(db)
    add(db, b)
    admit(db)
    db.execute("SELECT pgsched.leader_sleeps(60)")
    (listener := connect()).execute("LISTEN pgsched_leader")
    claims = {claim.id: claim for claim in take(db, 2)}
    for run_id, told in ((a, []), (b, ["runs"])):
        settle(db, claims[run_id])
        db.execute("NOTIFY pgsched_leader, 'end'")  # notifications come in the order of the commits
        found = [note.payload for note in listener.notifies(timeout=10, stop_after=len(told) + 1)]
        assert found == [*told, "end"]


def settle(db: psycopg.Connection, claim: Claim) -> None:
    assert db.execute(sql("settle_succeeded"), success_parameters([claim.id], [claim.token])).rowcount == 1


def test_the_deletion_of_a_parent_is_noticed(db: psycopg.Connection) -> None:
    a, b = add(db), add(db)
    cancelled, anyway, untouched = add(db, a, b), add(db, a, on_failure="run_anyway"), add(db, b)
    admit(db)
    db.execute("DELETE FROM pgsched.runs WHERE id = %s", [a])
    sweep = DeletedParentSweep()
    for _ in range(4):
        with db.transaction():
            sweep.work(db, 1)
    admit(db)
    assert states(db, cancelled, anyway, untouched) == ["cancelled", "queued", "waiting"]
    assert row_of(db, cancelled)["reason"] == f"dependency: run {a} is gone"


def test_ended_parents_of_a_locked_child_do_not_keep_the_pass_going(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [add(db) for _ in range(35)]
    child = add(db, *parents)
    admit(db)
    end(db, *parents)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [child])
    steps = []
    judged = dependencies.decide_ended_parents
    monkeypatch.setattr(dependencies, "decide_ended_parents", lambda *given: (steps.append(given), judged(*given))[1])
    with db.transaction():
        assert decide_dependencies(db, 10) == 0
    assert len(steps) == 1


def test_locked_children_do_not_hold_up_those_of_other_parents(db: psycopg.Connection, connect: Open) -> None:
    parents = [add(db) for _ in range(7)]
    children = [add(db, parent) for parent in parents]
    admit(db)
    end(db, *parents)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = ANY (%s) FOR UPDATE", [children[:5]])
    turn = DependencyCursor()
    for _ in range(4):
        with db.transaction():
            decide_dependencies(db, 2, turn)
    assert states(db, *children) == ["waiting"] * 5 + ["queued"] * 2
    person.rollback()
    with db.transaction():
        decide_dependencies(db, 2, turn)
    assert states(db, *children) == ["queued"] * 7, "it goes on from the start"
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE has_children").fetchone() == (0,)


def test_locked_children_do_not_hold_up_others_of_the_same_parent(db: psycopg.Connection, connect: Open) -> None:
    parent = add(db)
    children = [add(db, parent) for _ in range(7)]
    admit(db)
    end(db, parent)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = ANY (%s) FOR UPDATE", [children[:5]])
    with db.transaction():
        decide_dependencies(db, 2)
    assert states(db, *children) == ["waiting"] * 5 + ["queued"] * 2
    person.rollback()
    with db.transaction():
        decide_dependencies(db, 2)
    assert states(db, *children) == ["queued"] * 7
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE has_children").fetchone() == (0,)


def test_without_the_pruners_guard_a_parent_is_pruned_while_it_is_needed(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the twin of test_a_parent_is_kept_while_a_run_that_waited_for_it_is_not_finished."""
    a = add(db)
    add(db, a)
    end(db, a)
    admit(db)
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '1 year' WHERE id = %s", [a])
    cut(monkeypatch, "prune_delete", " AND r.id NOT IN (SELECT w.id FROM wanted w)", "")
    assert prune(db, 1.0, 100) == 1


def test_a_run_that_is_being_cancelled_is_left_alone_and_found_again(db: psycopg.Connection, connect: Open) -> None:
    a = add(db)
    b = add(db, a)
    admit(db)
    end(db, a)
    person = connect(autocommit=False)
    person.execute("SELECT pgsched.cancel(%s)", [b])
    admit(db)
    person.commit()
    admit(db)
    assert states(db, b) == ["cancelled"]
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE has_children").fetchone() == (0,)


def test_without_skipping_locked_children_the_leader_waits_for_a_person(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = add(db)
    b = add(db, a)
    admit(db)
    end(db, a)
    lock = "WHERE c.id = d.run_id FOR NO KEY UPDATE"
    cut(monkeypatch, "dependencies_release", f"{lock} SKIP LOCKED", lock)
    person = connect(autocommit=False)
    person.execute("SELECT pgsched.cancel(%s)", [b])
    aside = Aside(lambda: admit(db))
    wait_until_blocked(connect(), db)
    person.rollback()
    aside.result()
