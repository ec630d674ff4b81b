"""Rows that no session can write: a trigger raises an error that pgsched does not expect."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.leader.loop import LeaderLoop
from tests.support.waiting import wait_until

POISON = """
    CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = 'poisoned';
    END $$;
    CREATE TRIGGER poison BEFORE {event} ON pgsched.{table} FOR EACH ROW WHEN ({when})
        EXECUTE FUNCTION public.poison()"""
GOOD = 12


def poison(db: psycopg.Connection, event: str, when: str, table: str = "runs") -> None:
    db.execute(POISON.format(event=event, when=when, table=table).encode())


def heal(db: psycopg.Connection) -> None:
    db.execute("DROP FUNCTION public.poison() CASCADE")


def aside(db: psycopg.Connection) -> list[Any]:
    return db.execute("SELECT duty, row_id, error FROM pgsched.set_aside ORDER BY 1, 2").fetchall()


def until(loop: LeaderLoop, db: psycopg.Connection, query: str, value: Any) -> None:
    """Run the leader's rounds until the query returns this value."""
    wait_until(lambda: loop.run_once() >= 0 and db.execute(query.encode()).fetchone() == (value,), 20, query)


def waiting_run(db: psycopg.Connection, n: int, columns: str, values: str) -> None:
    db.execute(
        f"INSERT INTO pgsched.runs (task, {columns}) SELECT 't', {values} FROM generate_series(1, %s) n".encode(), [n]
    )


def add_backfills(db: psycopg.Connection, n: int) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule)"
               " SELECT 'j' || n, 't', '0 0 * * *' FROM generate_series(1, %s) n", [n])  # fmt: skip
    db.execute("INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at) SELECT"
               " id, name, schedule, timezone, anchor_at, '2026-01-01Z', '2026-01-03Z'"
               " FROM pgsched.jobs ORDER BY id")  # fmt: skip
