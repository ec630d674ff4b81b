"""The slots of imported timers are those of systemd, by systemd.time(7) restated."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgsched.importers.imported import Imported, Reason
from pgsched.importers.systemd.calendar_events import EventRefused, parse_event
from pgsched.importers.systemd.timers import TimerOptions, import_timers
from pgsched.importers.systemd.units import UnitFiles
from tests.support.fuzz.profile import examples
from tests.support.importing.slots import away_from_changes, imported_slots
from tests.support.importing.systemd_time import SystemdEvent
from tests.support.importing.timer_events import ANY_EVENT, EVENTS, INEXPRESSIBLE

START = datetime(2026, 3, 27, 21, 7, 30, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]
SERVICE = "[Service]\nType=oneshot\nExecStart=/bin/true\n"


def read(*lines: str, zone: str = "UTC", service: str = SERVICE) -> Imported:
    texts = {"a.timer": "[Timer]\n" + "\n".join(lines) + "\n", "a.service": service}
    return import_timers(UnitFiles(texts), TimerOptions(zone, START))


@pytest.mark.few(5)
@pytest.mark.parametrize("event", EVENTS)
def test_the_next_thousand_slots_are_those_of_systemd(event: str) -> None:
    for zone in ZONES:
        job = read(f"OnCalendar={event}", zone=zone).jobs[0]
        ours, theirs = imported_slots(job.columns, START, 1000), SystemdEvent(event, zone).slots(START, 1000)
        reasons = {remark.reason for remark in job.remarks}
        changes = {Reason.CLOCK_CHANGE, Reason.CLOCK_CHANGE_KEPT}
        assert reasons <= {*changes, Reason.REPETITION} and (zone != "UTC" or not reasons & changes)
        if Reason.CLOCK_CHANGE in reasons:
            last = min(ours[-1], theirs[-1])
            ours, theirs = (away_from_changes([s for s in one if s <= last], zone) for one in (ours, theirs))
        assert ours == theirs, (zone, job.columns["schedule"])


@pytest.mark.parametrize("event", INEXPRESSIBLE)
def test_what_no_cron_expression_means_becomes_no_job(event: str) -> None:
    imported = read(f"OnCalendar={event}")
    assert imported.jobs == []
    assert [(one.where, one.remark.reason) for one in imported.omitted] == [("a.timer", Reason.SCHEDULE)]


@examples(50, 200)
@given(ANY_EVENT, st.sampled_from(ZONES))
def test_any_event_has_the_slots_of_systemd_or_a_reason(event: str, zone: str) -> None:
    imported = read(f"OnCalendar={event}", zone=zone)
    if not imported.jobs:
        assert imported.omitted[0].remark.reason is Reason.SCHEDULE
        return
    job = imported.jobs[0]
    if any(remark.reason is Reason.CLOCK_CHANGE for remark in job.remarks):
        return
    assert imported_slots(job.columns, START, 60) == SystemdEvent(event, zone).slots(START, 60), job.columns["schedule"]


def test_most_events_are_expressible() -> None:
    jobs = [read(f"OnCalendar={event}") for event in EVENTS]
    assert all(one.jobs for one in jobs)


@pytest.mark.parametrize("event", [
    "*:*/5", "Fri..Mon", "12", "*-*-~1", "1969-01-01", "24:00", "*-*-32", "*-13-1", "10:00:60", "10..8:00", "10:",
    "*-*-31/2", "*-*~31", "5..3/1:00", "*-*~1/7", "*:59/2", "Mon Tue", "*-*-0", "*-*~0", "", "today", "+5", "Fun 10:00",
    "*-*-* 5", "0:0/0", "a" * 5000, "*:1e3", "Europe/Berlin", "10:00 Nowhere/Else", "@99999999999999",
])  # fmt: skip
def test_what_systemd_refuses_is_refused(event: str) -> None:
    with pytest.raises(EventRefused):
        parse_event(event)


@pytest.mark.parametrize(("event", "runs_over"), [
    ("0/7:00", True), ("0/6:00", False), ("*:0/7", True), ("*:0/15", False), ("*:5/10", False), ("*:0..59/7", False),
    ("*-*-1/3", True), ("*-*-1/1", False), ("*:*:0/7", True), ("*:*:0/30", False), ("*-1/5-1", False),
    ("1,2/5:00", True),
])  # fmt: skip
def test_a_repetition_that_runs_over_its_day_has_a_remark(event: str, runs_over: bool) -> None:
    job = read(f"OnCalendar={event}").jobs[0]
    assert [remark.reason for remark in job.remarks] == [Reason.REPETITION] * runs_over and job.exact


def test_several_events_are_one_schedule() -> None:
    columns = read("OnCalendar=daily", "OnCalendar=Mon 12:00", "OnCalendar=*-*-* 0:00").jobs[0].columns
    assert columns["schedule"] == "0 0 * * *; 0 12 * * mon"


def test_an_empty_setting_takes_the_others_away() -> None:
    columns = read("OnCalendar=daily", "OnBootSec=5min", "OnCalendar=", "OnCalendar=weekly").jobs[0].columns
    assert columns["schedule"] == "0 0 * * mon"


def test_a_zone_in_the_event_is_the_zone_of_the_job() -> None:
    columns = read("OnCalendar=daily Asia/Tokyo", zone="Europe/Berlin").jobs[0].columns
    assert (columns["schedule"], columns["timezone"]) == ("0 0 * * *", "Asia/Tokyo")
    two = read("OnCalendar=daily UTC", "OnCalendar=daily Asia/Tokyo").jobs
    assert [(job.name, job.columns["timezone"], job.exact) for job in two] == [
        ("a", "UTC", True), ("a-2", "Asia/Tokyo", False),
    ]  # fmt: skip


def test_years_are_bounds() -> None:
    columns = read("OnCalendar=2027..2028-*-* 3:00", zone="Europe/Berlin").jobs[0].columns
    assert columns["starts_at"] == datetime(2026, 12, 31, 23, 0, tzinfo=UTC)
    assert columns["ends_at"] == datetime(2028, 12, 31, 22, 59, 59, tzinfo=UTC)
    assert len(imported_slots(columns, START, 1000)) == 365 + 366
    assert "ends_at" not in read("OnCalendar=2027/1-1-1").jobs[0].columns
    for event in ("2027/2-*-*", "2020-*-*", "2020-01-01 10:00"):
        assert read(f"OnCalendar={event}").omitted[0].remark.reason is Reason.SCHEDULE


def test_an_instant_is_a_job_that_runs_once() -> None:
    columns = read("OnCalendar=2030-01-01 3:00:30", zone="Europe/Berlin").jobs[0].columns
    assert columns["run_at"] == datetime(2030, 1, 1, 2, 0, 30, tzinfo=UTC) and "schedule" not in columns


def test_a_sub_daily_timer_pauses_in_the_repeated_hour_as_systemd_s_does() -> None:
    job = read("OnCalendar=*:0/15", zone="Europe/Berlin").jobs[0]
    assert job.columns["schedule"] == "0-59/15 0-23 * * *" and job.exact
    assert "2026-10-25" in job.remarks[0].text and "*/15 * * * *" in job.remarks[0].text
    for event in ("2:30", "*:30"):
        job = read(f"OnCalendar={event}", zone="Europe/Berlin").jobs[0]
        assert [remark.reason for remark in job.remarks] == [Reason.CLOCK_CHANGE] and not job.exact
