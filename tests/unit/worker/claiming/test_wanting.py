"""Which queues a claimer tries without a free place, and which it leaves alone until there is one."""

from __future__ import annotations

from uuid import uuid4

from pgsched.core.model import Claim
from pgsched.worker.claiming.rotation import AT_ONCE, Rotation


def claims(count: int, attempts: int) -> list[Claim]:
    """Return `count` claims of runs with `attempts` as their max_attempts."""
    return [Claim(n, uuid4(), 1, attempts, "b", 5, "task", "t", {}) for n in range(count)]


def allowed(rotation: Rotation, queues: list[str], free: int) -> tuple[list[str], int]:
    """Return which of these queues may be tried for how many of ten claims, with `free` free places."""
    return rotation.allowed(queues, 10, lambda: free)


def test_queues_that_used_up_all_places_are_left_alone_until_one_is_free() -> None:
    rotation = Rotation()
    assert rotation.note_wanting(["a", "b", "c"], 1, claims(4, 1), places=4)
    assert [*rotation.wanting_place] == ["c", "b"], "what was not served comes first"
    assert allowed(rotation, ["a", "b", "c", "d"], free=0) == (["a", "d"], 10)
    assert allowed(rotation, ["b", "c"], free=2) == (["b", "c"], 2), "no more is locked than can be taken"
    assert rotation.hint_wanting() and rotation.begin() == ["c", "b"]
    assert not rotation.note_wanting(["b", "c"], 1, claims(1, 1), places=2)
    assert not rotation.wanting_place, "a place is left, so nothing is"


def test_runs_that_need_no_place_at_once_are_still_claimed_ahead() -> None:
    rotation = Rotation()
    assert not rotation.note_wanting(["a"], 0, claims(8, 3), places=4)
    assert not rotation.note_wanting(["a"], 0, claims(8, 3), places=0)
    assert rotation.note_wanting(["a"], 0, [], places=0)
    assert allowed(rotation, ["a"], free=2) == (["a"], 10)
    assert allowed(rotation, ["a"], free=0) == ([], 10)
    rotation.hint("a")
    assert allowed(rotation, ["a"], free=0) == (["a"], 10), "it got work, which may be claimed ahead"


def test_a_free_place_causes_only_a_bounded_number_of_queues_to_be_tried() -> None:
    rotation = Rotation()
    rotation.note_wanting([f"q{n}" for n in range(1000)], 0, [], places=0)
    rotation.hint_wanting()
    assert len(rotation.begin()) == AT_ONCE
