"""The arithmetic of admission: which waiting runs are admitted when there is room for some."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from pgsched.core.admission import (
    Candidate,
    Gate,
    Group,
    candidates_to_read,
    choose_runs,
    default_burst,
    refund_tokens,
    tokens_now,
)


def group(key: str, ids: range, gate: Gate | None = None, weight: int = 1, priority: int = 5) -> Group:
    runs = [Candidate(n, priority, n) for n in ids]
    return Group("q", key, gate or Gate(), weight, runs)


def ids(chosen: list[tuple[Group, Candidate]]) -> list[int]:
    return [run.id for _, run in chosen]


def test_without_limits_all_runs_are_admitted_in_order_of_priority() -> None:
    groups = [group("a", range(3)), group("b", range(10, 12), priority=1)]
    assert ids(choose_runs(groups, Gate(), fair=False)) == [10, 11, 0, 1, 2]


def test_a_full_key_does_not_hold_up_other_keys() -> None:
    groups = [group("a", range(3), Gate(room=0)), group("b", range(10, 13), Gate(room=2))]
    assert ids(choose_runs(groups, Gate(), fair=False)) == [10, 11]


def test_a_queue_admits_no_more_runs_than_it_has_room_for() -> None:
    assert ids(choose_runs([group("a", range(5)), group("b", range(5, 9))], Gate(room=3), fair=False)) == [0, 1, 2]


def test_one_key_in_two_queues_has_one_limit() -> None:
    gate = Gate(room=3)
    here, there = group("a", range(2), gate), group("a", range(10, 15), gate)
    assert len(choose_runs([here], Gate(), fair=False)) + len(choose_runs([there], Gate(), fair=False)) == 3


def test_keys_take_turns_in_a_fair_queue() -> None:
    groups = [group("a", range(100)), group("b", range(100, 102)), group("c", range(200, 201))]
    assert ids(choose_runs(groups, Gate(room=6), fair=True)) == [0, 100, 200, 1, 101, 2]


def test_a_key_with_twice_the_weight_gets_twice_the_turns() -> None:
    groups = [group("a", range(100), weight=2), group("b", range(100, 200))]
    assert ids(choose_runs(groups, Gate(room=6), fair=True)) == [0, 1, 100, 2, 3, 101]


def test_a_key_without_tokens_does_not_hold_up_others() -> None:
    empty, full = Gate(tokens=0.4, burst=5), Gate(tokens=2.0, burst=5)
    assert ids(choose_runs([group("a", range(3), empty), group("b", range(10, 15), full)], Gate(), fair=False)) == [
        10,
        11,
    ]


def test_a_refund_is_reduced_by_the_tokens_gained_since_the_claim() -> None:
    """Without the claim, the bucket might have been full all the time, and these gains would have been lost."""
    assert refund_tokens(0.5, [0.0]) == 1.0
    assert refund_tokens(0.5, [1.0]) == 0.5
    assert refund_tokens(0.5, [60.0]) == 0.0
    assert refund_tokens(0.5, [1.0] * 40) == 39.5, "what came in came in once"
    assert refund_tokens(0.5, [60.0, 1.0]) == 0.5
    assert tokens_now(1, 2.0, 5, 0, (0.0, 1.0, 3), [0.5] * 3) == 0.5 + 2.75
    assert tokens_now(1, 2.0, 5, 0, (0.0, 1.0, 3), [2.0] * 3) == 2.0, "three others may have started meanwhile"


def test_a_bucket_without_a_row_is_full_minus_the_unstarted_runs() -> None:
    assert tokens_now(10, 1.0, 5, 2, None) == 3.0


def test_a_bucket_gains_no_more_than_if_all_runs_had_just_started() -> None:
    assert tokens_now(10, 1.0, 5, 0, (0.0, 60.0, 3)) == 2.0
    assert tokens_now(10, 1.0, 5, 0, (0.0, 0.25, 0)) == 2.5
    assert tokens_now(10, 1.0, 5, 0, (1.0, -3.0, 0)) == 1.0, "the database's clock went back"


def test_the_default_burst_is_a_tenth_of_the_rate_and_at_least_one() -> None:
    assert [default_burst(rate) for rate in (1, 9, 10, 100)] == [1, 1, 1, 10]


@pytest.mark.few(24)
@pytest.mark.parametrize("seed", range(60))
def test_no_window_sees_more_starts_than_rate_and_burst(seed: int) -> None:
    """The leader admits at random times. Workers start admitted runs at random times, and give claims back.

    They give back one claim at once, or many of them after a while.
    """
    dice = random.Random(seed)
    rate, period, burst = dice.choice([(10, 1.0, 1), (10, 1.0, 4), (50, 2.0, 7), (3, 1.0, 3)])
    parked = dice.choice([0.0, 0.1, 0.3])
    now, bucket = 0.0, None
    unstarted, starts, held, given_back = 0, list[float](), list[float](), list[float]()
    for _ in range(3000):
        now += dice.choice([0.001, 0.005, 0.02, 0.2]) * dice.random()
        for _ in range(dice.choice([0, 0, 1, 1, 2, 10])):
            if unstarted and dice.random() < 0.8:
                unstarted -= 1
                chance = dice.random()
                (given_back if chance < 0.1 else held if chance < 0.1 + parked else starts).append(now)
        if len(held) > 20 or dice.random() < 0.01:
            n = dice.choice([1, len(held)])
            given_back += held[:n]
            del held[:n]
        if dice.random() < 0.5:
            then = None if bucket is None else (bucket[0], now - bucket[1], bucket[2])
            tokens = tokens_now(rate, period, burst, unstarted, then, [now - at for at in given_back])
            gate = Gate(tokens=tokens, burst=burst, unstarted=unstarted)
            choose_runs([Group("q", "k", gate, runs=[Candidate(n, 5, n) for n in range(20)])], Gate(), fair=False)
            unstarted, bucket, given_back = gate.unstarted, (gate.tokens, now, gate.unstarted), []
    windows = [bisect_left(starts, first + period) - n for n, first in enumerate(starts)]
    assert max(windows) <= rate + burst
    assert len(starts) > 0.2 * rate / period * now, "and it is not much slower than such workers let it be"


def test_no_more_candidates_are_read_than_could_be_admitted() -> None:
    many = [group(str(n), range(0)) for n in range(1000)]
    assert sum(candidates_to_read(many, {"q": Gate()}, (), 20_000)) == 20_000
    assert candidates_to_read([group("a", range(0), Gate(room=3))], {"q": Gate(room=2)}, (), 100) == [2]
    assert candidates_to_read(many, {"q": Gate(room=500)}, {"q"}, 20_000) == [1] * 1000
