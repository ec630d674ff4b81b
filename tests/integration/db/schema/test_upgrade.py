"""A filled database is upgraded to the next release while workers and a leader run.

Afterwards an older program refuses the database.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgsched.db.schema import version
from tests.support.apps import ledger
from tests.support.fleet import Fleet, fleet_on, one
from tests.support.schema.probing import fill
from tests.support.schema.releases import NEXT, ROOT, STEPS, run
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.packages, pytest.mark.scram]

ROWS = 5_000
TOO_OLD, TOO_NEW = 5, 6


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    """Yield a fleet of this release on a filled database; the tests start its workers."""
    fill(dsn, ROWS)
    ledger.install(dsn)
    with fleet_on(dsn, tmp_path) as made:
        yield made


@pytest.mark.long
def test_a_filled_database_is_upgraded_while_workers_and_a_leader_go_on(
    fleet: Fleet, released: Path, db: psycopg.Connection
) -> None:
    """Every run that was enqueued before, during or after the upgrade ends, and ends once. No slot is lost."""
    stop, ids = threading.Event(), list[int]()

    def enqueue() -> None:
        with psycopg.connect(fleet.dsn, autocommit=True) as conn:
            while not stop.wait(0.01):
                ids.append(one(conn, "SELECT pgsched.enqueue('note')"))

    def succeeded(origin: str) -> int:
        return int(one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded' AND origin = %s"
                           " AND finished_at > now() - interval '1 day'", origin))  # fmt: skip

    fleet.start(2, "--lease", "5")
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('often', 'note', '@every 1s')")
    feeding = threading.Thread(target=enqueue)
    feeding.start()
    try:
        wait_until(lambda: succeeded("enqueue") > 50, 60, "the workers to work")
        upgraded = run(released, "migrate", "--dsn", fleet.dsn)
        assert upgraded.returncode == 0, upgraded.stderr
        assert upgraded.stdout == f"the schema is version {NEXT} (was {version.SCHEMA_VERSION})\n"
        assert all(step in upgraded.stderr for step in STEPS)
        enqueued, planned = succeeded("enqueue"), succeeded("schedule")
        wait_until(lambda: succeeded("enqueue") > enqueued + 50, 60, "the workers to go on")
        wait_until(lambda: succeeded("schedule") > planned, 30, "the leader to go on")
    finally:
        stop.set()
        feeding.join()
    assert all(member.alive for member in fleet.members)
    unended = "SELECT count(*) FROM pgsched.runs WHERE id = ANY (%s) AND state <> 'succeeded'"
    wait_until(lambda: one(db, unended, ids) == 0, 60, "everything to end")
    twice = "SELECT run_id FROM public.ledger WHERE event = 'end' GROUP BY run_id HAVING count(*) > 1"
    assert db.execute(twice).fetchall() == []
    slots = one(db, "SELECT count(*) FROM generate_series((SELECT min(scheduled_at) FROM pgsched.runs r, pgsched.jobs j"
                    " WHERE j.name = 'often' AND r.job_id = j.id), now() - interval '5 seconds', '1 second') s(at)"
                    " WHERE NOT EXISTS (SELECT FROM pgsched.runs r, pgsched.jobs j WHERE j.name = 'often'"
                    " AND r.job_id = j.id AND s.at BETWEEN coalesce(r.covers_from, r.scheduled_at)"
                    " AND coalesce(r.covers_until, r.scheduled_at))")  # fmt: skip
    assert slots == 0, "a slot was lost"
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE note = 'from before' AND task LIKE 'task.%%'") == ROWS
    assert one(db, "SELECT pgsched.note_of(1)") == "from before"
    assert one(db, "SELECT convalidated FROM pg_constraint WHERE conname = 'runs_note'") is True
    assert one(db, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'pgsched.runs_noted'::regclass") is True


@pytest.mark.long
@pytest.mark.parametrize("command", ["worker", "worker --processes 2", "status", "job list", "check", "migrate"])
def test_an_older_program_refuses(released: Path, dsn: str, command: str) -> None:
    assert run(released, "migrate", "--dsn", dsn).returncode == 0
    ended = run(ROOT, *command.split(), "--dsn", dsn)
    assert ended.returncode == TOO_NEW, ended.stderr
    assert f"version {NEXT}, newer than {version.SCHEMA_VERSION}: upgrade this pgsched" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_newer_program_refuses_the_older_schema(released: Path, dsn: str) -> None:
    for command in (["worker"], ["status"]):
        ended = run(released, *command, "--dsn", dsn)
        assert ended.returncode == TOO_OLD, ended.stderr
        assert f"version {version.SCHEMA_VERSION}, older than {NEXT}: run `pgsched migrate`" in ended.stderr


@pytest.mark.long
def test_migrate_goes_to_a_named_version_and_never_back(released: Path, empty_dsn: str) -> None:
    to = ("migrate", "--to", version.SCHEMA_VERSION, "--dsn", empty_dsn)
    assert run(released, *to).stdout == f"created schema pgsched, version {version.SCHEMA_VERSION}\n"
    assert run(released, "migrate", "--dsn", empty_dsn).returncode == 0
    roles = run(released, *to, "--roles")
    assert (roles.returncode, "to: the roles are those of version" in roles.stderr) == (2, True)
    back = run(released, *to)
    assert back.returncode == 2
    assert f"{NEXT} cannot be taken back to {version.SCHEMA_VERSION}: restore a backup" in back.stderr
    with psycopg.connect(empty_dsn) as conn:
        assert version.current(conn) == NEXT
