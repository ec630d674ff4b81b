"""Calendars in files: what is written of them, and the slots that they move."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.core.jobs_file.model.columns import What
from pgsched.core.schedule.preview import upcoming
from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError
from pgsched.services.jobs_file.planning import Options, plan
from tests.support.files.applies import actions, apply, column
from tests.support.files.jobs_files import file_of

pytestmark = pytest.mark.pg14
OPS = Options(owner="ops")


def test_times_of_a_calendar_that_stay_are_not_written(db: psycopg.Connection[Any]) -> None:
    text = "calendars: {c: {times: [{from: 2026-12-25}, %s]}, d: {times: [{weekdays: [sun]}]}}"
    apply(db, text % "{from_time: 18:00, until_time: '24:00'}")
    query = "SELECT id FROM pgsched.calendar_times WHERE calendar = 'd' OR from_date IS NOT NULL ORDER BY id"
    before = column(db, query)
    assert actions(apply(db, text % "{weekdays: [sat]}, {from_time: 20:00, until_time: '24:00'}")) == ["change c"]
    assert column(db, query) == before
    assert column(db, "SELECT count(*) FROM pgsched.calendar_times") == [4]
    assert column(db, "SELECT name FROM pgsched.calendars WHERE replan ORDER BY 1") == ["c", "d"]


def test_a_calendar_that_jobs_use_is_not_removed(db: psycopg.Connection[Any]) -> None:
    apply(db, "calendars: {c: {times: [{weekdays: [sun]}]}}")
    jobs.add(db, {"name": "n", "task": "t", "calendar": "c"})
    pruning = Options(owner="ops", prune=True)
    for act in (lambda: apply(db, "jobs: {}", prune=True), lambda: plan(db, file_of("jobs: {}"), pruning)):
        with pytest.raises(InputError, match="calendar c: jobs use it: n"):
            act()
    assert column(db, "SELECT name FROM pgsched.calendars") == ["c"]


def test_a_plan_shows_what_a_calendar_moves(db: psycopg.Connection[Any]) -> None:
    """Of jobs of the file, and of those that no file declares."""
    text = ("jobs: {n: {task: t, schedule: 0 9 * * *, calendar: c, on_excluded: previous}}\n"
            "calendars: {c: {times: [{weekdays: [%s]}]}}")  # fmt: skip
    new = plan(db, file_of(text % "sat, sun"), OPS)
    assert {slot.at.isoweekday() for slot in new.slots[What.JOB, "n"].new} <= {1, 2, 3, 4, 5}
    assert max(new.collisions.peaks) == 1 and new.collisions.starts == 5
    apply(db, text % "sat, sun")
    jobs.add(db, {"name": "other", "task": "t", "schedule": "0 8 * * *", "calendar": "c"})
    found = plan(db, file_of(text % "mon"), OPS)
    assert found.slots == {} and {name: [*moved] for name, moved in found.moved.items()} == {"c": ["n", "other"]}
    assert {slot.at.isoweekday() for slot in found.moved["c"]["n"].new} <= {2, 3, 4, 5, 6, 7}
    row = jobs.show_planned_job(db, "other")
    old = found.moved["c"]["other"].old
    assert old is not None and [(slot.at, slot.excluded) for slot in old] == [
        (slot.at, slot.excluded) for slot in upcoming(row, 5)]  # fmt: skip
