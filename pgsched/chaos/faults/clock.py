"""Faults of clocks: the database's clock goes back and ahead, or a worker's clock is hours or days off."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from pgsched.chaos.faults.server import under_load
from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.site.clocks import Clock
from pgsched.chaos.stage import Stage
from pgsched.leader.timing.clock_step import DOUBT_S

HOUR = 3600
CRASHED = "SELECT count(*) FROM pgsched.attempts WHERE outcome = 'crashed' OR error LIKE 'worker lost:%%'"
SLOTS = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL"
INSERTED = "SELECT count(*) FROM chaos.journal WHERE what = 'run' AND op = 'insert' AND job_id IS NOT NULL"
PRUNED = "SELECT count(*) FROM chaos.journal WHERE what = 'run' AND op = 'delete' AND job_id IS NOT NULL"
LAST = "SELECT coalesce(max(seq), 0) FROM chaos.ledger"
RUN_SINCE = "SELECT count(DISTINCT run_id) FROM chaos.ledger WHERE seq > %s AND event = 'end' AND pid = ANY (%s)"
EXPIRED = (
    "SELECT count(*) FROM pgsched.runs WHERE state = 'running' AND lease_until > clock_timestamp() + interval '1 min'"
)
# The numbers of transactions: the first one that is not given yet, and whether all before a number have ended.
NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
ALL_ENDED = "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %s::xid8"


def move(stage: Stage, to_s: int) -> None:
    """Set the database's clock to this many seconds ahead of the host, and wait until open transactions have ended.

    Such a transaction may have read the clock before.
    """
    before, since = stage.clock(), time.monotonic()
    stage.server.clock.set(to_s)
    stage.wait(lambda: abs(stage.clock() - before - (time.monotonic() - since)) > HOUR / 2, 15, "the clock to move")
    newest = stage.one(NEWEST)
    stage.wait(lambda: stage.one(ALL_ENDED, newest), 30, "the end of transactions that were open when the clock moved")


@fault("database-clock", tier="full", needs=("clock",), server="clock", workers=0, rate=10, drain_s=120, lease_s=10.0)
def database_clock(stage: Stage) -> None:
    """Move the database's clock 1 h back, then 2 h ahead: no slot is lost or made twice, no claim is taken away."""
    steady = stage.start_worker(app="pgsched.chaos.steady:app")
    assert stage.leader() is steady
    for _ in range(2):
        stage.start_worker()
    under_load(stage, 20)
    waiting_runs = [stage.enqueue("hold", gate="go") for _ in range(6)]
    stage.wait(lambda: all(stage.events(run) for run in waiting_runs), 15, "runs that are held")
    time.sleep(stage.lease_s)  # a leader reaps nothing for a lease after its election, or after the clock has moved
    move(stage, -HOUR)
    newest = stage.one(LAST)
    stage.wait(
        lambda: stage.one(RUN_SINCE, newest, pids(stage)) > 20, 30, "work in the hour that is lived through again"
    )
    stage.wait(lambda: stage.one(EXPIRED) == 0, 15, "leases that end in time")
    slots = stage.one(SLOTS)
    time.sleep(stage.lease_s)  # time for a slot that must not be made
    stage.figure("slots made in the hour that is lived through again", stage.one(SLOTS) - slots, bound=0)
    move(stage, HOUR)
    stage.wait(lambda: stage.one(SLOTS) > slots, DOUBT_S + 20, "slots after the clock went ahead")
    time.sleep(4)  # time for a claim that must not be taken: the leader reaps twice a second
    assert stage.leader() is steady, "a new leader would have taken nothing back anyway"
    stage.figure("claims lost by healthy workers", stage.one(CRASHED), bound=0)
    assert all(len(stage.events(run)) == 1 for run in waiting_runs)
    stage.open_gate("go")
    stage.wait(lambda: all(stage.state(run) == "succeeded" for run in waiting_runs), 15, "the held runs to succeed")


@fault("worker-killed-then-clock-back", tier="full", needs=("clock",), server="clock", drain_s=120)
def killed_then_back(stage: Stage) -> None:
    """Kill a worker, then move the database's clock 1 h back: the claim ends after a lease, not after an hour."""
    leader, victim = stage.leader(), None
    while victim is None or victim is leader:  # a new leader would not know that the clock has moved
        run = stage.enqueue("hold", gate="go")
        stage.wait(lambda: stage.events(run), 15, "the start")  # noqa: B023
        victim = stage.fleet.by_pid(stage.events(run)[0])
    victim.kill()
    killed = time.monotonic()
    move(stage, -HOUR)
    stage.wait(lambda: len(stage.events(run)) > 1, 60, "the second start")
    stage.figure("claimed again after", time.monotonic() - killed, bound=2 * stage.lease_s + stage.reap_s + 4)
    stage.open_gate("go")
    slots = stage.one(INSERTED)
    move(stage, 0)
    stage.wait(lambda: stage.one(INSERTED) > slots, DOUBT_S + 30, "slots after the clock is right again")


@fault("pruned-then-clock-back", tier="full", needs=("clock",), server="clock", rate=10, drain_s=120)
def pruned_then_back(stage: Stage) -> None:
    """Prune ended runs, then move the clock back before them: no slot is made again, none is lost."""
    run_command(stage, "retention", "set", "--keep", "1s")

    def pruned() -> bool:
        run_command(stage, "prune")
        return bool(stage.one(PRUNED) >= 30)

    stage.wait(pruned, 90, "slots to be pruned")  # runs are pruned once they are counted, every 10 s
    move(stage, -HOUR)
    slots = stage.one(INSERTED)
    time.sleep(2 * stage.lease_s)  # time for a slot that must not be made
    after_wait = stage.one(INSERTED)
    stage.figure("slots made in the hour that is lived through again", after_wait - slots, bound=0)
    move(stage, 0)
    stage.wait(lambda: stage.one(INSERTED) > after_wait, DOUBT_S + 30, "slots after the clock is right again")
    stage.figure("slots pruned", stage.one(PRUNED))


def run_command(stage: Stage, *command: str) -> None:
    """Run a pgsched command as an operator does, and assert that it succeeds."""
    environment = {**os.environ, "PGSCHED_DSN": stage.dsn}
    done = subprocess.run([sys.executable, "-m", "pgsched", *command], check=False, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr


@fault("worker-clock", tier="quick", needs=("clock",))
def worker_clock(stage: Stage) -> None:
    """Set a worker's clock 1 h ahead, then 2 days behind: it works and leads like the others."""
    clock = Clock(stage.fleet.folder / "worker.clock")
    wrong = stage.start_worker(env=clock.environment)
    for off in (HOUR, -2 * 24 * HOUR):
        clock.set(off)
        await_work_of(stage, wrong)
    for member in stage.workers:
        if member is not wrong:
            member.kill()  # the worker with the wrong clock is left to lead
    stage.leader()
    slots = stage.one(SLOTS)
    stage.wait(lambda: stage.one(SLOTS) > slots + 10, 20, "slots from a leader whose clock is wrong")
    await_work_of(stage, wrong)


def await_work_of(stage: Stage, member: Member) -> None:
    """Wait until this worker has ended more than ten runs."""
    (newest,) = stage.ledger.execute(LAST).fetchone() or (0,)
    asked = [newest, [member.pid]]
    stage.wait(
        lambda: (stage.ledger.execute(RUN_SINCE, asked).fetchone() or [0])[0] > 10, 30, "a worker to do its share"
    )


def pids(stage: Stage) -> list[int]:
    """Return the process ids of the living workers."""
    return [member.pid for member in stage.workers]
