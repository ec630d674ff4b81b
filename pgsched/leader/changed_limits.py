"""Put limits that were changed in force: take back admitted runs that are beyond them.

The order matters: read the changes, then the writing transactions, then the counts. A transaction that writes later
sees the changes. Runs of earlier transactions are counted once these have ended. Until then a queue with its first
limit stays shut, but at most WRITERS_TIMEOUT_S. Then the limit is in force for all runs enqueued from then on.
"""

from __future__ import annotations

import time
from typing import Any

from pgsched import log
from pgsched.core.admission import UNLIMITED, Gate, default_burst
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import limits
from pgsched.leader.admission import AdmissionState, WriterWait, build_queue_gate, count_excess, take_back_surplus

logger = log.get("leader")
WRITERS_TIMEOUT_S = 5.0  # longest wait for transactions that may not have seen a queue's first limit


def apply_changed_limits(conn: Connection[Any], admission_state: AdmissionState) -> int:
    """Take back admitted runs that are beyond changed limits; return how many wait again."""
    changes = limits.list_unapplied(conn)
    wait_for_writers(conn, admission_state, [change for change in changes if change.queue is not None])
    queues = limits.read_queues(conn)
    names = [change.queue for change in changes if change.queue is not None]
    gates = {name: build_queue_gate(queues[name], admission_state, queues[name]["now"], shrink=True) for name in names}
    keys = {}
    for row in limits.open_keys(conn):
        gate = keys[row["key"]] = Gate(unstarted=row["unstarted"])
        gate.room = UNLIMITED if row["concurrency"] is None else row["concurrency"] - row["admitted"]
        gate.burst = UNLIMITED if row["rate"] is None else row["burst"] or default_burst(row["rate"])
    taken = take_back_surplus(conn, gates, keys)
    # a count that was cut short does not prove that the limit holds
    calm = {name for name, gate in gates.items() if count_excess(gate) <= 0 and queues[name]["counted"]}
    calm_keys = all(count_excess(gate) <= 0 for gate in keys.values())
    now = time.monotonic()
    opened = [c for c in changes if c.queue in calm and admission_state.waits[c].is_over(now)]
    limits.mark_applied(conn, opened + [c for c in changes if c.queue is None and calm_keys])
    for change in opened:
        if pids := sorted(admission_state.waits[change].writers.values()):
            logger.warning("a limit is in force although a transaction may not have seen it", queue=change.queue,
                           pids=pids)  # fmt: skip
    return taken


def wait_for_writers(conn: Connection[Any], admission_state: AdmissionState, changes: list[limits.Changed]) -> None:
    """Note which transactions each change waits for, and show one of them in `pgsched.pauses`."""
    writers, now = limits.list_writers(conn), time.monotonic()
    known = {
        change: admission_state.waits.get(change, WriterWait(writers, now + WRITERS_TIMEOUT_S)) for change in changes
    }
    shut = {}
    for change, wait in known.items():
        wait.writers = {one: pid for one, pid in wait.writers.items() if one in writers}
        first = min(wait.writers.values(), default=None)
        if change.queue is not None and first is not None and wait.shown_pid != first:
            shut[change.queue] = wait.shown_pid = first
    limits.record_waits_for(conn, shut)
    admission_state.waits = known
