"""The health of a worker process or a leader-only process (the rules are in telemetry/liveness.py).

The functions are called in the endpoint's thread.
"""

from __future__ import annotations

import time

from pgsched.leader.election import Leader
from pgsched.telemetry.liveness import LOOP_S, Health, starting_health
from pgsched.worker.worker import Worker

LEADER_S = 30.0


def worker_health(worker: Worker) -> Health:
    """Return a worker's health.

    Alive: its event loop turns, and its heartbeat goes on, answered or not. Ready: the database has answered a
    heartbeat within a lease, and it takes runs.
    """
    heartbeat, watchdog = worker.heartbeat, worker.watchdog
    if heartbeat is None or watchdog is None:
        return starting_health()
    alive, ready = [], []
    if (silent_s := watchdog.silent_s()) > LOOP_S:
        who = watchdog.blocked()
        alive.append(f"the event loop has been blocked for {silent_s:.0f} s by {who[1] if who else 'something'}")
    lease_s = worker.settings.lease_s
    if not heartbeat.is_alive():
        if not worker.stopping:  # during a stop the heartbeat ends shortly before the process
            alive.append("its heartbeat has ended")
    elif (age_s := time.monotonic() - heartbeat.beaten_at) > lease_s:
        ready.append(f"the database has not answered a heartbeat for {age_s:.0f} s")
    if worker.stopping:
        ready.append("it drains: it takes no more runs")
    return Health(alive, ready)


def leader_health(leader: Leader) -> Health:
    """Return the health of a process that only leads or waits to lead; ready: the database has answered it lately."""
    if leader.heard_at is None:
        return starting_health()
    age_s = time.monotonic() - leader.heard_at
    return Health([], [] if age_s <= LEADER_S else [f"the database has not answered for {age_s:.0f} s"])
