"""Faults of the database server: it crashes, it is restarted, and it comes back."""

from __future__ import annotations

from pgsched.chaos.registry import fault
from pgsched.chaos.stage import Stage
from pgsched.db.cluster import StopMode

AWAY_S = 2.0
FINISHED = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"
FIRST_CLAIM = """SELECT extract(epoch FROM min(at) - pg_postmaster_start_time())::float8 FROM chaos.journal
WHERE what = 'run' AND op = 'update' AND state = 'running' AND at > pg_postmaster_start_time()"""
FIRST_SLOT = """SELECT extract(epoch FROM min(at) - pg_postmaster_start_time())::float8 FROM chaos.journal
WHERE what = 'run' AND op = 'insert' AND job_id IS NOT NULL AND at > pg_postmaster_start_time()"""


def under_load(stage: Stage, runs: int = 60) -> None:
    """Return when so many more runs have been finished: everybody is at it."""
    base = stage.one(FINISHED)
    stage.wait(lambda: stage.one(FINISHED) >= base + runs, 30, "the load")


def restart(stage: Stage, mode: StopMode, times: int) -> None:
    """Stop the server under load and start it again, so often."""
    stage.leader()
    for _ in range(times):
        under_load(stage)
        with stage.outage(f"the server was stopped ({mode})"):
            stage.server.stop(mode)
            stage.wait(lambda: all(w.said("connection lost") or w.said("again") for w in stage.workers), 20, "notice")
            stage.server.start()
        claim = stage.wait(lambda: stage.one(FIRST_CLAIM), 30, "the first claim after the start")
        stage.figure("first claim after the server's start", claim, bound=10)
        slot = stage.wait(lambda: stage.one(FIRST_SLOT), 30, "the first slot after the start")
        stage.figure("first slot after the server's start", slot, bound=12)


@fault("server-crash", tier="quick", server="plain")
def crash(stage: Stage) -> None:
    """pg_ctl stop -m immediate under load, and started again: what was acknowledged is there, all go on."""
    restart(stage, "immediate", 1)


@fault("server-restart", tier="full", server="plain")
def fast(stage: Stage) -> None:
    """pg_ctl stop -m fast under load, and started again, twice: what was acknowledged is there, all go on."""
    restart(stage, "fast", 2)
