"""Faults of worker processes: killed, frozen, poisoned."""

from __future__ import annotations

import time

from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.stage import SLACK_S, Stage

STARTED = "SELECT extract(epoch FROM started_at)::float8 FROM pgsched.runs WHERE id = %s"
ELECTED = "SELECT extract(epoch FROM elected_at)::float8 FROM pgsched.leader ORDER BY term DESC LIMIT 1"
WROTE = "SELECT count(*) FROM chaos.ledger WHERE run_id = %s AND pid = %s AND event = ANY (%s)"
REASON = "SELECT reason FROM pgsched.runs WHERE id = %s"


def owner(stage: Stage, run: int, event: str = "start") -> Member:
    """The process that runs it, once the ledger has this event."""
    stage.wait(lambda: stage.events(run, event), 15, f"the {event} of run {run}")
    member = stage.fleet.by_pid(stage.events(run, event)[-1])
    assert member is not None
    return member


def taken_over(stage: Stage, run: int, since: float, *, victim_led: bool) -> None:
    """Wait for the second start, and record when the run was claimed again. A new leader reaps nothing for a lease."""
    stage.wait(lambda: len(stage.events(run)) > 1, 40, "the second start")
    began = since if not victim_led else max(since, float(stage.one(ELECTED)))
    stage.figure("claimed again after", stage.one(STARTED, run) - began, bound=stage.lease_s + stage.reap_s + SLACK_S)


@fault("worker-killed", tier="full")
def worker_killed(stage: Stage) -> None:
    """A worker is killed in the middle of a run: another one has claimed it within lease + reap period."""
    run = stage.enqueue("hold", gate="go")
    victim = owner(stage, run)
    led, since = stage.leader() is victim, stage.clock()
    victim.kill()
    taken_over(stage, run, since, victim_led=led)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the run to succeed")


@fault("worker-killed-after-work", tier="quick")
def worker_killed_after_work(stage: Stage) -> None:
    """A worker is killed when the work is done and nothing settled: it is done again, and settled once."""
    run = stage.enqueue("linger", gate="go")
    victim = owner(stage, run, "end")
    led, since = stage.leader() is victim, stage.clock()
    victim.kill()
    taken_over(stage, run, since, victim_led=led)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the run to succeed")


def freeze_past_lease(stage: Stage, run: int) -> Member:
    """Freeze who runs it until another one has started it."""
    victim = owner(stage, run)
    led, since = stage.leader() is victim, stage.clock()
    victim.freeze()
    if led:
        stage.leader(other_than=victim)
    taken_over(stage, run, since, victim_led=led)
    return victim


def turned_away(stage: Stage, run: int, victim: Member) -> None:
    """Thaw it: its handler must learn that the run is no longer its own."""
    victim.thaw()
    ends = ["refused", "stopped"]
    stage.wait(lambda: stage.one(WROTE, run, victim.pid, ends), 15, "the former owner's handler to be turned away")
    stage.wait(lambda: victim.logged("claim lost"), 15, "the former owner to say that its claim was lost")


@fault("worker-frozen-successor-done", tier="quick")
def worker_frozen_successor_done(stage: Stage) -> None:
    """A worker is frozen past its lease and thawed when another has finished its run: it is turned away."""
    run = stage.enqueue("hold", gate="go")
    victim = freeze_past_lease(stage, run)
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the successor to finish")
    turned_away(stage, run, victim)


@fault("worker-frozen-successor-running", tier="full")
def worker_frozen_successor_running(stage: Stage) -> None:
    """A worker is frozen past its lease and thawed while another one runs its run: it leaves the other alone."""
    run = stage.enqueue("hold", gate="go")
    victim = freeze_past_lease(stage, run)
    turned_away(stage, run, victim)
    assert stage.state(run) == "running", "the successor still runs it"
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 10, "the successor to finish")


@fault("worker-frozen-briefly", tier="full")
def worker_frozen_briefly(stage: Stage) -> None:
    """A worker is frozen for less than its lease, three times: it keeps its run."""
    run = stage.enqueue("hold", gate="go")
    victim = owner(stage, run)
    for _ in range(3):
        began = time.monotonic()
        victim.freeze()
        time.sleep(stage.lease_s * 0.4)  # how long it is frozen is the fault itself
        victim.thaw()
        stage.figure("frozen for", time.monotonic() - began, bound=stage.lease_s / 2)
        time.sleep(stage.lease_s * 0.6)  # one heartbeat at least
    stage.open_gate("go")
    stage.wait(lambda: stage.state(run) == "succeeded", 15, "the run to succeed")
    stage.figure("starts of the run", len(stage.events(run)), bound=1)


@fault("poison", tier="full", lease_s=1.5)
def poison(stage: Stage) -> None:
    """A handler kills every worker that runs it: after five crashes and one unseen it is dead, and the rest goes on."""
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
