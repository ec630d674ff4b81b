"""Rolling out a new argument: only the newest release of a task judges a run whose arguments do not fit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.core.problems import find_problems
from pgsched.db.queries.reports.facts import read_facts
from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, Member, fleet_on, one
from tests.support.waiting import wait_until

RUNS = 20
ENQUEUE = "SELECT pgsched.enqueue('greet', %s::jsonb)"


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on(dsn, tmp_path) as fleet:
        yield fleet


def start(fleet: Fleet, release: str) -> Member:
    member = fleet.launch("--no-leader", app=f"tests.support.apps.arguments:{release}")
    fleet.await_start(member)
    return member


def ended(db: psycopg.Connection, run: int) -> dict[str, Any]:
    wait_until(lambda: one(db, "SELECT phase >= 3 FROM pgsched.runs WHERE id = %s", run), 20, "the run to end")
    return row_of(db, run)


@pytest.mark.long
def test_a_new_argument_is_rolled_out_without_a_loss(fleet: Fleet, db: psycopg.Connection) -> None:
    """The new release starts beside the old one.

    Then runs that only the new release can make are enqueued, all at once, beside runs that both can make.
    """
    start(fleet, "old")
    before = ended(db, one(db, ENQUEUE, '{"name": "Ada"}'))
    assert before["result"] == "old Ada"
    new = start(fleet, "new")
    for n in range(RUNS):
        db.execute(ENQUEUE, [f'{{"name": "{n}", "language": "fr"}}'])
        db.execute(ENQUEUE, [f'{{"name": "{n}"}}'])
    wait_until(lambda: one(db, "SELECT count(*) = 0 FROM pgsched.runs WHERE phase < 3"), 20, "all runs to end")
    states = db.execute("SELECT state, attempt, crashes, suspect, max(max_attempts) FROM pgsched.runs WHERE id > %s"
                        " GROUP BY 1, 2, 3, 4", [before["id"]]).fetchall()  # fmt: skip
    assert states == [("succeeded", 1, 0, None, 5)], "no attempt is charged, no death noted, and the new options hold"
    assert db.execute("SELECT * FROM pgsched.attempts").fetchall() == []
    new.signal(signal.SIGTERM)
    assert new.ended() == 0
    late = one(db, ENQUEUE, '{"name": "Zoe", "language": "de"}')
    wait_until(lambda: row_of(db, late)["reason"] or row_of(db, late)["state"] == "queued", 20, "its first claim")
    assert row_of(db, late)["state"] in {"queued", "scheduled"}, "it waits for the newest release"
    start(fleet, "new")
    db.execute("UPDATE pgsched.runs SET available_at = clock_timestamp() WHERE id = %s AND state = 'scheduled'", [late])
    db.execute("UPDATE pgsched.runs SET state = 'queued' WHERE id = %s AND state = 'scheduled'", [late])
    assert ended(db, late)["result"] == "new Zoe de"


@pytest.mark.long
def test_runs_that_wait_for_a_release_that_was_taken_back_are_a_problem(fleet: Fleet, db: psycopg.Connection) -> None:
    def problems() -> list[str]:
        with db.transaction():
            return [one.text for one in find_problems(read_facts(db)) if "release" in one.text]

    start(fleet, "old")
    new = start(fleet, "new")
    new.signal(signal.SIGTERM)
    assert new.ended() == 0
    late = one(db, ENQUEUE, '{"name": "Zoe", "language": "de"}')
    wait_until(lambda: row_of(db, late)["reason"], 20, "it to wait")
    assert problems() == [], "its workers may just be starting again"
    db.execute("UPDATE pgsched.workers SET seen_at = seen_at - interval '2 minutes', stopped_at = now()"
               " WHERE stopped_at IS NOT NULL")  # fmt: skip
    (problem,) = problems()
    assert problem.startswith("1 run of task greet waits for its newest release, and no live worker has had it for 2 ")
    start(fleet, "new")
    assert problems() == []


def test_arguments_that_do_not_fit_are_dead_at_once_on_the_newest_release(fleet: Fleet, db: psycopg.Connection) -> None:
    start(fleet, "new")
    run = ended(db, one(db, ENQUEUE, '{"name": "Ada", "langauge": "fr"}'))
    assert (run["state"], run["attempt"], run["reason"]) == ("dead", 1, "failed for good")
    assert "'langauge'" in run["error"] and run["error"].endswith("did you mean language?")
    missing = ended(db, one(db, ENQUEUE, "{}"))
    assert (missing["state"], missing["attempt"]) == ("dead", 1) and "'name'" in missing["error"]


@pytest.mark.long
def test_the_newest_release_still_holds_after_its_workers_have_ended(fleet: Fleet, db: psycopg.Connection) -> None:
    for release in ("old", "new", "old"):
        member = start(fleet, release)
        member.signal(signal.SIGTERM)
        assert member.ended() == 0
    found = db.execute("SELECT app, task, options, schema FROM pgsched.tasks ORDER BY first_seen_at").fetchall()
    assert [(app, task, options) for app, task, options, _ in found] == [
        ("hello", "greet", {}), ("hello", "greet", {"max_attempts": 5})
    ]  # fmt: skip
    assert found[1][3] == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "language": {"type": "string", "default": "en"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert row_of(db, one(db, "INSERT INTO pgsched.runs (task) VALUES ('greet') RETURNING id"))["max_attempts"] == 5
