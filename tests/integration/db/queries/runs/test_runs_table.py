"""A plain INSERT INTO runs is checked, whatever role sends it: a wrong row is refused with field and reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.leader import ticks
from pgsched.db.statements import sql
from tests.support.db.setting import let_expire, reap, row_of, take

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"available_at": "infinity"}, "available_at: infinity is not an instant between 1970 and 9000"),
    ({"available_at": "-infinity"}, "available_at: -infinity is not an instant between 1970 and 9000"),
    ({"available_at": "4000-01-01 BC"}, "available_at: 4000-01-01 00:00:00+00 BC is not an instant"),
    ({"expires_at": "infinity"}, "expires_at: infinity is not an instant"),
    ({"job_id": 1, "scheduled_at": "infinity"}, "scheduled_at: infinity is not an instant"),
    ({"timeout": "-5 s"}, "timeout: -00:00:05 is less than 00:00:00.001"),
    ({"timeout": "20 years"}, "timeout: 20 years is more than 10 years"),
    ({"kill_after": "-1 s"}, "kill_after: -00:00:01 is less than 00:00:00"),
    ({"backoff_base": "-1 s"}, "backoff_base: -00:00:01 is less than 00:00:00"),
    ({"backoff_max": "-1 s"}, "backoff_max: -00:00:01 is less than 00:00:00"),
    ({"backoff_jitter": 2}, "backoff_jitter: 2 is out of range 0-1"),
    ({"priority": 10}, "priority: 10 is out of range 0-9"),
    ({"max_attempts": 0}, "max_attempts: 0 is out of range 1-1000"),
    ({"kind": "cobol"}, 'kind: "cobol" is not one of task, command, shell, sql, http'),
    ({"task": ""}, "task: must not be empty"),
    ({"task": "x" * 65537}, "task: 65537 characters, at most 65536 are allowed"),
    ({"queue": ""}, "queue: must not be empty"),
    ({"queue": "a\tb"}, "queue: must not contain control characters"),
    ({"args": "7"}, "args: must be a JSON object or array, not a number"),
    ({"kind": "shell", "args": "[1]"}, "args: a shell job takes a JSON object"),
    ({"args": '["' + "x" * 10_000_000 + '"]'}, "at most 1048576 are allowed"),
]


@pytest.mark.parametrize(("columns", "words"), WRONG, ids=[f"{next(iter(c))}-{n}" for n, (c, _) in enumerate(WRONG)])
def test_a_wrong_run_is_refused(db: psycopg.Connection, columns: dict[str, Any], words: str) -> None:
    given = {"task": "t"} | columns
    names, values = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        db.execute(f"INSERT INTO pgsched.runs ({names}) VALUES ({values})".encode(), given)
    assert words in (refused.value.diag.message_primary or "")
    assert refused.value.diag.column_name == words.partition(":")[0] or "at most" in words


@pytest.mark.parametrize("column", ["available_at", "expires_at"])
def test_no_update_makes_a_row_wrong(db: psycopg.Connection, column: str) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(f"UPDATE pgsched.runs SET {column} = 'infinity'".encode())


@pytest.fixture
def deadline(db: psycopg.Connection) -> int:
    """Insert a queued run that must start within a minute, and return its id."""
    row = db.execute(
        "INSERT INTO pgsched.runs (task, job_id, scheduled_at, expires_at)"
        " VALUES ('t', 1, clock_timestamp(), clock_timestamp() + interval '1 minute') RETURNING id"
    ).fetchone()
    assert row is not None
    return int(row[0])


def pass_deadline(db: psycopg.Connection) -> None:
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() - interval '1 second'")
    ticks.admit(db, 10)


def test_an_unstarted_run_is_missed_after_its_deadline(db: psycopg.Connection, deadline: int) -> None:
    pass_deadline(db)
    assert row_of(db, deadline)["state"] == "missed"


def test_a_run_that_started_in_time_is_retried_after_its_deadline(db: psycopg.Connection, deadline: int) -> None:
    (claim,) = take(db)
    db.execute("UPDATE pgsched.runs SET begun = true")
    pass_deadline(db)
    let_expire(db)
    assert [row["state"] for row in reap(db)] == ["queued"]
    ticks.admit(db, 10)
    assert row_of(db, deadline)["state"] == "queued"
    assert [again.attempt for again in take(db)] == [claim.attempt + 1]
    assert claim.id == deadline


@pytest.fixture
def low(db: psycopg.Connection, connect: Callable[..., psycopg.Connection]) -> Iterator[psycopg.Connection]:
    """Yield a session of a role that may enqueue, and may act for no other role."""
    role = f"pgsched_test_low_{db.info.dbname[-8:]}"
    db.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA pgsched TO {role}".encode())
    db.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA pgsched TO {role}".encode())
    conn = connect()
    conn.execute(f"SET ROLE {role}".encode())
    yield conn
    conn.close()
    db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_a_worker_may_say_that_it_sleeps_without_a_right_on_the_sequence(low: psycopg.Connection) -> None:
    values = {"known": "{}", "among": None, "after": "", "steps": 9, "kinds": "{}", "tasks": "{}"}
    row = low.execute(sql("claimable_queues"), {"asleep_s": 2.5, "look": True, **values}).fetchone()
    assert row is not None and row[0] is None and 2.4 < row[1] <= 2.5
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        low.execute("SELECT setval('pgsched.asleep_until', 0)")


def test_an_end_of_sleep_by_a_clock_far_ahead_is_ignored(db: psycopg.Connection) -> None:
    db.execute("SELECT setval('pgsched.asleep_until', 8999999999999)")
    assert db.execute("SELECT pgsched.workers_asleep(2.5) <= 2.5").fetchone() == (True,)
    assert db.execute("SELECT pgsched.workers_asleep(1) BETWEEN 2.0 AND 2.5").fetchone() == (True,), "somebody else's"


def test_an_sql_run_belongs_to_the_role_that_makes_it(low: psycopg.Connection, db: psycopg.Connection) -> None:
    low.execute("SELECT pgsched.enqueue('SELECT 1', kind => 'sql')")
    owner = db.execute("SELECT owner FROM pgsched.runs").fetchone()
    assert owner == low.execute("SELECT current_user::text").fetchone()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO pgsched.runs (kind, task, owner) VALUES ('sql', 'SELECT 1', {boss})",
        "INSERT INTO pgsched.runs (kind, task, owner, job_id, scheduled_at, origin)"
        " SELECT 'sql', 'DROP TABLE t', owner, id, clock_timestamp(), 'schedule' FROM pgsched.jobs",
        "UPDATE pgsched.runs SET task = 'DROP TABLE t'",
        "UPDATE pgsched.runs SET kind = 'sql', owner = {boss}",
        "UPDATE pgsched.runs SET args = '{\"n\": 2}' WHERE kind = 'sql'",
    ],
)
def test_no_role_makes_an_sql_run_with_another_roles_rights(
    statement: str, low: psycopg.Connection, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, kind, task, run_at) VALUES ('j', 'sql', 'SELECT 1', '2999-01-01')")
    db.execute("INSERT INTO pgsched.runs (kind, task) VALUES ('sql', 'SELECT 2'), ('task', 't')")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"owner: role .* may not act for role"):
        low.execute(statement.replace("{boss}", f"'{db.info.user}'").encode())


def test_a_triggered_run_has_the_owner_of_its_job(low: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, kind, task, run_at) VALUES ('j', 'sql', 'SELECT 1', '2999-01-01')")
    low.execute("SELECT pgsched.trigger('j')")
    assert db.execute("SELECT owner = current_user FROM pgsched.runs").fetchone() == (True,)
