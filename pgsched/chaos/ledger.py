"""The app whose handlers write down what really happened, on connections of their own and outside of pgsched's writes.

The rule: `end` is written in one transaction with `assert_claim`, so it is there exactly if the claim was still good.
A worker is started with `--app pgsched.chaos.ledger:app`; the ledger's database is PGSCHED_CHAOS_LEDGER (the proxies
that faults use do not lie on the way there), and PGSCHED_CHAOS_RUNS leads to the runs as directly; both are PGSCHED_DSN
where they are missing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import psycopg

from pgsched import App, Run
from pgsched.db.connection.connect import connect
from pgsched.errors import DatabaseReadOnly, DatabaseUnreachable

TABLES = Path(__file__).with_name("tables.sql")
WRITE = "INSERT INTO chaos.ledger (run_id, token, event, pid) VALUES (%s, %s, %s, %s)"
IS_OPEN = "SELECT FROM chaos.gates WHERE name = %s"
ASSERT = "SELECT pgsched.assert_claim(%s, %s)"
LOOK_S = 0.05
PATIENCE_S = 30.0
# a transaction with assert_claim holds the run's row: from a host that is gone, no longer than this
SETTINGS = {"idle_in_transaction_session_timeout": "2s"}
AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)

app = App("chaos")
mine = threading.local()


def install(dsn: str) -> None:
    """Make the ledger's tables and the journal's triggers in a database with the pgsched schema."""
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLES.read_bytes())


def connection(name: str = "PGSCHED_CHAOS_LEDGER") -> psycopg.Connection:
    """This thread's connection to where that leads; a new one after the server went away."""
    dsn = os.environ.get(name) or os.environ["PGSCHED_DSN"]
    connections: dict[str, psycopg.Connection] = mine.__dict__.setdefault("connections", {})
    conn = connections.get(dsn)
    if conn is None or conn.closed:
        try:  # as the product does it: where a DSN names several servers, it knows which of them is an old primary
            conn = connections[dsn] = connect(dsn, purpose="ledger", settings=SETTINGS)
        except (DatabaseUnreachable, DatabaseReadOnly) as error:
            raise psycopg.OperationalError(str(error)) from error
    return conn


def patiently(run: Run, work: Callable[[], None]) -> None:
    """Repeat what the server's absence made fail, until the claim is lost or the patience is at its end."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except AWAY:
            if time.monotonic() > deadline or run.cancelled.wait(LOOK_S * 4):
                raise


def write(run_id: int, token: UUID, event: str) -> None:
    connection().execute(WRITE, [run_id, token, event, os.getpid()])


def note(run: Run, event: str) -> None:
    """Write an event whatever has become of the claim."""
    patiently(run, lambda: write(run.id, run.token, event))


def finish(run: Run) -> None:
    """Write the end under the claim; `refused` if another owns the run by now."""

    def guarded() -> None:
        # where the ledger is apart from the runs, these are two transactions, the claim's around the other
        runs = connection("PGSCHED_CHAOS_RUNS")
        with runs.transaction():
            runs.execute(ASSERT, [run.id, run.token])
            write(run.id, run.token, "end")

    try:
        patiently(run, guarded)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        note(run, "refused")


def is_open(gate: str) -> bool:
    return connection().execute(IS_OPEN, [gate]).rowcount > 0


def wait_for_gate(run: Run, gate: str) -> bool:
    """Go on until the gate opens; False when the run was told to stop."""
    while True:
        try:
            if is_open(gate):
                return True
        except AWAY:
            pass  # the server is away: that opens no gate
        if run.cancelled.wait(LOOK_S):
            return False


@app.task(name="brief")
def brief(run: Run, seconds: float = 0.0) -> None:
    """Takes so long."""
    note(run, "start")
    if seconds and run.cancelled.wait(seconds):
        return note(run, "stopped")
    return finish(run)


@app.task(name="hold")
def hold(run: Run, gate: str, result_kb: int = 0) -> str | None:
    """Goes on until its gate opens or it is told to stop. Its result is random text of that size."""
    note(run, "start")
    if not wait_for_gate(run, gate):
        note(run, "stopped")
        return None
    finish(run)
    return os.urandom(result_kb * 512).hex() or None


@app.task(name="linger")
def linger(run: Run, gate: str) -> None:
    """Has done its work, and returns when its gate opens: until then it is not settled."""
    note(run, "start")
    finish(run)
    wait_for_gate(run, gate)


@app.task(name="fail")
def fail(run: Run, mended_by: str) -> None:
    """Fails until a gate is open."""
    note(run, "start")
    if not is_open(mended_by):
        raise ValueError("no luck")
    finish(run)


@app.task(name="poison")
def poison(run: Run) -> None:
    """Takes its worker down."""
    note(run, "start")
    os.kill(os.getpid(), signal.SIGKILL)
