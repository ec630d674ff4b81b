"""The next 1,000 slots of imported triggers, compared with APScheduler's own."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pgsched.importers.apscheduler.cron import NotWritten
from pgsched.importers.apscheduler.pickles import read_pickle
from pgsched.importers.apscheduler.triggers import Plan, read_trigger
from pgsched.importers.imported import Reason
from tests.support.importing.slots import NOW, away_from_changes, imported_slots, near_changes

pytest.importorskip("apscheduler", reason="apscheduler is missing: pip install -e '.[sources]' (.ci/long does)")
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

COUNT = 1000
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
FIELDS = {
    "month": ["*", "1-6", "*/3", "feb-apr", "12"],
    "day": ["*", "1", "15", "last", "1-7", "*/10", "1st mon", "last fri", "2nd tue,4th tue", "1st sun,15", "29-31"],
    "day_of_week": ["*", "0", "mon-fri", "sat,sun", "0-4", "6"],
    "hour": ["*", "0", "2", "*/2", "8-17", "5/4"],
    "minute": ["0", "30", "*/15", "7-59/13"],
    "second": ["0", "*/20", "30"],
}


def library_slots(trigger: Any, count: int = COUNT) -> Iterator[datetime]:
    """Yield what the scheduler does: each run is the next fire time after the one before, each instant once."""
    previous, at = None, trigger.get_next_fire_time(None, NOW)
    for _ in range(count):
        if at is None or at > NOW + timedelta(days=366 * 39):
            return
        instant = at.astimezone(UTC)
        if instant != previous:
            yield instant
        previous, at = instant, trigger.get_next_fire_time(at, at)


def agreed_slots(trigger: Any, count: int = COUNT) -> Iterator[datetime]:
    """Yield when the triggers of an `and` agree, from each time on anew.

    With the previous run APScheduler 3.11 looks from that run on for ever, where the next times of its triggers differ.
    """
    at = NOW
    for _ in range(count):
        at = trigger.get_next_fire_time(None, at + timedelta(microseconds=1)).astimezone(UTC)
        yield at


def planned(trigger: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Plan:
    return read_trigger(read_pickle(pickle.dumps(trigger, protocol)), NOW)


def lost_by_the_library(slot: datetime, zone: str, changes: list[datetime]) -> bool:
    """Check whether APScheduler 3.11 misses a slot against its own documentation.

    It goes from day to day, or month to month, by elapsed hours. Where clocks were put forward in between it arrives at
    1:00, and misses what came before.
    """
    local = slot.astimezone(ZoneInfo(zone))
    return local.hour == 0 and any(timedelta(0) < slot - change < timedelta(days=370) for change in changes)


def compare(plan: Plan, trigger: Any, zone: str) -> None:
    ours, theirs = imported_slots(plan.columns, NOW - timedelta(microseconds=1), COUNT), list(library_slots(trigger))
    changes = near_changes(zone)
    if not all(remark.reason.informs for remark in plan.remarks):
        assert {one.reason for one in plan.remarks if not one.reason.informs} == {Reason.CLOCK_CHANGE}
        ours, theirs = away_from_changes(ours, zone), away_from_changes(theirs, zone)
    until = min(ours[-1], theirs[-1]) if ours and theirs else NOW
    known = {*theirs}
    ours = [slot for slot in ours if slot <= until and (slot in known or not lost_by_the_library(slot, zone, changes))]
    assert ours == [slot for slot in theirs if slot <= until]
    assert ours


@pytest.mark.parametrize("seed", range(30))
def test_cron_triggers_have_the_slots_of_apscheduler(seed: int) -> None:
    random.seed(seed)
    given = {name: random.choice(values) for name, values in FIELDS.items() if random.random() < 0.5}
    given.setdefault("second", "0")
    given.setdefault("minute", "15")
    zone = ZONES[seed % len(ZONES)]
    trigger = CronTrigger(timezone=zone, **given)
    try:
        plan = planned(trigger, protocol=seed % 6)
    except NotWritten as error:
        assert "must both match" in str(error) or "numbered weekday" in str(error)
        assert {"day", "day_of_week"} <= given.keys()
        return
    compare(plan, trigger, zone)


def test_years_start_and_end_are_kept() -> None:
    tz = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 8, 1, 12, tzinfo=tz), datetime(2027, 2, 1, 3, tzinfo=tz)
    trigger = CronTrigger(hour=3, year="2026-2028", start_date=start, end_date=end, timezone=tz)
    plan = planned(trigger)
    assert plan.columns["starts_at"] == start
    assert plan.columns["ends_at"] == end
    assert imported_slots(plan.columns, NOW) == list(library_slots(trigger))
    only = CronTrigger(year=2027, month="*/4", day=1, hour=12, timezone=tz)
    assert imported_slots(planned(only).columns, NOW) == list(library_slots(only))


@pytest.mark.parametrize(
    "trigger",
    [
        IntervalTrigger(minutes=5, timezone="UTC"),
        IntervalTrigger(seconds=90, start_date=datetime(2026, 1, 1, 12, 0, 1, 500_000, tzinfo=UTC)),
        IntervalTrigger(weeks=1, start_date=datetime(2026, 3, 1, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))),
        IntervalTrigger(days=2, start_date=datetime(2027, 1, 1, tzinfo=UTC), end_date=datetime(2028, 1, 1, tzinfo=UTC)),
    ],
)
def test_intervals_have_the_slots_of_apscheduler(trigger: Any) -> None:
    plan = planned(trigger)
    assert plan.remarks == []
    ours = imported_slots(plan.columns, NOW - timedelta(microseconds=1))
    assert [round(one.timestamp(), 3) for one in ours] == [round(one.timestamp(), 3) for one in library_slots(trigger)]


def test_a_date_is_one_instant() -> None:
    at = datetime(2030, 1, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    assert planned(DateTrigger(at)).columns == {"run_at": at}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_combined_triggers_have_the_slots_of_apscheduler(zone: str) -> None:
    morning, friday = CronTrigger(hour=9, timezone=zone), CronTrigger(day="last fri", hour=17, timezone=zone)
    either = OrTrigger([morning, friday])
    compare(planned(either), either, zone)
    both = AndTrigger([CronTrigger(hour="*/3", day="1-7", timezone=zone), CronTrigger(hour="6-12", timezone=zone)])
    plan = planned(both)
    assert plan.remarks == []
    assert imported_slots(plan.columns, NOW) == list(agreed_slots(both))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("given", [{"days": 1}, {"weeks": 1}, {"months": 1}, {"months": 3}, {"years": 1}, {"days": 7}])
def test_calendar_intervals_have_the_slots_of_apscheduler(zone: str, given: dict[str, int]) -> None:
    trigger = CalendarIntervalTrigger(**given, hour=2, minute=30, start_date=date(2026, 6, 15), timezone=zone)
    compare(planned(trigger), trigger, zone)


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (CronTrigger(week="1-10", hour=3, timezone="UTC"), "weeks of the year"),
        (CronTrigger(year="*/2", month=1, timezone="UTC"), "years that are not one after the other"),
        (CronTrigger(day=13, day_of_week="fri", timezone="UTC"), "must both match"),
        (CronTrigger(day="1st mon", day_of_week="fri", timezone="UTC"), "numbered weekday"),
        (CronTrigger(day=30, month=2, timezone="UTC"), "never fires"),
        (IntervalTrigger(seconds=1.5, timezone="UTC"), "no number of seconds"),
        (OrTrigger([CronTrigger(hour=1, timezone="UTC"), IntervalTrigger(hours=1, timezone="UTC")]), "IntervalTrigger"),
        (
            OrTrigger([CronTrigger(hour=1, timezone=name) for name in ("UTC", "Asia/Tokyo")]),
            "different zones",
        ),
        (AndTrigger([CronTrigger(hour=1, timezone="UTC"), CronTrigger(hour=2, timezone="UTC")]), "never agree"),
        (CalendarIntervalTrigger(days=3, timezone="UTC"), "calendar interval"),
        (CronTrigger(hour=1, timezone=ZoneInfo("UTC"), jitter=100_000), "jitter"),
    ],
)
def test_what_no_schedule_means_is_named(trigger: Any, words: str) -> None:
    with pytest.raises(NotWritten, match=words):
        planned(trigger)


def test_zones_of_pytz_and_fixed_offsets_are_read() -> None:
    pytz = pytest.importorskip("pytz", reason="pytz is missing: pip install -e '.[sources]' (.ci/long does)")
    from pgsched.importers.apscheduler.times import read_datetime, read_zone

    for tz, name in (
        (pytz.utc, "UTC"), (pytz.timezone("Europe/Berlin"), "Europe/Berlin"), (pytz.FixedOffset(120), "Etc/GMT-2"),
    ):  # fmt: skip
        for protocol in (0, 2, 5):
            assert read_zone(read_pickle(pickle.dumps(tz, protocol))) == name
    local = pytz.timezone("Europe/Berlin").localize(datetime(2026, 7, 1, 12))
    assert read_datetime(read_pickle(pickle.dumps(local, 2))) == local
