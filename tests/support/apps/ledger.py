"""An app whose handlers record what really happened, on their own connections and apart from pgsched's writes.

`install` creates its two tables: the ledger, and the gates. A test opens a gate to let a waiting handler go on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from uuid import UUID

import psycopg

from pgsched import App, Run

TABLES = """
CREATE UNLOGGED TABLE public.ledger (
    run_id bigint, token uuid, event text, at timestamptz NOT NULL DEFAULT clock_timestamp(), pid int
);
CREATE TABLE public.gates (name text PRIMARY KEY);
"""
WRITE = "INSERT INTO public.ledger (run_id, token, event, pid) VALUES (%s, %s, %s, %s)"
ASSERT = "SELECT pgsched.assert_claim(%s, %s)"
LOOK_S = 0.05

app = App("ledger")
mine = threading.local()


def install(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLES)


def connection() -> psycopg.Connection:
    """Return this thread's connection: a new one if the server closed the last one."""
    conn: psycopg.Connection | None = getattr(mine, "conn", None)
    if conn is None or conn.closed:
        conn = mine.conn = psycopg.connect(os.environ.get("LEDGER_DSN") or os.environ["PGSCHED_DSN"], autocommit=True)
    return conn


def write(run_id: int, token: UUID, event: str) -> None:
    connection().execute(WRITE, [run_id, token, event, os.getpid()])


def is_open(gate: str) -> bool:
    return connection().execute("SELECT FROM public.gates WHERE name = %s", [gate]).rowcount > 0


@app.task(name="note")
def note(run: Run) -> None:
    """Record the event `end`, and end at once."""
    write(run.id, run.token, "end")


@app.task(name="hold")
def hold(run: Run, gate: str) -> None:
    """Run until the gate opens or the attempt must stop; the last write counts only if the claim still holds."""
    write(run.id, run.token, "start")
    while not is_open(gate):
        if run.cancelled.wait(LOOK_S):
            write(run.id, run.token, "stopped")
            return
    try:
        with connection().transaction():
            connection().execute(WRITE, [run.id, run.token, "end", os.getpid()])
            connection().execute(ASSERT, [run.id, run.token])
    except psycopg.errors.ObjectNotInPrerequisiteState:
        write(run.id, run.token, "refused")


@app.task(name="fail")
def fail(run: Run, mended_by: str) -> None:
    """Fail until the gate `mended_by` is open."""
    write(run.id, run.token, "start")
    if not is_open(mended_by):
        raise ValueError("no luck")


@app.task(name="spend")
async def spend(run: Run, seconds: float, failures: int = 0) -> None:
    """Take `seconds`, and fail in the first `failures` attempts."""
    await asyncio.sleep(seconds)
    if run.attempt <= failures:
        raise ValueError("not yet")


kept: list[bytearray] = []


@app.task(name="grow")
def grow(mb: str) -> None:
    """Allocate `mb` megabytes, and never free them."""
    kept.append(bytearray(b"x") * (int(mb) << 20))
