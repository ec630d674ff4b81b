"""What a worker process says of its health (telemetry/health.py has the rule). Called from the endpoint's thread."""

from __future__ import annotations

import time

from pgsched.leader.election import Leader
from pgsched.telemetry.health import LOOP_S, Health, starting
from pgsched.worker.worker import Worker

LEADER_S = 30.0


def of_worker(worker: Worker) -> Health:
    """Alive: its loop turns and the database answers its heartbeats. Ready: that, and it takes runs."""
    heartbeat, watchdog = worker.heartbeat, worker.watchdog
    if heartbeat is None or watchdog is None:
        return starting()
    alive, ready = [], []
    if (silent_s := watchdog.silent_s()) > LOOP_S:
        who = watchdog.blocked()
        alive.append(f"the event loop has been blocked for {silent_s:.0f} s by {who[1] if who else 'something'}")
    lease_s = worker.settings.lease_s
    if not heartbeat.is_alive():
        if not worker.stopping:  # then it is the last but one that ends
            alive.append("its heartbeat has ended")
    elif (age_s := time.monotonic() - heartbeat.beaten_at) > lease_s:
        ready.append(f"the database has not answered a heartbeat for {age_s:.0f} s")
    if worker.stopping:
        ready.append("it drains: it takes no more runs")
    return Health(alive, ready)


def of_leader(leader: Leader) -> Health:
    """A process that only leads, or waits to: the database has answered it."""
    if leader.heard_at is None:
        return starting()
    age_s = time.monotonic() - leader.heard_at
    return Health([], [] if age_s <= LEADER_S else [f"the database has not answered for {age_s:.0f} s"])
