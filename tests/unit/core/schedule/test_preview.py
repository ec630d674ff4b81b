"""A preview shows the slots that will be decided, and what a change of the clocks does to each of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched.core.planning.jitter import offset
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.preview import PreviewSlot, jitter_warning, next_allowed, next_slots, preview_job

BERLIN = "Europe/Berlin"
FORWARD = "clocks go forward 1 h on 2026-03-29 02:00"
BACK = "clocks go back 1 h on 2026-10-25 03:00"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(expression: str, zone: str, start: str, count: int) -> list[PreviewSlot]:
    return next_slots(parse(expression, zone, utc(start)), utc(start), count)


def told(expression: str, zone: str, start: str, count: int) -> list[tuple[str, str]]:
    """Return the local times with their UTC offset, and the remarks."""
    return [(f"{f.local:%d %H:%M %z}", "; ".join(f.remarks)) for f in fires(expression, zone, start, count)]


def test_a_slot_has_its_instant_and_its_local_time() -> None:
    (fire,) = fires("30 2 * * *", BERLIN, "2026-06-01", 1)
    assert (fire.at, fire.at.tzinfo, fire.starts_at) == (utc("2026-06-01 00:30"), UTC, fire.at)
    assert fire.local == fire.at and fire.local.isoformat() == "2026-06-01T02:30:00+02:00"
    assert (fire.dst, fire.remarks) == (None, ())


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("30 2 * * *", BERLIN, "2026-03-28 12:00", [
            ("29 03:00 +0200", "moved: the wall time 02:30 does not exist"), ("30 02:30 +0200", "")]),
        ("5,10 2 * * *", BERLIN, "2026-03-28 12:00", [
            ("29 03:00 +0200", "moved: the wall times 02:05, 02:10 do not exist"), ("30 02:05 +0200", "")]),
        ("0-59 2 * * *", BERLIN, "2026-03-28 12:00", [
            ("29 03:00 +0200", "moved: the wall times 02:00, 02:01, 02:02, ... do not exist")]),
        ("0 3 * * *", BERLIN, "2026-03-28 12:00", [("29 03:00 +0200", "")]),
        ("*/30 2 * * *", BERLIN, "2026-03-28 12:00", [
            ("30 02:00 +0200", "left out: the wall times 02:00, 02:30 do not exist"), ("30 02:30 +0200", "")]),
        ("30 * * * *", BERLIN, "2026-03-29 00:00", [
            ("29 01:30 +0100", ""), ("29 03:30 +0200", "left out: the wall time 02:30 does not exist")]),
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", [
            ("25 02:30 +0200", "first of two: 02:30 comes twice, and only the first counts"), ("26 02:30 +0100", "")]),
        ("*/30 2 * * *", BERLIN, "2026-10-24 12:00", [
            ("25 02:00 +0200", "first of two: 02:00 comes twice"),
            ("25 02:30 +0200", "first of two: 02:30 comes twice"),
            ("25 02:00 +0100", "second of two: 02:00 comes twice"),
            ("25 02:30 +0100", "second of two: 02:30 comes twice"), ("26 02:00 +0100", "")]),
        ("0 1,3 * * *", BERLIN, "2026-10-24 12:00", [("25 01:00 +0200", ""), ("25 03:00 +0100", "")]),
        ("@every 1h", BERLIN, "2026-10-25 00:00", [
            ("25 02:00 +0100", "second of two: 02:00 comes twice"), ("25 03:00 +0100", "")]),
        ("@every 1h", BERLIN, "2026-03-29 00:00", [("29 03:00 +0200", ""), ("29 04:00 +0200", "")]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", [
            ("04 02:30 +1100", "moved: the wall time 02:15 does not exist")]),
        ("0 9 * * *", "Pacific/Apia", "2011-12-30 00:00", [
            ("31 00:00 +1400", "moved: the wall time 2011-12-30 09:00 does not exist"), ("31 09:00 +1400", "")]),
        ("@daily", "America/Santiago", "2026-09-05 12:00", [
            ("06 01:00 -0300", "moved: the wall time 00:00 does not exist")]),
    ],
)  # fmt: skip
def test_remarks_say_what_a_change_of_the_clocks_does_to_a_slot(
    expression: str, zone: str, start: str, expected: list[tuple[str, str]]
) -> None:
    assert told(expression, zone, start, len(expected)) == expected


def test_slots_within_a_week_of_a_change_are_marked() -> None:
    marked = {f"{f.local:%m-%d}": f.dst for f in fires("0 12 * * *", BERLIN, "2026-03-20", 20)}
    days = [day for day, dst in marked.items() if dst]
    assert (days[0], days[-1], len(days)) == ("03-22", "04-04", 14)  # 04-05 12:00 is 7 days and 9 h after the change
    assert {dst for dst in marked.values() if dst} == {FORWARD}
    assert fires("0 12 * * *", BERLIN, "2026-10-24 12:00", 1)[0].dst == BACK
    assert all(f.dst is None for f in fires("@hourly", "UTC", "2026-03-20", 200))
    (first, *_) = fires("@daily", "Australia/Lord_Howe", "2026-10-03", 1)
    assert first.dst == "clocks go forward 30 min on 2026-10-04 02:00"
    (first, *_) = fires("@daily", "Pacific/Apia", "2011-12-28", 1)
    assert first.dst == "clocks go forward 24 h on 2011-12-30 00:00"


def test_previews_work_at_both_ends_of_the_calendar() -> None:
    assert len(fires("@yearly", "Asia/Tokyo", "9997-06-01", 5)) == 2
    assert len(fires("@daily", "America/New_York", "9999-12-20", 50)) == 12
    assert len(fires("@daily", "Asia/Tokyo", "0001-01-01", 5)) == 5
    assert fires("@after 10m", "UTC", "2026-01-01", 5) == []


NOW = utc("2026-10-24 12:00")


def job(**columns: Any) -> dict[str, Any]:
    """Return a row of `jobs` whose slots are decided up to NOW."""
    return {
        "id": 7, "schedule": "30 2 * * *", "timezone": BERLIN, "anchor_at": NOW - timedelta(days=1), "now": NOW,
        "decided_until": NOW - timedelta(hours=11, minutes=30), "next_run_at": utc("2026-10-25 00:30"), "run_at": None,
        "starts_at": None, "ends_at": None, "max_runs": None, "run_count": 0, "jitter": timedelta(0), "paused": False,
        "paused_by": None, "paused_at": None, "paused_reason": None, "error": None, "catch_up": "latest",
        "overlap": "skip", "excluded": None,
    } | columns  # fmt: skip


def test_a_job_that_nobody_has_planned_yet_has_no_note_on_dates() -> None:
    """Its next_run_at is when it was made, and no slot."""
    made = NOW - timedelta(seconds=5)
    found = preview_job(job(anchor_at=made, decided_until=made, next_run_at=made), 1)
    assert (found.notes, [fire.at for fire in found.fires]) == ((), [utc("2026-10-25 00:30")])


def test_a_jobs_preview_is_that_of_its_schedule() -> None:
    found = preview_job(job(), 3)
    assert found.sentence == "At 02:30 every day, Europe/Berlin time"
    assert (found.timezone, found.notes) == (BERLIN, ())
    assert list(found.fires) == fires("30 2 * * *", BERLIN, "2026-10-24 12:00", 3)


def test_every_counts_from_the_jobs_anchor() -> None:
    found = preview_job(job(schedule="@every 7h", anchor_at=utc("2026-10-24 10:00")), 1)
    assert found.fires[0].at == utc("2026-10-24 17:00")


def test_starts_at_ends_at_and_max_runs_limit_the_slots() -> None:
    assert len(preview_job(job(ends_at=utc("2026-10-26 01:30")), 10).fires) == 2  # a slot exactly at `ends_at` counts
    ended = preview_job(job(ends_at=utc("2026-10-20"), next_run_at=None), 10)
    assert (ended.fires, ended.notes) == ((), ("ended at 2026-10-20 00:00:00 UTC",))
    counted = preview_job(job(max_runs=5, run_count=3), 10)
    assert (len(counted.fires), counted.notes) == (2, ("2 of 5 runs left",))
    start = utc("2026-12-01 01:30")
    begins = preview_job(job(starts_at=start, decided_until=start - timedelta(microseconds=1)), 1)
    assert (begins.fires[0].at, begins.notes) == (start, ("starts at 2026-12-01 01:30:00 UTC",))


CHRISTMAS = ["2026-10-25", "2026-10-26", "Christmas"]  # not in December, so that it is near NOW


def test_slots_on_excluded_dates_are_shown_as_slots_that_will_be_skipped() -> None:
    found = preview_job(job(excluded=[CHRISTMAS], jitter=timedelta(minutes=10)), 3)
    said = "excluded dates 2026-10-25 to 2026-10-26: Christmas"
    assert [fire.excluded for fire in found.fires] == [said, said, None]
    assert [fire.at for fire in found.fires] == [
        utc("2026-10-25 00:30"),
        utc("2026-10-26 01:30"),
        utc("2026-10-27 01:30"),
    ]
    assert [fire.starts_at is None for fire in found.fires] == [True, True, False]
    assert found.notes[0] == "the next slot on no excluded date is 2026-10-27 01:30:00 UTC"


def test_a_skipped_slot_does_not_count_against_max_runs() -> None:
    found = preview_job(job(excluded=[["2026-10-25", "2026-10-25", None]], max_runs=1), 10)
    assert [fire.excluded for fire in found.fires] == ["excluded date 2026-10-25", None]


def test_a_job_that_runs_once_is_shown_as_skipped_on_an_excluded_date() -> None:
    once = preview_job(
        job(schedule=None, run_at=NOW, next_run_at=NOW, excluded=[["2026-10-24", "2026-10-24", "off"]]), 1
    )
    assert once.notes == ("every slot to come is on an excluded date",)
    assert (once.fires[0].excluded, once.fires[0].starts_at) == ("excluded date 2026-10-24: off", None)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "2026-10-25 00:30"),
        ({"excluded": [["2026-10-26", "2026-10-26", None]]}, "2026-10-25 00:30"),
        ({"excluded": [CHRISTMAS]}, "2026-10-27 01:30"),
        ({"excluded": [CHRISTMAS, ["2026-10-27", "2026-11-30", None]]}, "2026-12-01 01:30"),
        ({"excluded": [CHRISTMAS], "ends_at": utc("2026-10-27 01:29")}, None),
        ({"excluded": [CHRISTMAS], "schedule": None, "run_at": utc("2026-10-25 00:30")}, None),
        ({"excluded": [CHRISTMAS], "schedule": "@after 10m"}, "2026-10-25 00:30"),  # moved when it was planned
        ({"excluded": [CHRISTMAS], "schedule": "0 0 30 2 *"}, "2026-10-25 00:30"),
        ({"excluded": [CHRISTMAS], "schedule": "0 0 26 10 *"}, "2027-10-25 22:00"),
        ({"excluded": [CHRISTMAS], "next_run_at": None}, None),
    ],
)
def test_the_next_slot_that_will_run_is_on_no_excluded_date(columns: dict[str, Any], expected: str | None) -> None:
    assert next_allowed(job(**columns)) == (None if expected is None else utc(expected))


@pytest.mark.parametrize(
    ("columns", "warned"),
    [
        ({"schedule": "*/5 * * * *", "jitter": timedelta(minutes=6)}, True),
        ({"schedule": "*/5 * * * *", "jitter": timedelta(minutes=5)}, False),
        ({"schedule": "*/5 * * * *", "jitter": timedelta(minutes=6), "overlap": "skip"}, False),
        ({"schedule": "0 1,2 1 * *", "jitter": timedelta(hours=2)}, True),
        ({"schedule": "@every 60s", "jitter": timedelta(minutes=5), "overlap": "terminate"}, True),
        ({"schedule": "@after 60s", "jitter": timedelta(minutes=5)}, False),
        ({"schedule": "0 0 30 2 *", "jitter": timedelta(days=5)}, False),
        ({"schedule": None, "run_at": NOW, "jitter": timedelta(days=5)}, False),
    ],
)
def test_a_jitter_that_makes_slots_end_earlier_ones_gives_a_warning(columns: dict[str, Any], warned: bool) -> None:
    row = job(**{"overlap": "replace", **columns})
    said = (
        f"jitter is longer than the time between some slots: under overlap {row['overlap']} a slot that has not started"
        " is ended by the next one"
    )
    assert jitter_warning(row) == (said if warned else None)
    assert (said in preview_job(row, 1).notes) is warned


def test_jitter_moves_the_start_and_never_the_slot() -> None:
    found = preview_job(job(jitter=timedelta(minutes=10)), 2)
    assert found.notes == ("each start is moved by up to 10 minutes",)
    for fire in found.fires:
        assert fire.starts_at == fire.at + offset(7, fire.at, timedelta(minutes=10)) != fire.at


def test_the_preview_of_a_paused_job_says_so_and_still_shows_slots() -> None:
    found = preview_job(job(paused=True, paused_by="ann", paused_at=utc("2026-10-01"), paused_reason="move"), 1)
    assert found.notes == ("paused by ann since 2026-10-01 00:00:00 UTC: move; no slots until it is resumed",)
    assert found.fires[0].at == utc("2026-10-25 00:30")


def test_slots_that_are_due_but_undecided_are_mentioned() -> None:
    found = preview_job(job(decided_until=NOW - timedelta(days=3), next_run_at=utc("2026-10-22 00:30")), 1)
    assert found.notes == ("slots since 2026-10-22 00:30:00 UTC are due and not decided yet: catch_up is latest",)
    assert found.fires[0].at == utc("2026-10-25 00:30")


def test_the_preview_of_a_job_in_error_shows_the_error() -> None:
    found = preview_job(job(schedule="0 0 30 2 *", error="schedule: never fires", next_run_at=None), 3)
    assert found.fires == () and found.notes[0].startswith("in error: schedule: never fires")
    found = preview_job(job(error="something else", next_run_at=None), 1)
    assert found.notes == ("in error: something else; no slots until it is changed",)


def test_a_job_that_runs_once_or_after_a_delay_has_a_preview() -> None:
    once = preview_job(job(schedule=None, run_at=utc("2026-12-24 17:00")), 5)
    assert once.sentence == "Once, at 2026-12-24 17:00:00 UTC"
    assert [fire.local.isoformat() for fire in once.fires] == ["2026-12-24T18:00:00+01:00"]
    done = preview_job(job(schedule=None, run_at=utc("2026-10-01"), next_run_at=None), 5)
    assert (done.fires, done.notes) == ((), ("its one slot is decided",))
    delayed = preview_job(job(schedule="@after 10m"), 5)
    assert (delayed.fires, delayed.sentence) == ((), "10 minutes after the last run ended")
    assert delayed.notes == ("its slots depend on when runs end, so none can be foreseen",)
