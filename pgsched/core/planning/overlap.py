"""Apply a job's overlap policy: decide a due slot while earlier runs of its job are not finished.

Pure. Queued, running, retrying and waiting runs are all unfinished. The policies:

- `allow`: start anyway.
- `skip`, the default, as in Kubernetes' Forbid: the slot does not run. With `retry_within`, the oldest such slot waits
  instead, and newer ones are skipped. Where a person has retried all earlier runs, one slot waits too: a retry of an
  old slot must not cost a new one.
- `buffer_one`, `buffer_all`: the slot waits; admission releases waiting slots one at a time.
- `replace`, `terminate`: end the earlier runs; `replace` asks them to stop, `terminate` ends them at once.

These policies are for slots on time. Late slots that all run (catch_up `all`) wait for unfinished runs and for each
other, and end nothing. Only `allow` starts them at once.
"""

from __future__ import annotations

from typing import NamedTuple

# The reason of rows that wait for their turn, and of no others: pgsched.waits_in_turn knows the same text.
IN_TURN = "catch_up: late, and one after the other"
REPLACED = "replaced by the next slot"


class UnfinishedRuns(NamedTuple):
    """The unfinished runs of a job at one moment.

    `open`: how many there are.
    `waiting`: how many of them wait under an overlap policy.
    `newest_id`: id of the newest; None: it has no row yet.
    `in_turn`: how many wait because late slots are caught up one after the other.
    `retried`: how many of them had ended, and were revived.
    """

    open: int
    waiting: int
    newest_id: int | None = None
    in_turn: int = 0
    retried: int = 0


class Verdict(NamedTuple):
    """The first state of a slot's row, and why.

    `reason`: names the unfinished run that keeps the slot from starting at once (see `row_reason`).
    `ends_others`: the earlier runs are ended first.
    `retries`: the slot waits for the earlier runs, but only for `retry_within`.
    `in_turn`: the slot waits for its turn among late slots, and `reason` is IN_TURN.
    """

    state: str
    reason: str | None = None
    ends_others: bool = False
    retries: bool = False
    in_turn: bool = False


def decide(
    policy: str, unfinished: UnfinishedRuns, max_buffer: int, *, retries: bool = False, most_in_turn: int | None = None
) -> Verdict:
    """Return the verdict for one due slot under `policy`, given the unfinished runs before it.

    `retries`: the job has `retry_within`, and that time is not over.
    `most_in_turn`: set for a late slot that waits for its turn: the most late slots that may wait.
    """
    if policy == "allow" or unfinished.open == 0:
        return Verdict("queued")
    earlier = f"run {unfinished.newest_id}" if unfinished.newest_id else "the slot before it"
    reason = f"{earlier} was not finished"
    if most_in_turn is not None:
        return verdict_in_turn(unfinished, most_in_turn, reason)
    if policy == "replace":
        return Verdict("waiting", ends_others=True)
    if policy == "terminate":
        return Verdict("queued", ends_others=True)
    if policy == "skip":
        if unfinished.retried == unfinished.open:
            return Verdict("waiting", reason)
        # Only one slot waits: with this policy, many slots must not start together when the old run ends.
        waits = retries and unfinished.waiting == 0
        return Verdict("waiting", reason, retries=True) if waits else Verdict("skipped", reason)
    room = 1 if policy == "buffer_one" else max_buffer
    if unfinished.waiting >= room:
        return Verdict("skipped", f"{reason} and {unfinished.waiting} already waited")
    return Verdict("waiting")


def verdict_in_turn(unfinished: UnfinishedRuns, most: int, reason: str) -> Verdict:
    """Return the verdict for a late slot while other runs are unfinished."""
    if unfinished.in_turn >= most:
        return Verdict("skipped", f"{reason} and {unfinished.in_turn} late slots already waited")
    return Verdict("waiting", IN_TURN, in_turn=True)


def row_reason(held_up: str | None, late: str | None) -> str | None:
    """Return the reason for a row: why its slot did not start at once, and for how many late slots it stands."""
    if held_up is None:
        return late
    return (
        f"overlap: {held_up}"
        if late is None
        else f"overlap: {late.replace('runs once for', 'stands for')}, and {held_up}"
    )
