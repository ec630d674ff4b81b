"""Several expressions are one schedule: the union of their slots, each by its own rule at clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.describe import describe
from pgsched.core.schedule.preview import next_slots
from pgsched.core.schedule.union import MOST_COMPARED
from pgsched.errors import ScheduleError
from tests.support.fuzz.profile import examples
from tests.support.simulation.drawn import ZONES, crons, moments

BERLIN = "Europe/Berlin"
# as typed, with a chance that two parts name one instant
PARTS = [
    "0 9 * * *",
    "0 */3 * * *",
    "30 2 * * *",
    "*/30 2 * * *",
    "30 2,3 * * SUN",
    "0 12 L * *",
    "@hourly",
    "15,30 2 * * *",
]
parts = st.lists(st.one_of(st.sampled_from(PARTS), crons), min_size=2, max_size=4)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@examples(50, 150)
@given(parts, st.sampled_from(ZONES), moments, st.timedeltas(timedelta(0), timedelta(days=3)))
def test_the_slots_are_the_union_of_those_of_the_parts(
    texts: list[str], zone: str, start: datetime, length: timedelta
) -> None:
    try:
        members = [parse(text, zone) for text in texts]
    except ScheduleError:
        return
    end = start + length
    expected = sorted({slot for member in members for slot in islice(member.between(start, end), 1000)})[:1000]
    end = expected[-1] if len(expected) == 1000 else end
    union = parse(" ; ".join(texts), zone)
    assert list(union.between(start, end)) == expected
    assert union.after(start) == min(filter(None, (member.after(start) for member in members)), default=None)
    assert union.count(start, end) == len(expected)
    assert union.last(start, end) == (expected[-1] if expected else None)


def test_slots_of_frequent_parts_are_not_compared_one_by_one() -> None:
    start, end = utc("2026-01-01"), utc("2026-01-02")
    assert parse("* * * * * *;0 0 * * *").count(start, end) == 86_400
    assert parse("* * * * * *;30 * * * * *;0 * * * * *").count(start, end) == 86_400
    assert parse("* * * * * *;* * * * * *").count(start, end) is None
    assert MOST_COMPARED < 86_400


def test_one_expression_stays_what_it_was() -> None:
    assert type(parse("0 9 * * *")) is not type(parse("0 9 * * *;0 10 * * *"))
    assert parse("0 9 * * *", BERLIN) is parse("0 9 * * *", BERLIN)


def test_each_part_keeps_its_rule_at_clock_changes() -> None:
    """A fixed time inside the gap runs at its end; a wildcard's times in it do not exist."""
    union = parse("30 2 * * *;15 * * * *", BERLIN)
    spring = list(union.between(utc("2026-03-29 00:20"), utc("2026-03-29 02:00")))
    assert [f"{slot:%H:%M}" for slot in spring] == ["01:00", "01:15"]
    autumn = list(union.between(utc("2026-10-25 00:00"), utc("2026-10-25 02:00")))
    assert [f"{slot:%H:%M}" for slot in autumn] == ["00:15", "00:30", "01:15"]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("0 9 * * *;", 'schedule: an expression beside ";" is empty'),
        ("0 9 * * *;@every 5m", 'schedule: @every stands alone, without ";"'),
        ("0 9 * * *; 0 25 * * *", 'hour: 25 is out of range 0-23 (in "0 25 * * *")'),
        ("0 9 * * *; 0 0 30 2 *", 'schedule: never fires: no month has such a day (in "0 0 30 2 *")'),
        (";".join(["@daily"] * 21), "schedule: 21 expressions, at most 20 are allowed"),
    ],
)
def test_a_refusal_names_the_part(expression: str, error: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse(expression)
    assert str(refused.value) == error


def test_a_description_names_the_zone_once() -> None:
    assert describe("0 9 * * MON;0 18 * * *", BERLIN) == (
        "At 09:00 every Monday; at 18:00 every day; all in Europe/Berlin time"
    )
    assert describe("*/5 * * * *;0-59/15 * * * *", BERLIN) == "Every 5 minutes; every 15 minutes"
    assert describe("0 9 * * *;@hourly", "UTC") == "At 09:00 every day; every hour at minute 0; all in UTC"


def test_a_preview_gives_the_remarks_of_the_parts_that_have_the_slot() -> None:
    union = parse("30 2 * * *;15 * * * *", BERLIN)
    spring = [slot.remarks for slot in next_slots(union, utc("2026-03-29 00:30"), 2)]
    assert spring == [
        ("moved: the wall time 02:30 does not exist", "left out: the wall time 02:15 does not exist"), ()
    ]  # fmt: skip
    autumn = {f"{slot.at:%H:%M}": slot.remarks for slot in next_slots(union, utc("2026-10-25 00:00"), 3)}
    assert autumn == {
        "00:15": ("first of two: 02:15 comes twice",),
        "00:30": ("first of two: 02:30 comes twice, and only the first counts",),
        "01:15": ("second of two: 02:15 comes twice",),
    }
