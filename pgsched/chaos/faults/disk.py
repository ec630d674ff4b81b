"""Faults of the server's disk: it is full, for data and for WAL, and gets room again."""

from __future__ import annotations

import time

from pgsched.chaos.faults.server import under_load
from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.stage import Stage

FULL_S = 12.0
UNHEALTHY = ("No space left", "could not extend", "could not write", "cannot reach", "connection lost", "again")
CLAIMS_SINCE = """SELECT extract(epoch FROM min(at))::float8 - %s FROM chaos.journal
WHERE what = 'run' AND op = 'update' AND state = 'running' AND extract(epoch FROM at) > %s"""
LEASES_LOST = "SELECT count(*) FROM pgsched.attempts WHERE outcome = 'crashed'"


def suffer(stage: Stage, leave_kb: int) -> None:
    """Fill the disk under load for a while, make room, start the server if it has fallen over."""
    under_load(stage)
    logged = {worker.pid: worker.log.stat().st_size for worker in stage.workers}
    with stage.outage("the disk was full"):
        stage.server.fill_disk(leave_kb)
        stage.wait(lambda: all(complained(worker, logged[worker.pid]) for worker in stage.workers), 60, "complaints")
        time.sleep(FULL_S)  # how long it stays full is the fault itself
        lines = sum(worker.log.read_bytes()[logged[worker.pid] :].count(b"\n") for worker in stage.workers)
        stage.figure("lines logged by each worker a second while it was full", lines / len(logged) / FULL_S, bound=20)
        stage.server.make_room()
        if not stage.server.running:
            stage.note("the server had ended itself")
            stage.server.start()
    since = stage.clock()
    took = stage.wait(lambda: stage.one(CLAIMS_SINCE, since, since), 30, "a claim after room was made")
    stage.figure("first claim after room was made", took, bound=10)
    assert len(stage.workers) == stage.options.workers, "no worker has ended"


def complained(worker: Member, since: int) -> bool:
    """Has it said that something is wrong?"""
    said = worker.log.read_bytes()[since:].decode(errors="replace")
    return any(word in said for word in UNHEALTHY)


@fault("disk-full", tier="full", needs=("tmpfs",), server="tmpfs", apart=True)
def disk_full(stage: Stage) -> None:
    """The server's disk is full: workers say so, ask seldom, keep what they have, and go on when there is room."""
    suffer(stage, 0)


@fault("disk-full-for-wal", tier="full", needs=("tmpfs",), server="tmpfs", apart=True)
def disk_full_for_wal(stage: Stage) -> None:
    """The server has less room than its next piece of WAL needs: it may end itself; all go on when it is back."""
    suffer(stage, 8 * 1024)
