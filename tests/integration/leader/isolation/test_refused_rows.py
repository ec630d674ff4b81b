"""Rows of a tick that the database refuses stop no other job."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.leader import ticks
from pgsched.leader import passed_over
from pgsched.leader.ticker import tick
from tests.support.db.setting import add_jobs, slots

pytestmark = pytest.mark.pg14

REFUSALS = {
    "constraint": "ALTER TABLE pgsched.runs ADD CONSTRAINT no CHECK (job_id <> {0}) NOT VALID",
    "mark": "ALTER TABLE pgsched.jobs ADD CONSTRAINT no CHECK (id <> {0} OR run_count < 5) NOT VALID",
    "trigger": "CREATE TRIGGER no BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (NEW.job_id = {0})"
    " EXECUTE FUNCTION refuse()",
}


def refuse(db: psycopg.Connection, how: str) -> int:
    """Make the database refuse what the tick writes for the job `j2`; return the job's id."""
    db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$")
    row = db.execute("SELECT id FROM pgsched.jobs WHERE name = 'j2'").fetchone()
    assert row is not None
    db.execute(how.format(row[0]))
    return int(row[0])


@pytest.mark.parametrize("how", REFUSALS)
def test_a_job_whose_rows_are_refused_stops_no_other_job(db: psycopg.Connection, how: str) -> None:
    add_jobs(db, 7, 20)
    refuse(db, REFUSALS[how])
    with db.transaction():
        done = tick(db, 100)
    assert (done.jobs, done.slots, done.errors, len(done.failed)) == (6, 120, 0, 1)
    assert slots(db) == (120, 120)
    bad = db.execute("SELECT id, name, error FROM pgsched.jobs WHERE next_run_at IS NOT NULL").fetchall()
    assert [row[1:] for row in bad] == [("j2", None)], "what refuses it may pass: it keeps its slot"
    assert [*done.failed] == [bad[0][0]]
    good = db.execute("SELECT DISTINCT run_count FROM pgsched.jobs WHERE name <> 'j2'").fetchall()
    assert good == [(20,)]


def test_without_splitting_a_refused_batch_no_job_gets_a_row(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(db, 7, 20)
    refuse(db, REFUSALS["constraint"])
    monkeypatch.setattr(ticks, "is_fault_of_row", lambda error: False)
    with pytest.raises(psycopg.errors.CheckViolation), db.transaction():
        tick(db, 100)
    assert slots(db) == (0, 0)


def test_a_job_that_cannot_even_be_marked_stops_no_other_job(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 20)
    bad = refuse(db, "CREATE TRIGGER no BEFORE UPDATE ON pgsched.jobs FOR EACH ROW WHEN (NEW.id = {0})"
                 " EXECUTE FUNCTION refuse()")  # fmt: skip
    with db.transaction():
        assert (tick(db, 100).jobs, slots(db)) == (2, (40, 40))
    with db.transaction():
        assert tick(db, 100).jobs == 0, "so that the leader pauses rather than spin"
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE job_id = %s", [bad]).fetchone() == (0,)


def test_passed_over_slots_get_their_row_though_that_of_another_job_is_refused(db: psycopg.Connection) -> None:
    add_jobs(db, 3, 20)
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 7h'")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET queue = ' a' WHERE name = 'j2'")
    with db.transaction():
        assert passed_over.record_stretches(db) == 3
    found = db.execute("SELECT j.name FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY 1").fetchall()
    assert found == [("j1",), ("j3",)]
    with db.transaction():
        assert passed_over.record_stretches(db) == 0
