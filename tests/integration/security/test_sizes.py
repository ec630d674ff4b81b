"""The values of a row have size limits for every role; what pgsched itself writes is far below them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched.core.model import Result
from pgsched.execute.outcomes import refusal_outcome, traceback_text
from tests.support.db.setting import add_runs, done, reap, take
from tests.support.db.settling import settle
from tests.support.logins import Logins

MIB = 1 << 20
RUN = "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id"
ATTEMPT = (
    "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, {}) VALUES (1, gen_random_uuid(), 1, 'failed', %s)"
)


def refuses(db: psycopg.Connection[Any], statement: str, value: object) -> str:
    """Check that the value is refused, and return the name of the limit."""
    with pytest.raises(psycopg.errors.CheckViolation) as caught, db.transaction():
        db.execute(statement.encode(), [value])
    return str(caught.value.diag.constraint_name or caught.value.diag.message_primary)


@pytest.mark.parametrize("column", ["error", "reason"])
def test_the_texts_of_a_run_are_bounded(db: psycopg.Connection[Any], column: str) -> None:
    db.execute(RUN)
    statement = f"UPDATE pgsched.runs SET {column} = %s"
    assert refuses(db, statement, "é" * 40_000) == "runs_texts_size"
    db.execute(statement.encode(), ["é" * 1000])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("progress", Jsonb({"note": "x" * 100_000})),
        ("options", Jsonb({"note": "x" * 100_000})),
        ("cancel_reason", "é" * 40_000),
        ("unique_key", "x" * 4001),
        ("tags", ["x"] * 20_000),
    ],
    ids=lambda given: given if isinstance(given, str) and len(given) < 20 else "",
)
def test_the_values_of_a_run_are_bounded(db: psycopg.Connection[Any], column: str, value: object) -> None:
    db.execute(RUN)
    assert column in refuses(db, f"UPDATE pgsched.runs SET {column} = %s", value)
    assert column in refuses(db, f"INSERT INTO pgsched.runs (task, {column}) VALUES ('t', %s)", value)


def test_payloads_and_results_are_bounded(db: psycopg.Connection[Any]) -> None:
    big = Jsonb({"x": "x" * MIB})
    assert "args" in refuses(db, "INSERT INTO pgsched.runs (task, args) VALUES ('t', %s)", big)
    job = "INSERT INTO pgsched.jobs (name, schedule, task, args) VALUES ('j', '@daily', 't', %s)"
    assert "args" in refuses(db, job, big)
    assert "args" in refuses(db, "SELECT pgsched.enqueue('t', %s)", big)
    db.execute(RUN)
    assert refuses(db, "UPDATE pgsched.runs SET result = %s", big) == "runs_result_size"


@pytest.mark.parametrize(
    ("column", "limit"), [("error", 65_536), ("traceback", 262_144), ("log_tail", 262_144), ("worker", 1024)]
)
def test_the_evidence_of_an_attempt_is_bounded(db: psycopg.Connection[Any], column: str, limit: int) -> None:
    assert refuses(db, ATTEMPT.format(column), "x" * (limit + 1)) == "attempts_texts_size"
    db.execute(ATTEMPT.format(column).encode(), ["x" * limit])


def test_a_row_of_output_is_bounded(db: psycopg.Connection[Any]) -> None:
    line = "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (1, 1, 1, 'stdout', %s)"
    assert refuses(db, line, "x" * (MIB + 1)) == "run_logs_chunk_size"


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("INSERT INTO pgsched.jobs (schedule, task, name) VALUES ('@daily', 't', %s)", "x" * 201),
        ("INSERT INTO pgsched.jobs (schedule, task, name) VALUES ('@daily', 't', %s)", "a\nb"),
        ("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('j', '@daily', %s)", "x" * 65_537),
        ("INSERT INTO pgsched.jobs (name, schedule, task, description) VALUES ('j', '@daily', 't', %s)", "x" * 70_000),
        ("INSERT INTO pgsched.runs (task) VALUES (%s)", "x" * 65_537),
        ("INSERT INTO pgsched.runs (task, queue) VALUES ('t', %s)", "x" * 101),
        ("INSERT INTO pgsched.runs (task, unique_key) VALUES ('t', %s)", "x" * 4001),
        ("INSERT INTO pgsched.runs (task, idempotency_key) VALUES ('t', %s)", "x" * 2000),
        ("INSERT INTO pgsched.runs (task, concurrency_key) VALUES ('t', %s)", "x" * 2000),
        ("INSERT INTO pgsched.runs (task, tags) VALUES ('t', %s)", ["x" * 100_000]),
        ("INSERT INTO pgsched.queues (name) VALUES (%s)", "x" * 101),
        ("INSERT INTO pgsched.limits (concurrency, name) VALUES (1, %s)", "x" * 501),
        (
            "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, declares)"
            " VALUES ('w', 'h', 1, '0', 1, '{}', '{}', '1 minute', %s)",
            ["x" * 1000] * 17_000,
        ),
    ],
)
def test_names_and_texts_are_bounded(db: psycopg.Connection[Any], statement: str, value: object) -> None:
    refuses(db, statement, value)


def test_the_login_of_a_worker_cannot_exceed_the_limits(logins: Logins) -> None:
    run_id = logins.connect("alice").execute("SELECT pgsched.enqueue('t')").fetchone()
    worker = logins.connect("worker")
    with pytest.raises(psycopg.errors.CheckViolation):
        worker.execute("UPDATE pgsched.runs SET error = repeat('x', 100000) WHERE id = %s", run_id)
    with pytest.raises(psycopg.errors.CheckViolation):
        worker.execute(ATTEMPT.format("traceback").encode(), ["x" * 300_000])


def test_the_longest_error_of_a_handler_fits_into_its_row(db: psycopg.Connection[Any]) -> None:
    """These are the longest texts that the Python side lets through, in characters of four bytes."""
    try:
        raise ValueError("\U0001f600" * MIB)
    except ValueError as raised:
        traceback = traceback_text(raised)
    outcome = refusal_outcome("\U0001f600" * MIB, log_tail="\U0001f600" * 24 * 1024)
    db.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, error, traceback, log_tail)"
        " VALUES (1, gen_random_uuid(), 1, 'failed', %s, %s, %s)",
        [outcome.error, traceback, outcome.log_tail],
    )


def asked_to_end(db: psycopg.Connection[Any]) -> Any:
    """Return a claim whose run is to be cancelled, with the longest reason that is allowed."""
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("UPDATE pgsched.runs SET cancel_requested_at = now(), cancel_reason = repeat('é', 32768)")
    return claim


def test_a_worker_can_settle_a_run_with_the_longest_cancel_reason(dsn: str, db: psycopg.Connection[Any]) -> None:
    claim = asked_to_end(db)
    assert settle(dsn, done(claim, Result.CANCELLED)) == ["cancelled"]


def test_the_leader_can_reap_a_run_with_the_longest_cancel_reason(db: psycopg.Connection[Any]) -> None:
    """Otherwise the other runs of that batch would not be reaped either."""
    asked_to_end(db)
    db.execute("UPDATE pgsched.runs SET lease_until = now() - interval '1 hour'")
    assert [row["state"] for row in reap(db)] == ["cancelled"]


def test_the_leader_can_update_a_job_with_the_longest_description(
    db: psycopg.Connection[Any],
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, description)"
               " VALUES ('j', '@daily', 't', repeat('é', 65536))")  # fmt: skip
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp()")
    db.execute("UPDATE pgsched.jobs SET description = repeat('ü', 65536)")
