"""Faults of the database server: it crashes or is restarted, and comes back."""

from __future__ import annotations

import time

from pgsched.chaos.registry import fault
from pgsched.chaos.stage import Stage
from pgsched.db.embedded.cluster import StopMode

FINISHED = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"
FIRST_CLAIM = """SELECT extract(epoch FROM min(at))::float8 - %s FROM chaos.journal
WHERE what = 'run' AND op = 'update' AND state = 'running' AND extract(epoch FROM at) > %s"""
FIRST_SLOT = """SELECT extract(epoch FROM min(at))::float8 - %s FROM chaos.journal
WHERE what = 'run' AND op = 'insert' AND job_id IS NOT NULL AND extract(epoch FROM at) > %s"""


def under_load(stage: Stage, runs: int = 60) -> None:
    """Wait until this many more runs have succeeded, so that all workers are busy."""
    base = stage.one(FINISHED)
    stage.wait(lambda: stage.one(FINISHED) >= base + runs, 30, "the load")


def stop_and_start(stage: Stage, mode: StopMode, times: int) -> None:
    """Stop the server under load and start it again, `times` times."""
    stage.leader()
    for _ in range(times):
        under_load(stage)
        with stage.outage(f"the server was stopped ({mode})"):
            stage.server.stop(mode)
            stage.wait(
                lambda: all(w.logged("connection lost") or w.logged("again") for w in stage.workers), 20, "notice"
            )
            began = time.time()  # the server is on this host
            stage.server.start()
            ready = time.time()
        stage.figure("the server's own recovery", ready - began)
        claim = stage.wait(lambda: stage.one(FIRST_CLAIM, ready, ready), 30, "the first claim")  # noqa: B023
        stage.figure("first claim after the server was ready", claim, bound=7)
        slot = stage.wait(lambda: stage.one(FIRST_SLOT, ready, ready), 30, "the first slot")  # noqa: B023
        stage.figure("first slot after the server was ready", slot, bound=9)


@fault("server-crash", tier="quick", server="plain")
def crash(stage: Stage) -> None:
    """Stop the server with pg_ctl -m immediate under load, and start it: no acknowledged run is lost."""
    stop_and_start(stage, "immediate", 1)


@fault("server-restart", tier="full", server="plain")
def restart_twice(stage: Stage) -> None:
    """Stop the server with pg_ctl -m fast under load, and start it, twice: no acknowledged run is lost."""
    stop_and_start(stage, "fast", 2)
