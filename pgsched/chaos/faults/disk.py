"""Faults of the server's disk: it is full, for data or for WAL, and gets room again."""

from __future__ import annotations

import contextlib
import time

import psycopg

from pgsched.chaos.faults.server import under_load
from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.stage import Stage

FULL_S = 12.0
MOST = 300
# A settlement with a result of this size needs new pages; a small one may fit into existing pages.
RESULT_KB = 50
WAL = "SELECT pg_logical_emit_message(true, 'chaos', repeat('x', 1000000))"
PAGES = "INSERT INTO chaos.journal (what, op, id) VALUES ('room', 'insert', 0)"  # the journal: settlements go there too
UNHEALTHY = ("No space left", "could not extend", "could not write", "cannot reach", "connection lost", "again")
STARTED = "SELECT count(*) FROM chaos.ledger WHERE run_id = ANY (%s) AND event = 'start'"
OPEN = "SELECT count(*) FROM pgsched.runs WHERE id = ANY (%s) AND phase < 3"
WRITTEN = "SELECT extract(epoch FROM max(finished_at))::float8 FROM pgsched.runs WHERE id = ANY (%s)"
AGAIN = "SELECT count(*) FROM pgsched.runs WHERE id = ANY (%s) AND attempt > 1"


def fill_and_free_disk(stage: Stage, leave_kb: int) -> None:
    """Fill the disk under load, let every worker finish runs that cannot be settled, then make room.

    `leave_kb`: how much room is left, in KB.
    """
    under_load(stage)
    most = stage.options.workers * stage.options.concurrency
    run_ids = [stage.enqueue("hold", gate="full", result_kb=RESULT_KB) for _ in range(most)]
    stage.wait(lambda: stage.ledger.execute(STARTED, [run_ids]).fetchone() == (most,), 30, "every slot to hold a run")
    logged = {worker.pid: worker.log.stat().st_size for worker in stage.workers}
    with stage.outage("the disk was full"):
        stage.server.fill_disk(leave_kb)
        try:
            stage.ledger.execute("INSERT INTO chaos.gates VALUES ('full')")
            exhaust_space(stage, WAL if leave_kb else PAGES)
            stage.wait(
                lambda: all(has_logged_problem(worker, logged[worker.pid]) for worker in stage.workers),
                20,
                "complaints",
            )
            time.sleep(FULL_S)  # how long the disk stays full is part of the fault
        finally:
            stage.server.make_room()
        lines = sum(worker.log.read_bytes()[logged[worker.pid] :].count(b"\n") for worker in stage.workers)
        stage.figure("lines logged by each worker a second while it was full", lines / len(logged) / FULL_S, bound=5)
        if not stage.server.running:
            stage.note("the server had ended itself")
            stage.server.start()
    since = stage.clock()
    stage.wait(lambda: stage.one(OPEN, run_ids) == 0, 30, "what was held to be settled")
    stage.figure("all held outcomes written after", max(0.0, stage.one(WRITTEN, run_ids) - since), bound=15)
    stage.figure("held runs that ran again", stage.one(AGAIN, run_ids), bound=0)
    assert len(stage.workers) == stage.options.workers, "no worker has ended"


def exhaust_space(stage: Stage, what: str) -> None:
    """Repeat a statement until there is no room for it."""
    with (
        contextlib.suppress(psycopg.Error),
        psycopg.connect(stage.dsn, autocommit=True, application_name="chaos stage") as db,
    ):
        for _ in range(MOST):
            db.execute(what.encode())


def has_logged_problem(worker: Member, since: int) -> bool:
    """Check whether the worker has logged a problem after the first `since` bytes of its log."""
    log_text = worker.log.read_bytes()[since:].decode(errors="replace")
    return any(word in log_text for word in UNHEALTHY)


@fault("disk-full", tier="full", needs=("tmpfs",), server="tmpfs", separate_ledger=True, lease_s=None)
def disk_full(stage: Stage) -> None:
    """Fill the server's disk: workers log it, ask seldom, keep their outcomes, and go on when there is room."""
    fill_and_free_disk(stage, 0)


@fault("disk-full-for-wal", tier="full", needs=("tmpfs",), server="tmpfs", separate_ledger=True, lease_s=None)
def disk_full_for_wal(stage: Stage) -> None:
    """Leave less room than the next WAL segment needs: the server may end; all go on when it is back."""
    fill_and_free_disk(stage, 8 * 1024)
