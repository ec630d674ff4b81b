"""Faults of worker processes: killed, frozen, poisoned."""

from __future__ import annotations

from pgsched.chaos.registry import fault
from pgsched.chaos.stage import Stage


@fault("worker-killed", tier="quick")
def worker_killed(stage: Stage) -> None:
    """A worker is killed in the middle of a run: another one runs it again within lease + reap period."""
    run = stage.enqueue("hold", gate="go")
    (pid,) = stage.wait(lambda: stage.started_on(run), 10, "the first start")
    victim = stage.fleet.by_pid(pid)
    assert victim is not None
    leads = stage.leader() is victim
    killed_at = stage.clock()
    victim.kill()
    stage.wait(lambda: len(stage.started_on(run)) == 2, 30, "the second start")
    again = stage.one("SELECT extract(epoch FROM started_at)::float8 FROM pgsched.runs WHERE id = %s", run)
    lease, reap = stage.options.lease_s or 30, stage.options.reap_s or 5
    stage.figure("claimed again", again - killed_at, bound=lease + reap + (2.0 if leads else 0) + 1.5)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the run to succeed")
