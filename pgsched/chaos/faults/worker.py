"""Faults of worker processes: killed, frozen, or killed by the handler that they run."""

from __future__ import annotations

import time

from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.stage import SLACK_S, Stage

STARTED = "SELECT extract(epoch FROM started_at)::float8 FROM pgsched.runs WHERE id = %s"
ELECTED = "SELECT extract(epoch FROM elected_at)::float8 FROM pgsched.leader ORDER BY term DESC LIMIT 1"
WROTE = "SELECT count(*) FROM chaos.ledger WHERE run_id = %s AND pid = %s AND event = ANY (%s)"
REASON = "SELECT reason FROM pgsched.runs WHERE id = %s"


def await_owner(stage: Stage, run: int, event: str = "start") -> Member:
    """Wait for this event of the run in the ledger, and return the worker that wrote it."""
    stage.wait(lambda: stage.events(run, event), 15, f"the {event} of run {run}")
    member = stage.fleet.by_pid(stage.events(run, event)[-1])
    assert member is not None
    return member


def await_second_start(stage: Stage, run: int, since: float, *, victim_led: bool) -> None:
    """Wait for the second start of the run, and record after how many seconds it was claimed again.

    If the victim led, the time counts from the election of the new leader, which reaps nothing for a lease.
    """
    stage.wait(lambda: len(stage.events(run)) > 1, 40, "the second start")
    began = since if not victim_led else max(since, float(stage.one(ELECTED)))
    stage.figure("claimed again after", stage.one(STARTED, run) - began, bound=stage.lease_s + stage.reap_s + SLACK_S)


@fault("worker-killed", tier="full")
def worker_killed(stage: Stage) -> None:
    """Kill a worker in the middle of a run: another worker claims the run within lease + reap period."""
    run = stage.enqueue("hold", gate="go")
    victim = await_owner(stage, run)
    led, since = stage.leader() is victim, stage.clock()
    victim.kill()
    await_second_start(stage, run, since, victim_led=led)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the run to succeed")


@fault("worker-killed-after-work", tier="quick")
def worker_killed_after_work(stage: Stage) -> None:
    """Kill a worker when the work is done and not settled: it is done again, and settled once."""
    run = stage.enqueue("linger", gate="go")
    victim = await_owner(stage, run, "end")
    led, since = stage.leader() is victim, stage.clock()
    victim.kill()
    await_second_start(stage, run, since, victim_led=led)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the run to succeed")


def freeze_past_lease(stage: Stage, run: int) -> Member:
    """Freeze the worker that runs it until another one has started the run; return the frozen worker."""
    victim = await_owner(stage, run)
    led, since = stage.leader() is victim, stage.clock()
    victim.freeze()
    if led:
        stage.leader(other_than=victim)
    await_second_start(stage, run, since, victim_led=led)
    return victim


def thaw_and_await_loss(stage: Stage, run: int, victim: Member) -> None:
    """Thaw the worker, and wait until its handler learns that the claim is lost."""
    victim.thaw()
    ends = ["refused", "stopped"]
    stage.wait(lambda: stage.one(WROTE, run, victim.pid, ends), 15, "the former owner's handler to be turned away")
    stage.wait(lambda: victim.logged("claim lost"), 15, "the former owner to say that its claim was lost")


@fault("worker-frozen-successor-done", tier="quick")
def worker_frozen_successor_done(stage: Stage) -> None:
    """Freeze a worker past its lease, thaw it when another has finished the run: it is turned away."""
    run = stage.enqueue("hold", gate="go")
    victim = freeze_past_lease(stage, run)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the successor to finish")
    thaw_and_await_loss(stage, run, victim)


@fault("worker-frozen-successor-running", tier="full")
def worker_frozen_successor_running(stage: Stage) -> None:
    """Freeze a worker past its lease, thaw it while another runs the run: the run goes on there."""
    run = stage.enqueue("hold", gate="go")
    victim = freeze_past_lease(stage, run)
    thaw_and_await_loss(stage, run, victim)
    assert stage.state(run) == "running", "the successor still runs it"
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the successor to finish")


@fault("worker-frozen-briefly", tier="full")
def worker_frozen_briefly(stage: Stage) -> None:
    """Freeze a worker for less than its lease, three times: it keeps its run."""
    run = stage.enqueue("hold", gate="go")
    victim = await_owner(stage, run)
    for _ in range(3):
        began = time.monotonic()
        victim.freeze()
        time.sleep(stage.lease_s * 0.4)  # how long the worker is frozen is part of the fault
        victim.thaw()
        stage.figure("frozen for", time.monotonic() - began, bound=stage.lease_s / 2)
        time.sleep(stage.lease_s * 0.6)  # time for at least one heartbeat
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 15, "the run to succeed")
    stage.figure("starts of the run", len(stage.events(run)), bound=1)


@fault("poison", tier="full", lease_s=1.5)
def poison(stage: Stage) -> None:
    """Have a handler kill each worker that runs it: the run is dead after at most six starts; other runs go on.

    Five crashes count. One more start may be unseen: no heartbeat had said that the handler had begun.
    """
    run = stage.enqueue("poison", max_attempts=20)

    def buried() -> bool:
        while len(stage.workers) < 2:
            stage.start_worker()
        return stage.state(run) == "dead"

    stage.wait(buried, 120, "the run to be quarantined")
    stage.figure("workers that it took down", len(stage.events(run)), bound=6)
    reason = str(stage.one(REASON, run))
    assert reason.startswith("quarantined"), reason
    stage.note(reason)
