"""Check what producers were promised: each run ends, runs its handler if it succeeded, and exists once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pgsched.chaos.checks.owners import changes_by_run
from pgsched.chaos.history import History
from pgsched.core.lifecycle import ENDED_STATES


def acknowledged(history: History) -> Iterator[str]:
    """Check that every run whose enqueue was answered exists and has ended."""
    states = {run.id: run.state for run in history.runs}
    for run_id, changes in changes_by_run(history).items():
        if run_id not in states and changes[-1].op == "delete":
            states[run_id] = changes[-1].state  # a deleted run counts with its last state: ended runs are pruned
    lost = set(history.settings.get("lost_keys", ()))  # lost with a server before it replicated them
    for ack in (ack for ack in history.acknowledged if ack.key not in lost):
        state = states.get(ack.run_id)
        if state is None:
            yield f"enqueue {ack.key}: run {ack.run_id} was acknowledged and is not there"
        elif state not in ENDED_STATES:
            yield f"enqueue {ack.key}: run {ack.run_id} is {state} in the end"


def all_ended(history: History) -> Iterator[str]:
    """Check that no run is open at the end."""
    for run in history.runs:
        if run.state not in ENDED_STATES:
            yield f"run {run.id} ({run.task}) is {run.state} in the end"


def enqueued_once(history: History) -> Iterator[str]:
    """Check that each enqueue made one run, however often it was sent."""
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


def check_succeeded_runs_ran(history: History) -> Iterator[str]:
    """Check that each succeeded run has a start and an end in the ledger, by the token that settled it."""
    events = {(event.run_id, event.token, event.event) for event in history.ledger}
    for run in history.runs:
        if run.state != "succeeded":
            continue
        for event in ("start", "end"):
            if (run.id, run.token, event) not in events:
                yield f"run {run.id} ({run.task}) succeeded with token {run.token}, whose {event} is not in the ledger"
