"""What was promised to who enqueued: it ends, it ran if it says so, it is there once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pgsched.chaos.checks.owners import of_runs
from pgsched.chaos.history import History
from pgsched.core.lifecycle import ENDED_STATES


def acknowledged(history: History) -> Iterator[str]:
    """Every enqueue that was answered is there and has ended."""
    states = {run.id: run.state for run in history.runs}
    for run_id, changes in of_runs(history).items():
        if run_id not in states and changes[-1].op == "delete":
            states[run_id] = changes[-1].state  # pruned, after it had ended
    lost = set(history.settings.get("lost_keys", ()))  # with a server that had not passed them on
    for ack in (ack for ack in history.acknowledged if ack.key not in lost):
        state = states.get(ack.run_id)
        if state is None:
            yield f"enqueue {ack.key}: run {ack.run_id} was acknowledged and is not there"
        elif state not in ENDED_STATES:
            yield f"enqueue {ack.key}: run {ack.run_id} is {state} in the end"


def all_ended(history: History) -> Iterator[str]:
    """In the end no run is open."""
    for run in history.runs:
        if run.state not in ENDED_STATES:
            yield f"run {run.id} ({run.task}) is {run.state} in the end"


def enqueued_once(history: History) -> Iterator[str]:
    """However often an enqueue was sent, there is one run of it."""
    runs = defaultdict(set)
    for run in history.runs:
        if run.idempotency_key is not None:
            runs[run.idempotency_key].add(run.id)
    lost = set(history.settings.get("lost_keys", ()))
    for ack in (ack for ack in history.acknowledged if ack.key not in lost):
        runs[ack.key].add(ack.run_id)
    for key, ids in runs.items():
        if len(ids) > 1:
            yield f"enqueue {key}: there are {len(ids)} runs of it: {sorted(ids)}"


def ran(history: History) -> Iterator[str]:
    """Nothing succeeded without a start in the ledger, and an end, by the token that settled it."""
    events = {(event.run_id, event.token, event.event) for event in history.ledger}
    for run in history.runs:
        if run.state != "succeeded":
            continue
        for event in ("start", "end"):
            if (run.id, run.token, event) not in events:
                yield f"run {run.id} ({run.task}) succeeded with token {run.token}, whose {event} is not in the ledger"
