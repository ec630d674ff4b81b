"""Excluded dates are dates in the job's time zone, even where its clocks change at midnight."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from pgsched.core.planning.catchup import BATCH, CatchUp, Decision, decide, decide_one
from pgsched.core.schedule.calendar import OPEN, Part, calendar
from pgsched.core.schedule.cron import parse
from tests.support.simulation.oracle import load

INSTANT, SECOND, MINUTE = timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
CHRISTMAS = ("2026-12-25", "2026-12-25", "Christmas")
LATEST = CatchUp("latest", misfire_after=MINUTE, window=30 * DAY, max_runs=10, start_deadline=None)


def at(day: int, hour: int = 0, month: int = 12) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def test_a_job_without_rows_has_an_open_calendar() -> None:
    assert calendar(None, "UTC") is calendar([], "UTC") is OPEN
    assert OPEN.excluded(at(25)) is None
    assert OPEN.next_allowed(at(25)) == at(25)


def test_a_date_is_excluded_from_its_first_to_its_last_instant_in_the_zone() -> None:
    days = calendar([CHRISTMAS], "Europe/Berlin")
    assert days.excluded(at(24, 23) - INSTANT) is None
    assert days.excluded(at(24, 23)) == days.excluded(at(25, 23) - INSTANT) == "excluded date 2026-12-25: Christmas"
    assert days.excluded(at(25, 23)) is None
    assert days.next_allowed(at(25)) == at(25, 23)


def test_a_range_is_described_by_both_dates_and_needs_no_reason() -> None:
    days = calendar([(date(2026, 12, 20), date(2027, 1, 3), None)], "UTC")
    assert days.excluded(at(31, 23)) == "excluded dates 2026-12-20 to 2027-01-03"
    assert days.next_allowed(at(20)) == datetime(2027, 1, 4, tzinfo=UTC)


def test_a_date_in_two_ranges_belongs_to_the_one_that_begins_first() -> None:
    days = calendar([("2026-12-25", "2026-12-28", "b"), ("2026-12-24", "2026-12-26", "a"), CHRISTMAS], "UTC")
    found = [days.excluded(at(day)) for day in range(23, 30)]
    assert [text and text[-1] for text in found] == [None, "a", "a", "a", "b", "b", None]
    assert days.next_allowed(at(24, 5)) == at(29)


def test_an_allowed_time_is_found_behind_dates_and_rules_however_far_the_dates_reach() -> None:
    years = [("2020-01-01", "2024-12-31", None), ("2025-01-01", "2026-06-30", None)]
    nights = ("c", None, None, None, "00:00", "06:00", None)
    sundays = ("c", None, None, [0], None, None, None)
    start, end = datetime(2020, 5, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
    assert calendar(years, "UTC").next_allowed(start) == end
    assert calendar([*years, nights], "UTC").next_allowed(start) == end + 6 * HOUR
    days = calendar([nights, sundays], "UTC")
    assert days.next_allowed(datetime(2026, 7, 5, 3, tzinfo=UTC)) == datetime(2026, 7, 6, 6, tzinfo=UTC)
    always = calendar([("c", None, None, list(range(7)), None, None, None)], "UTC")
    assert always.next_allowed(start) == datetime(2021, 6, 5, tzinfo=UTC), "looked for again then"


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("America/Santiago", date(2026, 9, 6)),  # the date begins in a gap of the clocks
        ("America/Havana", date(2026, 11, 1)),  # the first hour of the date comes twice
        ("Africa/Cairo", date(2026, 10, 30)),  # the last hour of the day before comes twice
        ("Australia/Lord_Howe", date(2026, 10, 4)),
        ("Pacific/Apia", date(2011, 12, 31)),  # the day before does not exist
        ("Asia/Kathmandu", date(2026, 5, 1)),
    ],
)
def test_the_midnights_of_a_date_are_those_of_the_wall_clock(zone: str, day: date) -> None:
    days, tz = calendar([(day, day, None)], zone), load(zone)
    instant = datetime(day.year, day.month, day.day, tzinfo=UTC) - DAY
    for _ in range(3 * 24 * 12):
        assert (days.excluded(instant) is not None) == (instant.astimezone(tz).date() == day), instant
        instant += 5 * MINUTE


def test_a_date_that_does_not_exist_excludes_nothing() -> None:
    days = calendar([("2011-12-30", "2011-12-30", None)], "Pacific/Apia")
    assert days == OPEN


def test_parts_cut_a_span_without_gaps_or_overlaps() -> None:
    days = calendar([CHRISTMAS, ("2026-12-28", "2027-01-05", None)], "UTC")
    parts = list(days.parts(at(24), at(30)))
    assert parts == [
        Part(at(24), at(25) - INSTANT, None),
        Part(at(25) - INSTANT, at(26) - INSTANT, "excluded date 2026-12-25: Christmas"),
        Part(at(26) - INSTANT, at(28) - INSTANT, None),
        Part(at(28) - INSTANT, at(30), "excluded dates 2026-12-28 to 2027-01-05"),
    ]
    assert list(days.parts(at(25, 3), at(25, 5))) == [Part(at(25, 3), at(25, 5), parts[1].excluded)]
    assert list(days.parts(at(26), at(27))) == [Part(at(26), at(27), None)]


# ---- slots on excluded dates


def test_a_slot_on_an_excluded_date_is_skipped_with_the_reason() -> None:
    days = calendar([CHRISTMAS], "Europe/Berlin")
    daily = parse("0 9 * * *", "Europe/Berlin")
    decisions, mark, following = decide(daily, at(24, 9), at(25, 8), LATEST, calendar=days)
    assert decisions == [Decision(at(25, 8), "skipped", "excluded date 2026-12-25: Christmas", at(25, 8), at(25, 8), 1)]
    assert (mark, following) == (at(25, 8), at(26, 8))
    assert decide_one(at(25, 8), at(25, 8), LATEST, days).verdict == "skipped"
    assert decide_one(at(26, 8), at(26, 8), LATEST, days).verdict == "run"


def test_a_blackout_of_a_frequent_job_is_one_row_with_its_count() -> None:
    days = calendar([("2026-12-10", "2026-12-23", "freeze")], "UTC")
    decisions, mark, _ = decide(parse("* * * * * *"), at(10) - SECOND, at(24) - SECOND, LATEST, calendar=days)
    assert decisions == [
        Decision(mark, "skipped", "excluded dates 2026-12-10 to 2026-12-23: freeze", at(10), mark, 14 * 86_400)
    ]


def test_a_late_run_stands_only_for_slots_on_its_side_of_a_blackout() -> None:
    days = calendar([CHRISTMAS], "UTC")
    decisions, _, _ = decide(parse("0 */6 * * *"), at(24), at(26, 7), LATEST, calendar=days)
    assert [(d.verdict, d.scheduled_at, d.covers_count) for d in decisions] == [
        ("missed", at(24, 18), 3), ("skipped", at(25, 18), 4), ("run", at(26, 6), 2)
    ]  # fmt: skip
    assert decisions[0].reason == "only the latest late slot runs"


def test_excluded_slots_after_a_full_batch_wait_for_the_next_call() -> None:
    days = calendar([("2026-12-25", "2026-12-25", None)], "UTC")
    policy = CatchUp("all", 2 * DAY, 30 * DAY, 10, None)
    mark, seen = at(25) - 1500 * SECOND - SECOND, []
    for _ in range(3):
        decisions, mark, _ = decide(parse("* * * * * *"), mark, at(26), policy, calendar=days)
        seen += [(d.covers_from or d.scheduled_at, d.covers_until or d.scheduled_at, d.verdict) for d in decisions]
    assert len(decisions) < BATCH
    assert [row[:2] for row in seen if row[2] == "skipped"] == [(at(25), at(26) - SECOND)]
    assert sum((last - first) // SECOND + 1 for first, last, _ in seen) == 1501 + 86_400
