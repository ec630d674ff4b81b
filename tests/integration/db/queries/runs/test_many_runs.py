"""Retry and cancel of many runs: which runs a filter selects, and which are left alone and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.core.model import State
from pgsched.db.queries.runs import runs
from pgsched.db.queries.runs.run_filter import Filter, ids
from pgsched.db.queries.runs.runs import BATCH, cancel_many, retry_many
from tests.support.db.setting import cut, row_of

Open = Callable[..., psycopg.Connection]
DEAD = (State.DEAD,)


def dead(db: psycopg.Connection, count: int = 1, **columns: Any) -> list[int]:
    """Insert dead runs, and return their ids."""
    given = {"task": "t", "state": "dead", "error": "ValueError: no"} | columns
    names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
    rows = f"SELECT {marks}, now() FROM generate_series(1, %s)"
    made = db.execute(f"INSERT INTO pgsched.runs ({names}, finished_at) {rows} RETURNING id", [*given.values(), count])
    return [row[0] for row in made]


def states(db: psycopg.Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT state, count(*) FROM pgsched.runs GROUP BY 1 ORDER BY 1").fetchall()


@pytest.mark.long
def test_many_batches_are_retried(db: psycopg.Connection) -> None:
    made = dead(db, 2 * BATCH + 3, attempt=3)
    done = retry_many(db, ids(db, Filter(), DEAD))
    assert [row["id"] for row in done] == made
    assert {(row["before"], row["after"], row["skipped"]) for row in done} == {("dead", "queued", None)}
    assert states(db) == [("queued", 2 * BATCH + 3)]
    assert row_of(db, made[0])["max_attempts"] == 4


def test_a_row_that_another_session_holds_is_left_alone(db: psycopg.Connection, connect: Open) -> None:
    held, free = dead(db, 2)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [held])
        done = retry_many(db, [held, free])
        assert [(row["id"], row["skipped"]) for row in done] == [(held, "another session holds it"), (free, None)]
    assert states(db) == [("dead", 1), ("queued", 1)]


def test_a_row_that_is_held_for_a_moment_is_changed_after_all(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (held,) = dead(db)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [held])
        monkeypatch.setattr(runs.time, "sleep", lambda s: other.rollback() if s else None)
        assert [row["after"] for row in retry_many(db, [held])] == ["queued"]


def test_runs_that_have_changed_or_do_not_exist_are_reported(db: psycopg.Connection) -> None:
    gone = [*dead(db, state="cancelled"), *dead(db, state="succeeded"), 77, -1, 2**70]
    done = retry_many(db, gone, DEAD)
    assert [row["skipped"] for row in done] == [
        "there is no such run", "it is cancelled by now", "it is succeeded by now", *["there is no such run"] * 2,
    ]  # fmt: skip
    assert states(db) == [("cancelled", 1), ("succeeded", 1)]


def test_one_run_per_unique_key_is_retried_and_none_beside_an_open_one(db: psycopg.Connection) -> None:
    twice = dead(db, 2, unique_key="a")
    beside, other = dead(db, unique_key="b"), dead(db)
    db.execute("INSERT INTO pgsched.runs (task, unique_key) VALUES ('t', 'b')")
    done = {row["id"]: row["skipped"] for row in retry_many(db, [*twice, *beside, *other])}
    assert [run_id for run_id, why in done.items() if why is None] == [twice[0], *other]
    assert {why for why in done.values() if why} == {"an unfinished run has its unique_key"}


def test_a_key_taken_between_check_and_change_costs_only_its_own_run(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = *dead(db, 2, unique_key="a"), *dead(db)
    look = "o.unique_key = h.unique_key AND o.id < h.id"

    cut(monkeypatch, "run_retry_many", look, "false")
    done = {row["id"]: row["skipped"] for row in retry_many(db, [first, second, other])}
    assert done.pop(second) is not None
    assert set(done.values()) == {None}
    assert states(db) == [("dead", 1), ("queued", 2)]


def test_many_runs_are_cancelled_and_running_ones_are_asked_to_stop(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t'), ('t')")
    db.execute(
        "INSERT INTO pgsched.runs (task, state, token, lease_until) VALUES ('t', 'running', gen_random_uuid(), now())"
    )
    (ended,) = dead(db)
    done = cancel_many(db, [1, 2, 3, ended], "no use")
    assert [(row["before"], row["after"]) for row in done[:3]] == [("queued", "cancelled")] * 2 + [
        ("running", "requested")
    ]
    assert done[3]["skipped"] == "it is dead by now"
    assert row_of(db, 1)["reason"].endswith("no use")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(error="REFUSED"), [1]),
        (Filter(error="100%"), [2]),
        (Filter(error="all 3"), [3]),
        (Filter(kind="shell"), [2]),
        (Filter(tag="b"), [3]),
        (Filter(worker="h1"), [1, 2]),
        (Filter(worker="h1:2"), [2]),
        (Filter(worker="h"), []),
        (Filter(state="dead"), [1, 2, 3]),
    ],
)
def test_a_filter_selects_the_runs_that_it_describes(
    db: psycopg.Connection, wanted: Filter, expected: list[int]
) -> None:
    dead(db, error="connection refused")
    dead(db, error="100% full", kind="shell")
    dead(db, error=None, reason="all 3 attempts used", tags=["a", "b"])
    for run_id, worker in ((1, "h1:1"), (2, "h1:2"), (3, "h10:1")):
        db.execute(
            "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, worker)"
            " VALUES (%s, gen_random_uuid(), 1, 'failed', %s)",
            [run_id, worker],
        )
    assert ids(db, wanted, DEAD) == expected
