"""Check that each run has one owner at a time, from the journal of all its changes.

An owner is the worker that holds the token of a claim. The journal's numbers give the order, so clocks do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pgsched.chaos.history import Change, History
from pgsched.core.lifecycle import ENDED_STATES


@dataclass(frozen=True, slots=True)
class Ownership:
    """A token's ownership of a run.

    `claimed`: the change that claimed the run.
    `released`: the change that ended the ownership; None if it had not ended.
    `last`: the last change while the token owned the run; its lease is the last one.
    """

    run_id: int
    token: str
    attempt: int
    claimed: Change
    released: Change | None
    last: Change


def changes_by_run(history: History) -> dict[int, list[Change]]:
    """Group the journal by run; the changes of each run are in order."""
    found: dict[int, list[Change]] = defaultdict(list)
    for change in sorted(history.changes, key=lambda change: change.seq):
        found[change.run_id].append(change)
    return found


def ownerships(changes: list[Change]) -> list[Ownership]:
    """Return the ownerships of one run, oldest first."""
    found: list[Ownership] = []
    ownership: list[Change] = []
    for change in changes:
        running = change.state == "running" and change.op != "delete"
        if ownership and not (running and change.token == ownership[0].token):
            found.append(ownership_of(ownership, change))
            ownership = []
        if running:
            ownership.append(change)
    if ownership:
        found.append(ownership_of(ownership, None))
    return found


def ownership_of(ownership: list[Change], released: Change | None) -> Ownership:
    """Return the ownership that consists of these changes."""
    first = ownership[0]
    return Ownership(first.run_id, first.token or "", first.attempt, first, released, ownership[-1])


def check_one_at_a_time(history: History) -> Iterator[str]:
    """Check that a run changes owners only after the former one was released, and never returns to an old token."""
    for run_id, changes in changes_by_run(history).items():
        seen: set[str] = set()
        for before, change in pairwise([None, *changes]):
            assert change is not None
            same = before is not None and (before.state, before.token) == ("running", change.token)
            if change.state != "running" or same or change.op == "delete":
                continue
            if before is not None and before.state == "running":
                yield f"run {run_id}: claimed with {change.token} while {before.token} owned it"
            if (change.token or "") in seen:
                yield f"run {run_id}: the token {change.token} claimed it twice"
            seen.add(change.token or "")


def check_lease_respected(history: History) -> Iterator[str]:
    """Check that no claim is taken away before its lease has ended."""
    taken = ("crashed", "interrupted")  # crashed: the handler had begun; interrupted: it may not have begun
    lost = {(one.run_id, one.token) for one in history.attempts if one.outcome in taken}
    for run_id, changes in changes_by_run(history).items():
        for one in ownerships(changes):
            end = one.released
            if end is None or end.token is not None or (run_id, one.token) not in lost:
                continue  # the owner settled the run: a settlement keeps the token
            if one.last.lease_until is not None and end.at < one.last.lease_until:
                early = one.last.lease_until - end.at
                yield f"run {run_id}: taken from {one.token} {early:.3f} s before its lease ended"


def check_ended_once(history: History) -> Iterator[str]:
    """Check that a run that has ended does not change its state or token."""
    for run_id, changes in changes_by_run(history).items():
        for before, change in pairwise(changes):
            moved = (change.state, change.token) != (before.state, before.token)
            if before.state in ENDED_STATES and change.op == "update" and moved:
                yield f"run {run_id}: was {before.state}, and became {change.state}"


def check_events_by_owners(history: History) -> Iterator[str]:
    """Check that handlers run with claimed tokens, and write under a claim only while they own the run."""
    owned: dict[int, dict[str, Ownership]] = {
        run_id: {one.token: one for one in ownerships(changes)} for run_id, changes in changes_by_run(history).items()
    }
    lost = set(history.settings.get("lost_tokens", ()))  # claims that were lost with their server
    for event in (event for event in history.ledger if event.token not in lost):
        one = owned.get(event.run_id, {}).get(event.token)
        if one is None:
            yield f"run {event.run_id}: {event.event} by {event.token}, which never owned it"
        elif event.event == "end" and history.settings.get("ledger", "here") == "here":
            late = one.released is not None and event.seq > one.released.seq
            if event.seq < one.claimed.seq or late:
                yield f"run {event.run_id}: {event.token} wrote its end when it was not the owner"


def check_settled_by_last_owner(history: History) -> Iterator[str]:
    """Check that a run succeeded once, and with the token of its last claim."""
    runs = {run.id: run for run in history.runs}
    for run_id, changes in changes_by_run(history).items():
        run, owners = runs.get(run_id), ownerships(changes)
        if run is None or run.state != "succeeded":
            continue
        if not owners or run.token != owners[-1].token:
            last = owners[-1].token if owners else "nobody"
            yield f"run {run_id}: settled by {run.token}, the last owner was {last}"
        times = sum(now.state == "succeeded" != before.state for before, now in pairwise(changes))
        if times != 1:
            yield f"run {run_id}: succeeded {times} times"
