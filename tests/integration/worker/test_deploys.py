"""Rolling out releases: a declared job exists for as long as a process that declares it may be alive."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.fleet import Fleet, Member, fleet_on, one, wait_for_leader
from tests.support.releases import a_run_that_waits, declared, rounds, state_of, time_passes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on(dsn, tmp_path) as fleet:
        yield fleet


def start(fleet: Fleet, release: str, *options: str) -> Member:
    """Start a process of a release, and wait until it works."""
    member = fleet.launch(*(options or ("--no-leader",)), app=f"tests.support.apps.releases:{release}")
    fleet.await_start(member)
    return member


def stop(member: Member) -> None:
    member.signal(signal.SIGTERM)
    assert member.ended() == 0


def test_a_process_of_the_old_release_removes_no_job_of_the_new_one(fleet: Fleet, db: psycopg.Connection) -> None:
    """A rolling deploy is undone.

    The old release works, then the new one as well. A process of the old release starts again. Then the last process
    of the new release stops.
    """
    start(fleet, "old")
    new = start(fleet, "new")
    assert declared(db) == {"salaries", "letters", "bonuses"}
    waits = a_run_that_waits(db, "bonuses")
    start(fleet, "old")
    assert declared(db) == {"salaries", "letters", "bonuses"}
    assert state_of(db, waits) == "scheduled"
    stop(new)
    leader = rounds(db)
    assert declared(leader()) == {"salaries", "letters", "bonuses"}, "it may be starting again just now"
    time_passes(db, 10)
    assert declared(leader()) == {"salaries", "letters"}
    assert state_of(db, waits) == "cancelled"


def test_a_worker_that_is_alone_removes_a_job_before_its_slots_are_decided(
    fleet: Fleet, db: psycopg.Connection
) -> None:
    """A developer removes a job from the code and starts the worker again. Meanwhile slots of the job came due."""
    stop(start(fleet, "often", "--leader"))
    runs = "SELECT count(*), max(id) FROM pgsched.runs WHERE task = %s"
    letters, (_, last) = one_row(db, runs, "letters"), one_row(db, runs, "salaries")
    wait_until(lambda: one(db, "SELECT max(next_run_at) < clock_timestamp() FROM pgsched.jobs"), what="slots to be due")
    start(fleet, "seldom", "--leader")
    assert declared(db) == {"salaries"}
    wait_for_leader(db)
    wait_until(lambda: (one_row(db, runs, "salaries")[1] or 0) > (last or 0), 30, "the leader to decide slots")
    assert one_row(db, runs, "letters") == letters


def one_row(db: psycopg.Connection, query: str, *values: str) -> tuple[int, int | None]:
    row = db.execute(query.encode(), values).fetchone()
    assert row is not None
    return row[0], row[1]


def test_a_release_that_cannot_start_neither_declares_nor_removes_jobs(fleet: Fleet, db: psycopg.Connection) -> None:
    stop(start(fleet, "new"))
    assert fleet.launch("--no-leader", app="tests.support.apps.releases:broken").ended(30) != 0
    assert declared(db) == {"salaries", "bonuses"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--metrics", "{taken}"], "metrics: cannot listen"),
        (["--max-memory", "2"], "max memory: 2 MB is less"),
        (["--allow", "http"], "needs the package httpx"),
        (["--allow", "http", "--http-allow", "10.0.0.1/8"], "http-allow: "),
        (["--allow", "sql", "--sql-dsn", "a=b=c=d"], "sql-dsn: "),
        (["--otel"], "otel: there is no exporter"),
        (["--alert-webhook", "nowhere"], "alert-webhook: "),
    ],
)
def test_a_release_with_wrong_options_is_not_registered(
    fleet: Fleet, db: psycopg.Connection, tmp_path: Path, options: list[str], why: str
) -> None:
    (tmp_path / "httpx.py").write_text("raise ImportError")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        env = {"PYTHONPATH": str(tmp_path), "OTEL_TRACES_EXPORTER": "nothing"}
        given = [option.format(taken=taken) for option in options]
        member = fleet.launch(*given, app="tests.support.apps.releases:new", env=env)
        assert member.ended(30) == 2 and why in member.last_line
    assert declared(db) == set()
    assert db.execute("SELECT FROM pgsched.workers").fetchall() == []


def test_a_worker_that_fails_after_on_start_calls_its_shutdown_hooks(fleet: Fleet, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    env = {"OTEL_TRACES_EXPORTER": "nothing", "HOOKED_NOTES": str(notes)}
    assert fleet.launch("--otel", app="tests.support.apps.hooked:app", env=env).ended(30) == 2
    assert notes.read_text().split() == ["start", "shutdown"]


def test_a_worker_that_was_treated_as_dead_declares_its_jobs_again(fleet: Fleet, db: psycopg.Connection) -> None:
    """The worker is frozen until other processes treat it as dead."""
    frozen = start(fleet, "new", "--no-leader", "--lease", "1")
    start(fleet, "old")
    frozen.freeze()
    leader = rounds(db)
    time_passes(db, 10, pid=frozen.pid)
    assert declared(leader()) == {"salaries", "letters"}
    frozen.thaw()
    wait_until(lambda: declared(db) == {"salaries", "letters", "bonuses"}, 30, "the worker to put its job back")
    assert declared(leader()) == {"salaries", "letters", "bonuses"}
