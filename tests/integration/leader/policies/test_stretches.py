"""A stretch that is passed over is recorded around the slots that have their row."""

from __future__ import annotations

from datetime import datetime

import psycopg
import pytest

from pgsched.core.planning.intervals import uncovered_parts
from pgsched.db.queries.jobs import jobs
from pgsched.leader import passed_over
from tests.support.db.passing import lead, pass_time
from tests.support.db.pausing import HOUR, add, hours, once, runs


def backfilled(db: psycopg.Connection, slots: list[datetime]) -> None:
    """Add a run of a backfill for each of these slots."""
    for slot in slots:
        db.execute(
            "INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin) SELECT id, %s, 't', 'backfill'"
            " FROM pgsched.jobs", [slot],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("taken", "told"),
    [([4], [(0, 3)]), ([0], [(1, 4)]), ([2], [(0, 1), (3, 4)]), ([1, 3], [(0, 0), (2, 2), (4, 4)]),
     ([3, 4], [(0, 2)]), ([0, 1, 2, 3, 4], [])],
)  # fmt: skip
def test_a_stretch_is_recorded_around_the_slots_that_have_their_row(
    db: psycopg.Connection, taken: list[int], told: list[tuple[int, int]]
) -> None:
    add(db)
    lead(db)
    jobs.pause(db, "a")
    pass_time(db, 5 * 3600)
    jobs.resume(db, "a")
    slots = hours(db, 5)
    backfilled(db, [slots[n] for n in taken])
    lead(db)
    found = [run[1:5] for run in runs(db) if run[0] == "skipped"]
    assert found == [(slots[b], slots[a], slots[b], b - a + 1) for a, b in told]


def test_a_row_beside_the_schedule_divides_no_stretch(db: psycopg.Connection) -> None:
    add(db)
    lead(db)
    jobs.pause(db, "a")
    jobs.trigger(db, "a")
    pass_time(db, 5 * 3600)
    jobs.resume(db, "a")
    lead(db)
    assert [run[4] for run in runs(db)] == [None, 5]


def test_without_looking_for_rows_a_stretch_cannot_be_recorded(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        passed_over, "uncovered_parts", lambda schedule, start, end, known: uncovered_parts(schedule, start, end, [])
    )
    test_a_row_beside_the_schedule_divides_no_stretch(db)
    with pytest.raises(psycopg.errors.UniqueViolation):
        test_two_stretches_with_the_same_newest_slot_are_both_told(db)


def test_two_stretches_with_the_same_newest_slot_are_both_told(db: psycopg.Connection) -> None:
    db.execute("TRUNCATE pgsched.jobs, pgsched.runs CASCADE")
    add(db)
    lead(db)
    for n, since in enumerate([2, 4], 1):
        db.execute(
            "INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason)"
            " SELECT id, schedule, timezone, anchor_at, %s, clock_timestamp(), 'skipped', %s FROM pgsched.jobs",
            [hours(db, since)[0] - HOUR / 2, f"why {n}"],
        )
    lead(db)
    assert [(run[1], run[5]) for run in runs(db)] == [(hours(db, 2)[0], "why 2"), (hours(db, 1)[0], "why 1")]


def test_a_one_off_whose_slot_has_its_row_gets_no_second_row(db: psycopg.Connection) -> None:
    once(db, 1)
    jobs.pause(db, "a")
    pass_time(db, 2 * 3600)
    slot = jobs.resume(db, "a")["run_at"]
    backfilled(db, [slot])
    lead(db)
    assert [run[0] for run in runs(db)] == ["queued"]
