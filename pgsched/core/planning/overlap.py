"""Overlap: what becomes of a due slot while earlier runs of its job are not finished.

Pure. Queued, running, retrying and held runs are all unfinished. `skip` is the default, as in Kubernetes' Forbid;
`buffer_*` hold slots back for admission to release one at a time; `replace` and `terminate` end the earlier runs, by
asking or at once. With `retry_within`, one slot that `skip` would skip waits: the oldest, and newer ones are skipped.

These policies are for slots on time. Late slots that are all caught up wait for what is unfinished and for each other,
and end nothing; only `allow` starts them beside it.
"""

from __future__ import annotations

from typing import NamedTuple

# The whole reason of a row that waits for its turn, and of no other: pgsched.waits_in_turn knows the same text.
IN_TURN = "catch_up: late, and one after the other"
REPLACED = "replaced by the next slot"


class Standing(NamedTuple):
    """The unfinished runs of a job at one moment: `open` of them; `held` wait for admission under an overlap policy,
    and `in_turn` because late slots are caught up one after the other."""

    open: int
    held: int
    newest_id: int | None = None
    in_turn: int = 0


class Verdict(NamedTuple):
    """The state a slot's row is born in. `reason`: what held it up (see `told`). `ends_others`: the earlier runs are to
    be ended first; `retries`: the slot waits for them, but only for so long; `in_turn`: it waits for its turn among
    late ones, and `reason` is IN_TURN."""

    state: str
    reason: str | None = None
    ends_others: bool = False
    retries: bool = False
    in_turn: bool = False


def decide(
    policy: str, standing: Standing, max_buffer: int, *, retries: bool = False, most_in_turn: int | None = None
) -> Verdict:
    """The verdict for one due slot under `policy`, given what is unfinished before it. `most_in_turn`: the slot is a
    late one that waits for its turn, behind at most so many."""
    if policy == "allow" or standing.open == 0:
        return Verdict("queued")
    earlier = f"run {standing.newest_id}" if standing.newest_id else "the slot before it"
    reason = f"{earlier} was not finished"
    if most_in_turn is not None:
        return in_turn(standing, most_in_turn, reason)
    if policy == "replace":
        return Verdict("waiting", ends_others=True)
    if policy == "terminate":
        return Verdict("queued", ends_others=True)
    if policy == "skip":
        # Only one: a crowd of slots that all start when the old run ends is what this policy is there to prevent.
        waits = retries and standing.held == 0
        return Verdict("waiting", reason, retries=True) if waits else Verdict("skipped", reason)
    room = 1 if policy == "buffer_one" else max_buffer
    if standing.held >= room:
        return Verdict("skipped", f"{reason} and {standing.held} already waited")
    return Verdict("waiting")


def in_turn(standing: Standing, most: int, reason: str) -> Verdict:
    """The verdict for a late slot while others are unfinished."""
    if standing.in_turn >= most:
        return Verdict("skipped", f"{reason} and {standing.in_turn} late slots already waited")
    return Verdict("waiting", IN_TURN, in_turn=True)


def told(held_up: str | None, late: str | None) -> str | None:
    """The reason in a row: why its slot did not start at once, and that it is late, with the number it stands for."""
    if held_up is None:
        return late
    return (
        f"overlap: {held_up}"
        if late is None
        else f"overlap: {late.replace('runs once for', 'stands for')}, and {held_up}"
    )
