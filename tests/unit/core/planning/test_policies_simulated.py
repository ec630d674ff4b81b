"""Policies on a simulated clock: through years of a job's life, every slot ends in exactly one row."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from itertools import product
from random import Random

import pytest

from pgsched.core.planning import catchup, plan
from pgsched.core.policies import CATCH_UP
from tests.support.simulation.nominal import DAY, SECOND, START
from tests.support.simulation.simulate import World

OVERLAPS = ("allow", "skip", "buffer_one", "buffer_all", "replace", "terminate")
FEW, MANY = 400, 1000  # ticks


def make(catch_up: str, overlap: str, seed: int) -> World:
    rng = Random(f"{catch_up} {overlap} {seed}")
    columns = {
        "catch_up": catch_up, "overlap": overlap, "max_catch_up": rng.choice((1, 3, 50)),
        "misfire_after": rng.choice((0, 60, 7200)) * SECOND, "catch_up_window": rng.choice((0, 3600, 86_400)) * SECOND,
        "start_deadline": rng.choice((None, 30 * SECOND, 3 * DAY)), "jitter": rng.choice((0, 20)) * SECOND,
        "retry_within": timedelta(hours=1) if overlap == "skip" and rng.random() < 0.5 else None,
    }  # fmt: skip
    return World(rng, columns)


@cache
def lived(catch_up: str, overlap: str, seed: int, ticks: int = FEW) -> World:
    """Return the world of one job after this many ticks."""
    world = make(catch_up, overlap, seed)
    world.live(ticks)
    return world


@pytest.mark.long
@pytest.mark.parametrize(("catch_up", "overlap"), list(product(CATCH_UP, OVERLAPS)))
def test_every_slot_of_a_job_s_life_has_exactly_one_row(catch_up: str, overlap: str) -> None:
    slots = epochs = 0
    for seed in range(3):
        world = lived(catch_up, overlap, seed, MANY)
        slots += world.check()
        epochs += len(world.epochs)
    assert slots > MANY and epochs > 9


def test_each_way_to_catch_up_keeps_one_row_per_slot() -> None:
    assert sum(lived(catch_up, "skip", 0).check() for catch_up in CATCH_UP) > FEW


@pytest.mark.long
def test_each_policy_keeps_one_row_per_slot_and_all_states_and_reasons_occur() -> None:
    assert sum(lived(catch_up, overlap, 0).check() for catch_up, overlap in product(CATCH_UP, OVERLAPS)) > 24 * FEW
    states, reasons, years, coalesced = set(), set(), 0.0, 0
    for catch_up, overlap in product(CATCH_UP, OVERLAPS):
        world = lived(catch_up, overlap, 0)
        years = max(years, (world.now - START) / (365 * DAY))
        states |= {row.state for row in world.rows.values()}
        reasons |= {(row.reason or "").split(" ")[0] for row in world.rows.values()}
        coalesced += sum((row.count or 0) > 1 for row in world.rows.values())
    assert states == {"queued", "scheduled", "waiting", "skipped", "missed"}
    assert reasons >= {"", "late", "late,", "overlap:", "catch_up:", "excluded", "start_deadline", "outside"}
    assert reasons >= {"edited", "paused", "ended"}
    assert years > 2 and coalesced > 100


def broken_life(seed: int) -> None:
    """Simulate and check one job for each catch-up policy; a test breaks the product before the call."""
    for catch_up in CATCH_UP:
        world = make(catch_up, "skip", seed)
        world.live(FEW)
        world.check()


def test_the_check_sees_a_slot_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "_one_row", lambda *_: iter(()))
    with pytest.raises(AssertionError, match=r"has no row"):
        broken_life(1)


def test_the_check_sees_a_slot_with_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plan.decide

    def forgetful(schedule, decided_until, *rest):  # type: ignore[no-untyped-def]
        return real(schedule, decided_until - 3 * DAY, *rest)

    monkeypatch.setattr(plan, "decide", forgetful)
    with pytest.raises(AssertionError, match=r"or two|stands for"):
        broken_life(1)


def test_the_check_sees_slots_lost_by_a_mark_that_rises_to_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plan.plan

    def eager(job):  # type: ignore[no-untyped-def]
        decisions, mark, next_at = real(job)
        return decisions, mark or job["decided_until"], next_at

    monkeypatch.setattr(plan, "plan", eager)
    with pytest.raises(AssertionError, match=r"has no row"):
        broken_life(2)
