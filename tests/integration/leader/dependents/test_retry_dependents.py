"""A run that never started and is retried waits again for its parents."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.services.runs import changes
from tests.support.db.dependencies import add, admit, end, states
from tests.support.db.setting import Open


def retry(db: psycopg.Connection, run_id: int, how: str = "retry") -> str:
    row = db.execute(f"SELECT pgsched.{how}(%s)", [run_id]).fetchone()
    assert row is not None
    return str(row[0])


def test_a_run_that_is_retried_alone_waits_until_its_parent_is_retried_and_succeeds(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    end(db, a, state="dead")
    admit(db)
    assert states(db, b) == ["cancelled"]
    assert retry(db, b) == "waiting"
    admit(db)
    assert states(db, b) == ["waiting"], "it is not cancelled for the same death again"
    assert retry(db, a) == "queued"
    admit(db)
    assert states(db, b) == ["waiting"]
    end(db, a)
    admit(db)
    assert states(db, b) == ["queued"]


@pytest.mark.parametrize("child_first", [True, False])
def test_parent_and_child_that_are_retried_together_run_in_order(db: psycopg.Connection, child_first: bool) -> None:
    a = add(db)
    b = add(db, a)
    end(db, a, state="dead")
    admit(db)
    with db.transaction():
        for run_id in (b, a) if child_first else (a, b):
            retry(db, run_id)
    admit(db)
    assert states(db, a, b) == ["queued", "waiting"]
    end(db, a)
    admit(db)
    assert states(db, b) == ["queued"]


def test_two_sessions_that_retry_parent_and_child_at_once_lose_neither(db: psycopg.Connection, connect: Open) -> None:
    a = add(db)
    b = add(db, a)
    end(db, a, state="dead")
    admit(db)
    one, other = connect(autocommit=False), connect(autocommit=False)
    retry(one, b)
    retry(other, a)  # neither session sees the other's retry
    other.commit()
    one.commit()
    admit(db)
    end(db, a)
    admit(db)
    assert states(db, b) == ["queued"]


def test_a_run_that_was_cancelled_while_its_parent_ran_waits_for_it_again(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    admit(db)
    db.execute("SELECT pgsched.cancel(%s, 'by mistake')", [b])
    assert retry(db, b) == "waiting"
    admit(db)
    assert states(db, b) == ["waiting"]
    end(db, a, state="dead")
    admit(db)
    assert states(db, b) == ["cancelled"], "a parent that fails from now on counts as ever"


def test_retry_now_starts_a_run_whatever_became_of_its_parents(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    end(db, a, state="dead")
    admit(db)
    assert retry(db, b, "retry_now") == "queued"
    admit(db)
    assert states(db, b) == ["queued"]


def test_a_retried_run_whose_conditions_are_met_starts_at_once(db: psycopg.Connection) -> None:
    good, bad = add(db), add(db)
    after = add(db, good)
    anyway = add(db, good, bad, on_failure="run_anyway")
    one_of = add(db, good, bad, any_of=True)
    for run_id in (after, anyway, one_of):
        db.execute("SELECT pgsched.cancel(%s)", [run_id])
    end(db, good)
    end(db, bad, state="dead")
    assert [retry(db, run_id) for run_id in (after, anyway, one_of)] == ["queued"] * 3


def test_a_deleted_parent_does_not_make_a_retried_run_wait(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a)
    end(db, a, state="dead")
    admit(db)
    db.execute("DELETE FROM pgsched.runs WHERE id = %s", [a])
    assert retry(db, b) == "queued"


def test_a_retried_run_that_failed_by_itself_starts_at_once(db: psycopg.Connection) -> None:
    a = add(db)
    b = add(db, a, on_failure="run_anyway")
    end(db, a, state="dead")
    admit(db)
    db.execute("UPDATE pgsched.runs SET attempt = 1 WHERE id = %s", [b])
    end(db, b, state="dead")
    retry(db, a)
    assert retry(db, b) == "queued", "it has been let go once; --tree runs it after its parent again"


def test_a_bare_retry_says_which_runs_stay_as_they_are(db: psycopg.Connection) -> None:
    parent = add(db)
    child = add(db, parent)
    grandchild = add(db, child)
    anyway = add(db, parent, on_failure="run_anyway")
    end(db, parent, state="dead")
    admit(db)
    assert states(db, child, grandchild, anyway) == ["cancelled", "cancelled", "queued"]
    done = changes.retry(db, parent)
    assert [run["id"] for run in done.left] == [child, grandchild]
    assert done.words == f"is queued again; what waited for it stays as it is: {child}, {grandchild}"
    assert changes.retry(db, child).left == [{"id": grandchild, "task": "t", "state": "cancelled", "job": None}], (
        "a child that is revived alone leaves its own behind"
    )
    end(db, parent, state="dead")
    many = changes.change(db, changes.choose(db, changes.RETRY, [parent, grandchild]))
    assert [run["id"] for run in changes.left_behind(db, many)] == []
