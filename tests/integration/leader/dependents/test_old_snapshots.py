"""Edges that are made from an old snapshot, and the cycles that they must not close."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.db.dependencies import add, admit, end, link, states
from tests.support.db.setting import Aside, Open, wait_until_blocked


def two_chains(db: psycopg.Connection) -> tuple[int, int, int, int]:
    """Four runs, of which the second waits for the first, and the fourth for the third."""
    a, b, c, d = add(db), add(db), add(db), add(db)
    link(db, b, a)
    link(db, d, c)
    return a, b, c, d


def old_snapshot(connect: Open) -> psycopg.Connection:
    """A transaction that sees the edges that there are now, and none that is made later."""
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("SELECT count(*) FROM pgsched.dependencies")
    return old


def test_two_transactions_with_old_snapshots_cannot_close_a_longer_cycle_together(
    db: psycopg.Connection, connect: Open
) -> None:
    a, b, c, d = two_chains(db)
    old = old_snapshot(connect)
    link(db, a, d)
    with pytest.raises(psycopg.errors.SerializationFailure, match="repeat the transaction"):
        link(old, c, b)
    old.rollback()
    end(db, d)
    admit(db)
    link(old, add(db), a)
    old.rollback()


def test_an_old_snapshot_waits_for_an_edge_to_a_later_run_that_is_being_made(
    db: psycopg.Connection, connect: Open
) -> None:
    a, b, c, d = two_chains(db)
    old, maker = old_snapshot(connect), connect(autocommit=False)
    link(maker, a, d)
    aside = Aside(lambda: link(old, c, b))
    wait_until_blocked(db, old)
    maker.commit()
    with pytest.raises(psycopg.errors.SerializationFailure, match="repeat the transaction"):
        aside.result()


def test_an_edge_to_a_later_run_that_was_undone_refuses_no_old_snapshot(db: psycopg.Connection, connect: Open) -> None:
    a, b, c = add(db), add(db), add(db)
    old, maker = old_snapshot(connect), connect(autocommit=False)
    link(maker, a, c)
    maker.rollback()
    link(old, c, b)
    old.commit()
    admit(db)
    assert states(db, c) == ["waiting"]


def test_without_the_row_of_edges_an_old_snapshot_makes_none(db: psycopg.Connection, connect: Open) -> None:
    """A dump of the schema alone lacks the row; the next edge to a later run, leader or migration makes it again."""
    a, b = add(db), add(db)
    db.execute("DELETE FROM pgsched.backward_edges")
    old = connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.errors.RaiseException, match="run pgsched migrate"):
        link(old, b, a)
    old.rollback()
    db.execute("SELECT pgsched.rebuild_flags()")
    link(old, b, a)
    old.commit()
    db.execute("DELETE FROM pgsched.backward_edges")
    link(db, a, add(db))
    assert db.execute("SELECT count(*) FROM pgsched.backward_edges").fetchone() == (1,)


def test_without_the_row_lock_an_old_snapshot_does_close_a_longer_cycle(db: psycopg.Connection, connect: Open) -> None:
    """The twin of test_two_transactions_with_old_snapshots_cannot_close_a_longer_cycle_together."""
    row = db.execute("SELECT pg_get_functiondef('pgsched.refuse_dependency_cycle'::regproc)").fetchone()
    assert row is not None
    lock = "backward_edges FOR SHARE;"
    assert str(row[0]).count(lock) == 1
    db.execute(str(row[0]).replace(lock, "backward_edges;").encode())
    a, b, c, d = two_chains(db)
    old = old_snapshot(connect)
    link(db, a, d)
    link(old, c, b)
    old.commit()
    found = db.execute("SELECT pgsched.dependency_cycle(ARRAY[%s, %s]::bigint[])", [a, c]).fetchone()
    assert found != (None,)
