"""Runs that wait for parents: how they wait, edges of every kind, cycles, and what a parent's end means below it."""

from __future__ import annotations

import time

import psycopg
import pytest

from pgsched.leader import dependents
from pgsched.leader.dependents import decide_dependencies
from tests.support.db.dependencies import add, admit, end, link, states
from tests.support.db.pruning import prune
from tests.support.db.setting import row_of


def test_a_run_starts_when_all_its_parents_have_succeeded(db: psycopg.Connection) -> None:
    a, b = add(db), add(db)
    c = add(db, a, b)
    assert states(db, a, b, c) == ["queued", "queued", "waiting"]
    end(db, a)
    admit(db)
    assert states(db, c) == ["waiting"]
    end(db, b)
    admit(db)
    assert states(db, c) == ["queued"]


def test_an_any_of_run_starts_when_one_of_its_parents_has_succeeded(db: psycopg.Connection) -> None:
    a, b, c = add(db), add(db), add(db)
    one = add(db, a, b, c, any_of=True)
    end(db, a, state="dead")
    admit(db)
    assert states(db, one) == ["waiting"]
    end(db, b)
    admit(db)
    assert states(db, one) == ["queued"]


def test_an_any_of_run_is_cancelled_when_all_its_parents_have_failed(db: psycopg.Connection) -> None:
    a, b = add(db), add(db)
    one = add(db, a, b, any_of=True)
    end(db, a, b, state="dead")
    admit(db)
    assert states(db, one) == ["cancelled"]


def test_parents_that_ended_before_the_run_was_made_count(db: psycopg.Connection) -> None:
    a, b = add(db), add(db)
    end(db, a)
    end(db, b, state="dead")
    good, bad = add(db, a), add(db, a, b)
    admit(db)
    assert states(db, good, bad) == ["queued", "cancelled"]
    assert row_of(db, bad)["reason"] == f"dependency: run {b} (t) is dead"


@pytest.mark.parametrize("state", ["dead", "cancelled", "skipped", "missed"])
@pytest.mark.parametrize(("on_failure", "expected"), [("cancel", "cancelled"), ("run_anyway", "queued"),
                                                      ("wait", "waiting")])  # fmt: skip
def test_a_parent_that_does_not_succeed_has_failed(
    db: psycopg.Connection, state: str, on_failure: str, expected: str
) -> None:
    a = add(db)
    b = add(db, a, on_failure=on_failure)
    end(db, a, state=state)
    admit(db)
    assert states(db, b) == [expected]


def test_a_failure_ends_all_runs_below_it_in_one_pass_naming_the_parent(db: psycopg.Connection) -> None:
    chain = [add(db)]
    for _ in range(300):
        chain.append(add(db, chain[-1]))
    aside = add(db, chain[100], on_failure="run_anyway")
    end(db, chain[0], state="dead")
    admit(db)
    assert set(states(db, *chain[1:])) == {"cancelled"}
    assert row_of(db, chain[1])["reason"] == f"dependency: run {chain[0]} (t) is dead"
    assert row_of(db, chain[200])["reason"] == f"dependency: run {chain[199]} (t) is cancelled"
    assert states(db, aside) == ["queued"]


def test_a_dead_parent_that_is_retried_and_succeeds_releases_its_child(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a, on_failure="wait")
    admit(db)
    end(db, a, state="dead")
    admit(db)
    db.execute("SELECT pgsched.retry(%s)", [a])
    admit(db)
    assert states(db, b) == ["waiting"]
    end(db, a)
    admit(db)
    assert states(db, b) == ["queued"]


def test_a_run_keeps_its_later_time_while_it_waits(db: psycopg.Connection) -> None:
    a = add(db)
    with db.transaction():
        row = db.execute("INSERT INTO pgsched.runs (task, available_at, options) VALUES ('t', now() + interval '1 h',"
                         " '{\"k\": 1}') RETURNING id, available_at").fetchone()  # fmt: skip
        assert row is not None
        link(db, row[0], a)
    end(db, a)
    admit(db)
    found = db.execute("SELECT available_at, options FROM pgsched.runs WHERE id = %s", [row[0]]).fetchone()
    assert found == (row[1], {"k": 1})


def test_a_run_that_has_started_or_ended_cannot_get_a_parent(db: psycopg.Connection) -> None:
    a, b = add(db), add(db)
    end(db, b)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"run {b} can wait for nothing: it has started, has ended"):
        link(db, b, a)


def test_a_parent_that_is_not_there_is_refused(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="there is no run 4711 to wait for; it may have been"):
        add(db, 4711)


def test_a_deleted_edge_no_longer_makes_its_run_wait(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    admit(db)
    db.execute("DELETE FROM pgsched.dependencies WHERE run_id = %s", [b])
    admit(db)
    assert states(db, b) == ["queued"]


def test_a_run_can_wait_for_one_made_after_it_but_never_for_itself(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    late = add(db)
    link(db, b, late)
    further = add(db, b)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"run {late} would wait for itself"):
        link(db, late, further)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"run {a} would wait for itself"):
        link(db, a, b)
    end(db, a, late)
    admit(db)
    assert states(db, b, further) == ["queued", "waiting"]


def test_an_edge_to_an_earlier_run_that_closes_a_cycle_is_refused(db: psycopg.Connection) -> None:
    a, b, c = add(db), add(db), add(db)
    link(db, a, c)
    link(db, b, a)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"run {c} would wait for itself"):
        link(db, c, b)
    link(db, add(db, b), c)


def test_a_graph_that_leads_to_a_cycle_is_refused_whole(db: psycopg.Connection) -> None:
    a, b, c, d = add(db), add(db), add(db), add(db)
    link(db, a, c)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"run {c} would wait for itself"):
        db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s), (%s, %s), (%s, %s)",
                   [b, a, c, b, d, c])  # fmt: skip


def test_a_graph_with_a_cycle_is_refused_whole(db: psycopg.Connection) -> None:
    a, b, c = add(db), add(db), add(db)
    with pytest.raises(psycopg.errors.CheckViolation, match="would wait for itself"):
        db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s), (%s, %s), (%s, %s)",
                   [a, c, b, a, c, b])  # fmt: skip


def test_a_parent_is_kept_while_a_run_that_waited_for_it_is_not_finished(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    end(db, a)
    admit(db)
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '1 year' WHERE id = %s", [a])
    assert prune(db, 1.0, 100) == 0
    end(db, b)
    assert prune(db, 1.0, 100) == 1
    db.execute("UPDATE pgsched.runs SET finished_at = now() - interval '1 year' WHERE id = %s", [b])
    assert prune(db, 1.0, 100) == 1
    assert db.execute("SELECT count(*) FROM pgsched.dependencies").fetchone() == (0,)


@pytest.mark.long
def test_thousands_of_runs_are_made_to_wait_and_released_in_seconds(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 12000)")
    began = time.monotonic()
    db.execute(
        "INSERT INTO pgsched.dependencies (run_id, parent_id)"
        " SELECT r.id, r.id - k FROM pgsched.runs r, generate_series(1, 3) k WHERE r.id > 6000"
    )
    admit(db)
    end(db, *range(1, 6001))
    admit(db)
    # takes about 2 s; a join that reads all runs for each run would take minutes
    assert time.monotonic() - began < 30
    assert states(db, 6001, 6002, 12000) == ["queued", "waiting", "waiting"]


def test_an_edge_cannot_be_updated_past_the_check_for_cycles(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    c = add(db, b)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="delete it, and insert another"):
        db.execute("UPDATE pgsched.dependencies SET parent_id = %s WHERE run_id = %s", [c, b])


def test_one_pass_goes_on_while_more_parents_have_ended_than_a_step_takes(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependents, "LONGEST_S", 30.0)
    parents = [add(db) for _ in range(35)]
    child = add(db, *parents)
    end(db, *parents)
    with db.transaction():
        decide_dependencies(db, 10)
    assert states(db, child) == ["queued"]


def test_a_pass_ends_after_a_while_and_says_that_there_is_more(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [add(db) for _ in range(35)]
    child = add(db, *parents)
    end(db, *parents)
    monkeypatch.setattr(dependents, "LONGEST_S", -1.0)
    with db.transaction():
        assert decide_dependencies(db, 10) == 1
    assert states(db, child) == ["waiting"]
    for _ in range(3):
        with db.transaction():
            decide_dependencies(db, 10)
    assert states(db, child) == ["queued"]


@pytest.mark.long
def test_a_failed_parent_ends_thousands_of_children_in_one_pass(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 6001)")
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) SELECT id, 1 FROM pgsched.runs WHERE id > 1")
    end(db, 1, state="dead")
    admit(db)
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'cancelled'").fetchone() == (6000,)
