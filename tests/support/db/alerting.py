"""Jobs with slots in every state, and the incidents that follow."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.db.queries.leader import alerts


def job(db: psycopg.Connection, name: str = "j", schedule: str | None = "@every 1h", **columns: Any) -> int:
    given = {"name": name, "schedule": schedule, "task": "t"} | columns
    names, marks = ", ".join(given), ", ".join(f"%({column})s" for column in given)
    row = db.execute(f"INSERT INTO pgsched.jobs ({names}) VALUES ({marks}) RETURNING id".encode(), given).fetchone()
    assert row is not None
    return int(row[0])


def slot(db: psycopg.Connection, job_id: int, hours_ago: float, state: str, **columns: Any) -> int:
    """Add a slot of the job; if it started, it started on time; if it ended, it took a second."""
    ended = state not in ("running", "queued", "waiting", "scheduled")
    started = "s.at + interval '1 ms'" if state not in ("queued", "missed", "skipped") else "NULL"
    given: dict[str, Any] = {
        "origin": "schedule",
        "attempt": 1,
        "error": "broke" if state == "dead" else None,
    } | columns
    names, marks = ", ".join(given), ", ".join(f"%({column})s" for column in given)
    row = db.execute(
        "INSERT INTO pgsched.runs (job_id, task, state, scheduled_at, available_at, started_at, finished_at, token,"
        f" lease_until, {names})"
        f" SELECT %(job)s, 't', %(state)s, s.at, s.at, {started}, {'s.at + interval $$1 s$$' if ended else 'NULL'},"
        f" gen_random_uuid(), clock_timestamp() + interval '1 h', {marks}"
        " FROM (SELECT clock_timestamp() - %(age)s * interval '1 hour' AS at) s RETURNING id".encode(),
        {"job": job_id, "state": state, "age": hours_ago, **given},
    ).fetchone()
    assert row is not None
    return int(row[0])


def check(db: psycopg.Connection) -> list[tuple[str, str]]:
    return [(row["what"], row["kind"]) for row in alerts.check_watched_jobs(db, 0).changes]


def open_kinds(db: psycopg.Connection) -> list[str]:
    return sorted(one["kind"] for one in alerts.list_alerts(db))


def incident(db: psycopg.Connection) -> int:
    mine = job(db, alert_after_failures=1)
    slot(db, mine, 1, "dead")
    check(db)
    return mine


def due_again(db: psycopg.Connection) -> None:
    db.execute("UPDATE pgsched.alert_deliveries SET next_at = clock_timestamp()")
