"""Overlap: what becomes of a due slot while earlier runs of its job are not finished.

Pure. Queued, running, retrying and held runs are all unfinished. `skip` is the default, as in Kubernetes' Forbid;
`buffer_*` hold slots back for admission to release one at a time; `replace` and `terminate` end the earlier runs, by
asking or at once. With `retry_within`, one slot that `skip` would skip waits: the oldest, and newer ones are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """The unfinished runs of a job at one moment: `open` of them, `held` of which wait for admission."""

    open: int
    held: int
    newest_id: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state a slot's row is born in. `ends_others`: the earlier runs are to be ended first; `retries`: the slot
    waits for them, but only for so long."""

    state: str
    reason: str | None = None
    ends_others: bool = False
    retries: bool = False


def decide(policy: str, standing: Standing, max_buffer: int, *, retries: bool = False) -> Verdict:
    """The verdict for one due slot under `policy`, given what is unfinished before it."""
    if policy == "allow" or standing.open == 0:
        return Verdict("queued")
    earlier = f"run {standing.newest_id}" if standing.newest_id else "the slot before it"
    if policy == "replace":
        return Verdict("waiting", ends_others=True)
    if policy == "terminate":
        return Verdict("queued", ends_others=True)
    reason = f"overlap: {earlier} was not finished"
    if policy == "skip":
        # Only one: a crowd of slots that all start when the old run ends is what this policy is there to prevent.
        waits = retries and standing.held == 0
        return Verdict("waiting", reason, retries=True) if waits else Verdict("skipped", reason)
    room = 1 if policy == "buffer_one" else max_buffer
    if standing.held >= room:
        return Verdict("skipped", f"{reason} and {standing.held} already waited")
    return Verdict("waiting")
