"""A job gets a limit while another transaction makes a run of it."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.db.setting import Aside, Open, wait_until_blocked
from tests.support.fleet import one

LIMIT = "UPDATE pgsched.jobs SET concurrency_limit = 1 WHERE name = 'a'"
GUARD = "PERFORM FROM pgsched.jobs j WHERE j.id = NEW.id FOR UPDATE;"


@pytest.fixture
def job(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '@daily')")


@pytest.mark.usefixtures("job")
def test_a_run_that_is_being_made_gets_the_limit_too(db: psycopg.Connection, connect: Open) -> None:
    making, limiting = connect(autocommit=False), connect()
    making.execute("SELECT pgsched.trigger('a')")
    update = Aside(lambda: limiting.execute(LIMIT))
    wait_until_blocked(db, limiting)
    making.commit()
    update.result()
    assert one(db, "SELECT concurrency_key IS NOT NULL AND state = 'waiting' FROM pgsched.runs")


@pytest.mark.usefixtures("job")
def test_without_the_row_lock_the_run_escapes_the_limit(db: psycopg.Connection, connect: Open) -> None:
    text = one(db, "SELECT pg_get_functiondef('pgsched.jobs_rekey'::regproc)")
    assert text.count(GUARD) == 1
    db.execute(text.replace(GUARD, "").encode())
    making = connect(autocommit=False)
    making.execute("SELECT pgsched.trigger('a')")
    db.execute(LIMIT)
    making.commit()
    assert one(db, "SELECT concurrency_key IS NULL AND state = 'queued' FROM pgsched.runs")
