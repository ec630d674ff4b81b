"""The next 1,000 slots of imported crontabs and intervals, compared with Celery's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pgsched.importers.celery.crontabs import Crontab, read_crontab
from pgsched.importers.celery.entries import Entry, Interval, Settings, import_entries
from pgsched.importers.imported import ImportedJob, Reason
from tests.support.importing.slots import NOW, away_from_changes, imported_slots

celery = pytest.importorskip("celery", reason="celery is missing: pip install -e '.[sources]' (.ci/long does)")
from celery.schedules import crontab, schedule  # noqa: E402

COUNT = 1000
FIELDS = {
    "minute": ["0", "30", "*/15", "*", "5,10-20/5", "7-59/13", "1"],
    "hour": ["*", "0", "2", "3", "*/2", "8-17", "22-3", "1,2,3", "0-23/6"],
    "day_of_month": ["*", "1", "15", "1-7", "31", "*/10", "1,15,31", "29-31"],
    "month_of_year": ["*", "1-6", "*/3", "feb,october", "dec-jan"],
    "day_of_week": ["*", "mon", "fri-mon", "0", "1-5", "sat,sun", "*/2", "thursday"],
}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]


def library_slots(when: Any, zone: str, count: int = COUNT) -> Iterator[datetime]:
    """Yield what beat does: each run is `remaining_estimate` after the one before."""
    app = celery.Celery("slots", set_as_current=False)
    app.conf.timezone = zone
    tz = ZoneInfo(zone)
    at = NOW.astimezone(tz)
    when.app = app
    for _ in range(count):
        when.nowfun = lambda now=at: now
        try:
            at = (at.astimezone(UTC) + when.remaining_estimate(at)).astimezone(tz)
        except RuntimeError:  # "unable to rollover": it looks 2,000 months ahead
            return
        if at > NOW + timedelta(days=366 * 39):
            return
        yield at.astimezone(UTC)


def imported(when: Any, zone: str) -> ImportedJob | None:
    found = import_entries([Entry("a", "a.a", when, "entry")], Settings(zone), NOW)
    if not found.jobs:
        assert [one.remark.reason for one in found.omitted] == [Reason.SCHEDULE]
        return None
    return found.jobs[0]


def compare(job: ImportedJob, zone: str, theirs: list[datetime]) -> None:
    ours = imported_slots(job.columns, NOW, COUNT)
    if not job.exact:
        assert {remark.reason for remark in job.remarks if not remark.reason.informs} == {Reason.CLOCK_CHANGE}
        ours, theirs = away_from_changes(ours, zone), away_from_changes(theirs, zone)
    both = min(len(ours), len(theirs), COUNT)
    assert both or len(ours) == len(theirs)
    assert ours[:both] == theirs[:both]


@pytest.mark.parametrize("seed", range(60))
def test_crontabs_have_the_slots_of_celery(seed: int) -> None:
    random.seed(seed)
    chosen = {name: random.choice(values) if random.random() < 0.6 else "*" for name, values in FIELDS.items()}
    if chosen["minute"] == "*" and random.random() < 0.7:
        chosen["minute"] = "5"
    zone = ZONES[seed % len(ZONES)]
    when = read_crontab(**chosen)
    theirs = crontab(**chosen)
    assert when == Crontab(
        *(frozenset(getattr(theirs, name)) for name in Crontab.__dataclass_fields__ if name != "timezone")
    )
    job = imported(when, zone)
    if job is not None:
        compare(job, zone, list(library_slots(theirs, zone)))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("seconds", [1, 30, 90, 3600, 86_400, 100_000])
def test_intervals_have_the_slots_of_celery(zone: str, seconds: int) -> None:
    job = imported(Interval(timedelta(seconds=seconds)), zone)
    assert job is not None
    assert job.exact
    anchored = {**job.columns, "starts_at": NOW}  # beat starts now, and waits for one interval
    assert imported_slots(anchored, NOW, COUNT) == list(library_slots(schedule(timedelta(seconds=seconds)), zone))


@pytest.mark.parametrize("length", [timedelta(minutes=15), timedelta(hours=2), timedelta(days=1), timedelta(days=3)])
def test_relative_intervals_are_rounded_as_celery_rounds_them(length: timedelta) -> None:
    job = imported(Interval(length, relative=True), "UTC")
    assert job is not None
    assert job.exact
    assert imported_slots(job.columns, NOW, COUNT) == list(library_slots(schedule(length, relative=True), "UTC"))


def test_in_a_zone_whose_clocks_change_celery_s_intervals_pause_for_an_hour_and_that_is_said() -> None:
    job = imported(Interval(timedelta(minutes=20)), "Europe/Berlin")
    assert job is not None
    assert [remark.reason for remark in job.remarks] == [Reason.CLOCK_CHANGE]
    theirs = list(library_slots(schedule(timedelta(minutes=20)), "Europe/Berlin", 12_000))
    longest = max(later - one for one, later in pairwise(theirs))
    assert longest == timedelta(hours=1, minutes=20)


def test_the_parser_refuses_and_takes_what_celery_s_does() -> None:
    from pgsched.importers.celery.crontabs import FieldRefused, read_field
    from pgsched.importers.schedules.numbers import HOUR, WEEKDAY

    for text in [
        "5-1",
        "*/5",
        "mon-wed",
        "7",
        "sun",
        "60",
        "x",
        "",
        "*/0",
        "1/2",
        "-1",
        "1,,2",
        "fri-mon/2",
        "24",
        "0-23",
    ]:
        for field, most in ((HOUR, 24), (WEEKDAY, 7)):
            try:
                theirs = frozenset(celery.schedules.crontab_parser(most).parse(text))
            except Exception:
                theirs = None
            try:
                ours: frozenset[int] | None = read_field(field, text)
            except FieldRefused:
                ours = None
            assert ours == theirs, (field.name, text)
