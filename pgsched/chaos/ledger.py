"""The chaos app: its handlers record what they do in the ledger, on connections of their own.

Invariant: `end` is written in one transaction with `assert_claim`. So `end` is there exactly if the claim still held.

Start a worker with `--app pgsched.chaos.ledger:app`. Two variables name databases, and default to PGSCHED_DSN:

- PGSCHED_CHAOS_LEDGER: the ledger's database, reached without the proxies that faults use
- PGSCHED_CHAOS_RUNS: the database of the runs, also reached without proxies
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
# A transaction with assert_claim locks the run's row. The server ends it after this time if its host is gone.
SETTINGS = {"idle_in_transaction_session_timeout": "2s"}
CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)

app = App("chaos")
mine = threading.local()


def install(dsn: str) -> None:
    """Create the ledger's tables and the journal's triggers in a database with the pgsched schema."""
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLES.read_bytes())


def connection(name: str = "PGSCHED_CHAOS_LEDGER") -> psycopg.Connection:
    """Return this thread's connection to the DSN in the variable `name`; reconnect if the connection was closed.

    Raises psycopg.OperationalError if the server cannot be reached or is read-only.
    """
    dsn = os.environ.get(name) or os.environ["PGSCHED_DSN"]
    connections: dict[str, psycopg.Connection] = mine.__dict__.setdefault("connections", {})
    conn = connections.get(dsn)
    if conn is None or conn.closed:
        try:  # The product's own connect: where a DSN names several servers, it recognizes an old primary.
            conn = connections[dsn] = connect(dsn, purpose="ledger", settings=SETTINGS)
        except (DatabaseUnreachable, DatabaseReadOnly) as error:
            raise psycopg.OperationalError(str(error)) from error
    return conn


def retry_while_away(run: Run, work: Callable[[], None]) -> None:
    """Do `work`, and repeat it while the server is away.

    Raises the last error once the run is asked to stop, or after 30 s.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except CONNECTION_ERRORS:
            if time.monotonic() > deadline or run.cancelled.wait(LOOK_S * 4):
                raise


def write_event(run_id: int, token: UUID, event: str) -> None:
    """Insert an event of this run into the ledger."""
    connection().execute(WRITE, [run_id, token, event, os.getpid()])


def note(run: Run, event: str) -> None:
    """Write an event, whether or not the claim still holds."""
    retry_while_away(run, lambda: write_event(run.id, run.token, event))


def finish(run: Run) -> None:
    """Write `end` under the claim, or `refused` if another worker owns the run by now."""

    def guarded() -> None:
        # On two servers these are two transactions: the one with assert_claim encloses the ledger's.
        runs = connection("PGSCHED_CHAOS_RUNS")
        with runs.transaction():
            runs.execute(ASSERT, [run.id, run.token])
            write_event(run.id, run.token, "end")

    try:
        retry_while_away(run, guarded)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        note(run, "refused")


def is_open(gate: str) -> bool:
    """Check whether a gate is open."""
    return connection().execute(IS_OPEN, [gate]).rowcount > 0


def wait_for_gate(run: Run, gate: str) -> bool:
    """Wait until the gate opens; return False if the run is asked to stop first."""
    while True:
        try:
            if is_open(gate):
                return True
        except CONNECTION_ERRORS:
            pass  # the server is away: the gate counts as closed
        if run.cancelled.wait(LOOK_S):
            return False


@app.task(name="brief")
def brief(run: Run, seconds: float = 0.0) -> None:
    """Run for this many seconds."""
    note(run, "start")
    if seconds and run.cancelled.wait(seconds):
        return note(run, "stopped")
    return finish(run)


@app.task(name="hold")
def hold(run: Run, gate: str, result_kb: int = 0) -> str | None:
    """Run until the gate opens or the run is asked to stop; return random text of `result_kb` KB."""
    note(run, "start")
    if not wait_for_gate(run, gate):
        note(run, "stopped")
        return None
    finish(run)
    return os.urandom(result_kb * 512).hex() or None


@app.task(name="linger")
def linger(run: Run, gate: str) -> None:
    """Finish the work, then return only when the gate opens: until then the run is not settled."""
    note(run, "start")
    finish(run)
    wait_for_gate(run, gate)


@app.task(name="fail")
def fail(run: Run, mended_by: str) -> None:
    """Raise ValueError while the gate `mended_by` is closed."""
    note(run, "start")
    if not is_open(mended_by):
        raise ValueError("no luck")
    finish(run)


@app.task(name="poison")
def poison(run: Run) -> None:
    """Kill the worker that runs this."""
    note(run, "start")
    os.kill(os.getpid(), signal.SIGKILL)
