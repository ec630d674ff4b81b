"""The phase of a run, which the indexes use, always fits its state, whatever program wrote the state."""

from __future__ import annotations

from itertools import product

import psycopg
import pytest

from pgsched.core.lifecycle import OPEN_STATES
from pgsched.core.model import State

PHASES = {
    "waiting": 0, "scheduled": 1, "queued": 2, "running": 2, "succeeded": 3, "cancelled": 3, "skipped": 3, "dead": 4,
    "missed": 4,
}  # fmt: skip
INSERT = """
INSERT INTO pgsched.runs (task, state, phase, checked, finished_at, token, lease_until)
VALUES ('t', %(state)s, %(phase)s, %(checked)s, CASE WHEN %(ended)s THEN clock_timestamp() END, gen_random_uuid(),
        clock_timestamp())
RETURNING phase
"""
UPDATE = "UPDATE pgsched.runs SET state = %(state)s, finished_at = CASE WHEN %(ended)s THEN clock_timestamp() END"


def test_every_state_has_a_phase() -> None:
    assert PHASES.keys() == set(State)


def test_a_new_run_has_the_phase_of_its_state(db: psycopg.Connection) -> None:
    for state, phase, checked in product(PHASES, (2, 0, 4), (True, None)):
        values = {"state": state, "phase": phase, "checked": checked, "ended": state not in OPEN_STATES}
        assert db.execute(INSERT, values).fetchone() == (PHASES[state],), values


def test_an_update_of_the_state_sets_the_phase(db: psycopg.Connection) -> None:
    for before, after in product(PHASES, PHASES):
        db.execute("DELETE FROM pgsched.runs")
        db.execute(INSERT, {"state": before, "phase": 2, "checked": None, "ended": before not in OPEN_STATES})
        db.execute(UPDATE, {"state": after, "ended": after not in OPEN_STATES})
        rows = db.execute("SELECT state, phase FROM pgsched.runs").fetchall()
        assert rows == [(after, PHASES[after])], f"{before} to {after}"


def test_a_wrong_phase_is_corrected(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    db.execute("UPDATE pgsched.runs SET phase = 3")
    assert db.execute("SELECT state, phase FROM pgsched.runs").fetchall() == [("queued", 2)]


def test_a_state_without_the_columns_that_belong_to_it_is_refused(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    for change in (
        "state = 'succeeded'", "finished_at = clock_timestamp()", "state = 'running'", "state = 'asleep'",
        "state = 'asleep', finished_at = clock_timestamp()",
        "state = 'running', token = gen_random_uuid()", "state = 'running', lease_until = clock_timestamp()",
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            db.execute(f"UPDATE pgsched.runs SET {change}")
        assert refused.value.diag.constraint_name == "runs_state"


def test_replayed_rows_get_their_phase_by_themselves(db: psycopg.Connection) -> None:
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("INSERT INTO pgsched.runs (task, state) VALUES ('t', 'waiting'), ('u', 'queued')")
        db.execute("UPDATE pgsched.runs SET state = 'scheduled' WHERE task = 'u'")
    assert db.execute("SELECT task, phase FROM pgsched.runs ORDER BY task").fetchall() == [("t", 0), ("u", 1)]


def test_a_trigger_of_the_user_may_choose_the_state_of_a_new_run(db: psycopg.Connection) -> None:
    db.execute("CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS"
               " $$ BEGIN NEW.state := 'waiting'; RETURN NEW; END $$")  # fmt: skip
    db.execute("CREATE TRIGGER hold BEFORE INSERT ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION public.hold()")
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    assert db.execute("SELECT state, phase FROM pgsched.runs").fetchall() == [("waiting", 0)]
