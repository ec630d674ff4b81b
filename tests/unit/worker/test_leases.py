"""Leases: until when a worker holds each claim."""

from __future__ import annotations

import sys
from uuid import uuid4

from pgsched.core.model import Claim
from pgsched.worker.leases import Leases


def test_a_claim_is_past_after_its_deadline_and_when_it_is_not_held() -> None:
    leases, token = Leases(10), uuid4()
    claim = Claim(1, token, 1, 3, "default", 5, "task", "t", {})
    leases.add([claim], sent_at=100.0)
    assert not leases.past(claim, 108.9)
    assert leases.past(claim, 109.1)
    leases.renewed(frozenset({claim.key}), sent_at=103.0)
    assert not leases.past(claim, 109.1)
    leases.drop([claim])
    assert leases.past(claim, 0.0)
    leases.renewed(frozenset({claim.key}), sent_at=103.0)
    assert leases.past(claim, 0.0), "what is not held is not renewed"


def test_leases_are_held_and_dropped_one_by_one_even_with_equal_tokens() -> None:
    leases, one, other = Leases(10), uuid4(), uuid4()
    claims = [Claim(run, token, 1, 3, "default", 5, "task", "t", {}) for run in (1, 2, 3) for token in (one, other)]
    keys = [claim.key for claim in claims]
    leases.add(claims[:4], sent_at=100.0)
    leases.add(claims[4:], sent_at=101.0)  # with the same tokens: claims of an answer that was lost
    assert sorted(leases.held_keys()) == sorted(keys) and leases.count == 6
    assert sorted(leases.expired(109.5)) == sorted(keys[:4]) and sorted(leases.expired(110.5)) == sorted(keys)
    leases.drop([claims[0], claims[0]._replace(id=7), claims[0]._replace(token=uuid4())])
    assert sorted(leases.held_keys()) == sorted(keys[1:]) and leases.past(claims[0], 0.0)
    assert not any(leases.past(claim, 108.0) for claim in claims[1:])
    leases.drop(claims[1:])
    assert (leases.held_keys(), leases.count, leases._deadlines) == ([], 0, {})


def test_a_few_slow_runs_of_a_large_batch_keep_no_memory_for_the_others() -> None:
    leases, token = Leases(10), uuid4()
    claims = [Claim(run, token, 1, 3, "default", 5, "task", "t", {}) for run in range(4000)]
    leases.add(claims, sent_at=100.0)
    leases.drop(claims[:3997])
    assert leases.held_keys() == [claim.key for claim in claims[3997:]]
    assert sys.getsizeof(leases._deadlines[token.int]) < 5000
