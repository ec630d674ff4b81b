"""The slots of imported CronJobs are those of the controller, by the rules of robfig/cron restated."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgsched.importers.imported import Reason
from pgsched.importers.kubernetes.schedules import ScheduleRefused, translate_schedule
from tests.support.fuzz.profile import examples
from tests.support.importing.robfig import Robfig
from tests.support.importing.slots import imported_slots

START = datetime(2026, 3, 27, 21, 7, 30, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
SCHEDULES = [
    "* * * * *", "*/5 * * * *", "15 2 * * *", "0 */6 * * *", "30 1-5 * * *", "0,30 2 * * *", "*/90 * * * *",
    "5/20 3 * * *", "0 0 1,15 * 5", "0 0 */2 * 1", "0 0 1-7 * */2", "0 0 ? * 3", "0 0 1 * ?", "0 0 * * 1-5",
    "0 12 * jan,JUL mon", "0 0 */2 * */3", "0 0 29 2 *", "0 0 31 * *", "@hourly", "@daily", "@weekly", "@monthly",
    "@yearly", "0 0 *,5 * 1", "0 0 5,* * 1", "1,,2 3 * * *", "0 0 10/7 * *", "0 0 * * 2/2", "7-50/90 1 * * *",
    "0 8-18/2 * * SUN", "0 0 */1 * 1",
]  # fmt: skip


def ours(schedule: str, zone: str, count: int) -> list[datetime]:
    found = translate_schedule(schedule, zone, START)
    assert all(remark.reason is Reason.CLOCK_CHANGE_KEPT for remark in found.remarks)
    return imported_slots({"schedule": found.schedule, "timezone": found.timezone}, START, count)


@pytest.mark.few(7)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_next_thousand_slots_are_those_of_kubernetes(schedule: str) -> None:
    for zone in ZONES:
        assert ours(schedule, zone, 1000) == Robfig(schedule, zone).slots(START, 1000), zone


def field(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.sampled_from(["", "", "/1", "/2", "/7", "/61"])
    body = st.one_of(number.map(str), ranges, st.sampled_from(["*", "?"]), *([st.sampled_from(names)] if names else []))
    return st.one_of(st.just("*"), st.lists(st.tuples(body, step).map("".join), min_size=1, max_size=3).map(",".join))


ANY = st.tuples(
    field(0, 59), field(0, 23), field(1, 31), field(1, 12, ("jan", "Dec")), field(0, 6, ("sun", "FRI"))
).map(" ".join)


@examples(50, 150)
@given(ANY, st.sampled_from(ZONES))
def test_any_schedule_has_the_slots_of_kubernetes(schedule: str, zone: str) -> None:
    try:
        found = ours(schedule, zone, 60)
    except ScheduleRefused as refusal:  # 31 February
        assert refusal.remark.reason is Reason.SCHEDULE
        assert Robfig(schedule).slots(START, 1) == []
        return
    assert found == Robfig(schedule, zone).slots(START, 60)


@pytest.mark.parametrize("schedule", [
    "0 0 * * 7", "60 * * * *", "0 0 0 * *", "0 0 * * monday", "* * * *", "* * * * * *", "", "@fortnightly", "@reboot",
    "*/0 * * * *", "0 5-3 * * *", "0 0 * * 5-0", "L * * * *", "@every", "@every 5", "@daily x", "1-2-3 * * * *",
    ", * * * *", "TZ=Nowhere/Else 0 0 * * *", "@every 999999999h", "0 0 30 2 *", "9" * 600,
])  # fmt: skip
def test_what_kubernetes_refuses_is_refused(schedule: str) -> None:
    with pytest.raises(ScheduleRefused):
        translate_schedule(schedule, "UTC", START)


@pytest.mark.parametrize(("text", "schedule"), [
    ("@every 1h30m", "@every 1h30m"), ("@every 90s", "@every 1m30s"), ("@every 1.5h", "@every 1h30m"),
    ("@every 100ms", "@every 1s"), ("@every 24h", "@every 1d"),
])  # fmt: skip
def test_intervals(text: str, schedule: str) -> None:
    found = translate_schedule(text, "UTC", START)
    assert (found.schedule, [remark.reason for remark in found.remarks]) == (schedule, [Reason.ANCHOR])


def test_a_fixed_time_runs_as_in_kubernetes_when_clocks_change() -> None:
    found = translate_schedule("30 2 * * *", "Europe/Berlin", START)
    assert found.schedule == "*/60 30 2 * * *" and [one.reason for one in found.remarks] == [Reason.CLOCK_CHANGE_KEPT]
    assert "30 2 * * * runs once on each day" in found.remarks[0].text
    assert translate_schedule("30 4 * * *", "Europe/Berlin", START).remarks == []


def test_a_zone_in_the_schedule_counts() -> None:
    found = translate_schedule("CRON_TZ=Asia/Tokyo 0 9 * * *", "UTC", START)
    assert (found.schedule, found.timezone) == ("0 9 * * *", "Asia/Tokyo")
    assert [remark.reason for remark in found.remarks] == [Reason.TIME_ZONE]
