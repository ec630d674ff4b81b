"""A stretch is split around existing rows: each slot without a row lies in exactly one part."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from pgsched.core.planning.catchup import Decision
from pgsched.core.planning.intervals import has_row, uncovered_parts, without_covered
from pgsched.core.schedule.cron import parse

START = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("expression", ["*/7 * * * *", "30 2 * * *", "@every 95s"])
def test_every_slot_without_a_row_lies_in_exactly_one_part(expression: str) -> None:
    rng = Random(expression)
    schedule = parse(expression, "Europe/Berlin", START - timedelta(days=1))
    for _ in range(200):
        end = START + rng.randint(0, 3000) * MINUTE
        slots = list(schedule.between(START, end))
        rows = [rng.choice(slots) for _ in range(rng.randint(0, 6))] if slots else []
        known = [
            (min(slot, other), max(slot, other)) for slot in rows for other in [rng.choice([slot, rng.choice(slots)])]
        ]
        known += [(START + n * MINUTE + MINUTE / 7,) * 2 for n in (3, 50)]  # no slots of the schedule
        found = list(uncovered_parts(schedule, START, end, known))
        told = [slot for first, newest, _ in found for slot in schedule.between(first - MINUTE / 60e6, newest)]
        assert told == [slot for slot in slots if not has_row(slot, known)]
        assert [count for *_, count in found] == [len([s for s in slots if a <= s <= b]) for a, b, _ in found]


def decision(verdict: str, last: int, count: int) -> Decision:
    first, slot = START + 30 * MINUTE, START + 30 * MINUTE + last * 60 * MINUTE
    return Decision(slot, verdict, "late, runs once for 4 slots", first, slot, count)


@pytest.mark.parametrize(
    ("known", "left"),
    [
        ([], [("run", 3, 4)]), ([9], [("run", 3, 4)]), ([3], [("missed", 2, 3)]), ([0], [("run", 3, 3)]),
        ([1], [("missed", 0, 1), ("run", 3, 2)]), ([0, 1, 2, 3], []),
    ],
)  # fmt: skip
def test_only_the_newest_slot_of_a_stretch_that_runs_once_runs(
    known: list[int], left: list[tuple[str, int, int]]
) -> None:
    hours = [START + 30 * MINUTE + n * 60 * MINUTE for n in range(10)]
    found = without_covered(parse("@hourly"), decision("run", 3, 4), [(hours[n], hours[n]) for n in known])
    assert [(row.verdict, hours.index(row.scheduled_at), row.covers_count) for row in found] == left
    for row in found:
        if row.verdict == "run":
            assert row.reason == f"late, runs once for {row.covers_count} slots"
