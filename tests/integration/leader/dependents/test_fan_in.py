"""A run that waits for thousands of others, and what it costs a round of the leader."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import BY_INDEX
from pgsched.db.queries.runs import dependencies
from pgsched.db.statements import sql
from pgsched.leader import dependents
from pgsched.leader.dependents import DeletedParentSweep, DependencyCursor, decide_dependencies
from tests.support.db.dependencies import add, admit, end, link, states
from tests.support.db.plans import nodes
from tests.support.db.setting import Open
from tests.support.fleet import one

MANY = 2500
MARKED = "SELECT count(*) FROM pgsched.runs WHERE has_children"


@pytest.fixture
def fan_in(db: psycopg.Connection) -> tuple[int, list[int]]:
    """Add a run that waits for 2,500 others; return its id and theirs."""
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, %s)", [MANY])
    parents = [row[0] for row in db.execute("SELECT id FROM pgsched.runs ORDER BY id").fetchall()]
    child = add(db)
    link(db, child, *parents)
    return child, parents


def round_of(db: psycopg.Connection, turn: DependencyCursor) -> int:
    """Run one step, however fast this machine is; return how many runs it decided."""
    with db.transaction():
        return decide_dependencies(db, 5000, turn, longest_s=0.0)


def rounds(db: psycopg.Connection, turn: DependencyCursor) -> int:
    """Run steps until nothing is left to do; return how many had something to do."""
    count = 0
    while round_of(db, turn):
        count += 1
        assert count < 50
    return count


def read(db: psycopg.Connection, name: str, table: str, values: dict[str, Any]) -> float:
    """Return how many rows of a table a statement reads, in a session like the leader's."""
    with db.transaction(force_rollback=True):
        for setting, value in BY_INDEX.items():
            db.execute(f"SET LOCAL {setting} = {value}".encode())
        ((found,),) = db.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + sql(name), values).fetchall()
    scans = [node for node in nodes(found[0]["Plan"]) if node.get("Relation Name") == table]
    return sum((scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans)


def test_a_step_locks_no_more_than_a_thousand_parents(db: psycopg.Connection, fan_in: tuple[int, list[int]]) -> None:
    child, parents = fan_in
    turn = DependencyCursor()
    marked = []
    while not marked or marked[-1] < MANY:
        round_of(db, turn)
        marked.append(one(db, MARKED))
    assert marked == [1000, 2000, 2500]
    rounds(db, turn)
    assert one(db, "SELECT available_at = '9000-01-01Z' FROM pgsched.runs WHERE id = %s", child)
    end(db, *parents)
    rounds(db, turn)
    assert states(db, child) == ["queued"]
    assert one(db, MARKED) == 0


def test_a_parent_that_ends_costs_one_probe_of_the_edges(db: psycopg.Connection, fan_in: tuple[int, list[int]]) -> None:
    child, parents = fan_in
    admit(db)
    end(db, *parents[:-1])
    admit(db)
    db.execute("VACUUM ANALYZE pgsched.dependencies")
    asked = {"ids": f"{{{child}}}"}
    assert states(db, child) == ["waiting"]
    assert read(db, "admit_dependents", "dependencies", asked) <= 2
    db.execute("DROP INDEX pgsched.dependencies_unmet")
    assert read(db, "admit_dependents", "dependencies", asked) >= MANY - 1, "which is what the index is for"


def test_a_large_fan_in_with_a_locked_parent_holds_up_no_other_run(
    db: psycopg.Connection, connect: Open, fan_in: tuple[int, list[int]]
) -> None:
    child, parents = fan_in
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [parents[-1]])
    turn = DependencyCursor()
    rounds(db, turn)
    other_parents = [add(db), *parents[: MANY - 2]]
    others = [add(db, other_parents[0]), add(db, *other_parents)]
    end(db, *other_parents)
    rounds(db, turn)
    assert states(db, child, *others) == ["waiting", "queued", "queued"]
    end(db, parents[-2])
    person.rollback()
    end(db, parents[-1])
    rounds(db, turn)
    assert states(db, child) == ["queued"]
    assert one(db, MARKED) == 0


@pytest.mark.parametrize("any_of", [False, True])
@pytest.mark.parametrize("state", ["dead", "succeeded"])
def test_one_parent_of_many_decides_its_child_where_one_is_enough(
    any_of: bool, state: str, db: psycopg.Connection
) -> None:
    parents = [add(db) for _ in range(30)]
    child = add(db, *parents, any_of=any_of)
    admit(db)
    end(db, parents[7], state=state)
    admit(db)
    decided = {(False, "dead"): "cancelled", (True, "succeeded"): "queued"}
    assert states(db, child) == [decided.get((any_of, state), "waiting")]
    end(db, *parents[:7], *parents[8:], state=state)
    admit(db)
    assert states(db, child) == ["cancelled" if state == "dead" else "queued"]


@pytest.mark.long
def test_locked_parents_are_marked_later(db: psycopg.Connection, connect: Open, fan_in: tuple[int, list[int]]) -> None:
    child, parents = fan_in
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = ANY (%s) FOR UPDATE", [parents[:1500:300]])
    turn = DependencyCursor()
    rounds(db, turn)
    assert one(db, MARKED) == MANY - 5
    person.rollback()
    rounds(db, turn)
    assert one(db, MARKED) == MANY
    end(db, *parents)
    rounds(db, turn)
    assert states(db, child) == ["queued"]


@pytest.mark.parametrize("place", [0, MANY - 1])
def test_an_edge_added_while_parents_are_marked_is_watched(
    place: int, db: psycopg.Connection, fan_in: tuple[int, list[int]]
) -> None:
    """The new edge lies before the edges that have been looked at, or after them."""
    child, parents = fan_in
    late = parents[place]
    db.execute("DELETE FROM pgsched.dependencies WHERE parent_id = %s", [late])
    turn = DependencyCursor()
    round_of(db, turn)
    assert one(db, MARKED) == 1000
    link(db, child, late)
    rounds(db, turn)
    end(db, *(parent for parent in parents if parent != late))
    rounds(db, turn)
    assert states(db, child) == ["waiting"]
    end(db, late)
    rounds(db, turn)
    assert states(db, child) == ["queued"]


def test_an_edge_added_while_the_last_parents_are_marked_is_watched(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, fan_in: tuple[int, list[int]], connect: Open
) -> None:
    """The mark of the run (`available_at`) shows that an edge was added."""
    child, parents = fan_in
    other = add(db)
    really = dependencies.complete

    def complete(conn: psycopg.Connection, run_id: int) -> bool:
        monkeypatch.setattr(dependencies, "complete", really)
        link(connect(), child, other)
        return really(conn, run_id)

    monkeypatch.setattr(dependencies, "complete", complete)
    turn = DependencyCursor()
    rounds(db, turn)
    end(db, *parents)
    rounds(db, turn)
    assert states(db, child) == ["waiting"]
    end(db, other)
    rounds(db, turn)
    assert states(db, child) == ["queued"]


@pytest.mark.long
def test_another_leader_begins_the_marking_again(db: psycopg.Connection, fan_in: tuple[int, list[int]]) -> None:
    child, parents = fan_in
    round_of(db, DependencyCursor())
    assert one(db, "SELECT available_at = '8999-01-02Z' FROM pgsched.runs WHERE id = %s", child)
    turn = DependencyCursor()
    rounds(db, turn)
    assert one(db, MARKED) == MANY
    end(db, *parents)
    rounds(db, turn)
    assert states(db, child) == ["queued"]


def test_runs_with_one_parent_are_released_beside_a_large_fan_in(
    db: psycopg.Connection, fan_in: tuple[int, list[int]]
) -> None:
    child, _ = fan_in
    parents = [add(db) for _ in range(3)]
    children = [add(db, parent) for parent in parents]
    turn = DependencyCursor()
    rounds(db, turn)
    end(db, *parents)
    rounds(db, turn)
    assert states(db, child, *children) == ["waiting", "queued", "queued", "queued"]


@pytest.mark.long
def test_a_deleted_parent_is_found_some_edges_at_a_time(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, fan_in: tuple[int, list[int]]
) -> None:
    child, parents = fan_in
    admit(db)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("DELETE FROM pgsched.runs WHERE id = %s", [parents[-1]])
    values = {"after": 0, "after_parent": 0, "n": 1000}
    assert read(db, "dependencies_gone", "dependencies", values) <= 1001
    sweep = DeletedParentSweep()
    for _ in range(2):
        sweep.work(db, 1000)
        assert states(db, child) == ["waiting"]
    sweep.work(db, 1000)
    assert states(db, child) == ["cancelled"]


def test_with_a_large_chunk_a_step_marks_all_parents_at_once(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, fan_in: tuple[int, list[int]]
) -> None:
    monkeypatch.setattr(dependents, "CHUNK", 1_000_000)
    round_of(db, DependencyCursor())
    assert one(db, MARKED) == MANY
