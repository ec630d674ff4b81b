"""Schedules and their slots: one table of examples for each rule of cron expressions, intervals and time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(expression: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    """Return the first slots after an instant as UTC texts, with seconds only where they are not 0."""
    found = islice(parse(expression, zone).between(utc(start), datetime.max.replace(tzinfo=UTC)), count)
    return [f"{slot:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for slot in found]


def refusal(expression: str, zone: str = "UTC") -> str:
    with pytest.raises(ScheduleError) as caught:
        parse(expression, zone)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.reason}"
    return str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * jan MON-fri", "0 0 * 1 1-5"),
        ("0 0 * * FRI-SUN", "0 0 * * 0,5,6"),
        ("0 0 * * FRI-7", "0 0 * * 0,5,6"),
        ("0 0 * * FRI-0", "0 0 * * 0,5,6"),
        ("0 0 * * 1-7/3", "0 0 * * 0,1,4"),
        ("0 0 * * SUN-SUN", "0 0 * * 0"),
        ("0 12-12 * * *", "0 12 * * *"),
        ("50/5 * * * *", "50-59/5 * * * *"),
        ("59/15 * * * *", "59 * * * *"),
        ("0 0 20/5 * *", "0 0 20,25,30 * *"),
        ("05 00 * * *", "5 0 * * *"),
        (" 0\t0  * * *  ", "0 0 * * *"),
        ("0 0 31W * *", "0 0 LW * *"),
        ("0 0 W15 * *", "0 0 15W * *"),  # as croniter spells it, too
        ("0 0 1W,w15 * *", "0 0 15W,1W * *"),
        ("0 0 * * L5", "0 0 * * 5L"),
        ("0 0 * * l7,MON", "0 0 * * MON,SUNL"),
        ("@yearly", "0 0 1 1 *"),
        ("@Monthly", "0 0 1 * *"),
        ("@WEEKLY", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("0 30 2 * * *", "30 2 * * *"),
        ("@every 90s", "@every 1m30s"),
        ("@every 1d", "@EVERY 24H"),
    ],
)
def test_two_spellings_of_one_schedule_have_the_same_slots(one: str, other: str) -> None:
    assert slots(one, "2026-01-01 00:00", 40) == slots(other, "2026-01-01 00:00", 40)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L * *", ["2026-01-31 00:00", "2026-02-28 00:00", "2026-03-31 00:00"]),
        ("0 0 L,15 2 *", ["2026-02-15 00:00", "2026-02-28 00:00", "2027-02-15 00:00"]),
        ("0 0 15W * *", ["2026-01-15 00:00", "2026-02-16 00:00", "2026-03-16 00:00"]),  # Thursday, Sunday, Sunday
        ("0 0 1W 8 *", ["2026-08-03 00:00", "2027-08-02 00:00"]),  # the 1st is a Saturday, and Friday lies in July
        ("0 0 LW * *", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
        ("0 0 1W,15W,L 2 *", ["2026-02-02 00:00", "2026-02-16 00:00", "2026-02-28 00:00"]),
        ("0 0 * * 5#3", ["2026-01-16 00:00", "2026-02-20 00:00", "2026-03-20 00:00"]),
        ("0 0 * * MON#5", ["2026-03-30 00:00", "2026-06-29 00:00", "2026-08-31 00:00"]),
        ("0 0 * * 0L", ["2026-01-25 00:00", "2026-02-22 00:00", "2026-03-29 00:00"]),
        ("0 0 * * friL", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-27 00:00"]),
        ("0 0 * 1 MON#1,WED", ["2026-01-05 00:00", "2026-01-07 00:00", "2026-01-14 00:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00", "2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 0 29 2 */7", ["2032-02-29 00:00", "2060-02-29 00:00", "2088-02-29 00:00", "2128-02-29 00:00"]),
        ("*/40 59 23 * * *", ["2026-01-01 23:59", "2026-01-01 23:59:40", "2026-01-02 23:59"]),
    ],
)
def test_each_form_of_day_selects_the_right_days(expression: str, expected: list[str]) -> None:
    assert slots(expression, "2026-01-01 00:00", len(expected)) == expected


@pytest.mark.parametrize(
    ("rule", "expression", "days"),
    [
        ("either", "0 0 13 2 FRI", [6, 13, 20, 27]),
        ("either", "0 0 10 2 FRI#1", [6, 10]),
        ("either", "0 0 10 2 MONL", [10, 23]),
        ("either", "0 0 L 2 MON#1", [2, 28]),
        ("either", "0 0 15W 2 TUE#1", [3, 16]),
        ("either", "0 0 1-31 2 FRI#1", list(range(1, 29))),
        ("either", "0 0 30 2 FRI", [6, 13, 20, 27]),
        ("both", "0 0 * 2 FRI", [6, 13, 20, 27]),
        ("both", "0 0 */2 2 FRI", [13, 27]),
        ("both", "0 0 13,20,21 2 */5", [13, 20]),
        ("both", "0 0 */10 2 SAT#3,SAT#4", [21]),
        ("both", "0 0 L 2 */6", [28]),
        ("both", "0 0 2W,20W 2 */5", [20]),
        ("both", "0 0 */2,6 2 FRI", [6, 13, 27]),
        ("one field", "0 0 2-31,L 2 *", list(range(2, 29))),
        ("one field", "0 0 1-26,28-31,L 2 *", [n for n in range(1, 29) if n != 27]),
    ],
)
def test_days_must_match_both_fields_if_one_starts_with_a_star_else_either(
    rule: str, expression: str, days: list[int]
) -> None:
    found = parse(expression).between(utc("2026-01-31 23:59"), utc("2026-02-28 23:59"))
    assert [slot.day for slot in found] == days, rule


BERLIN, HOWE, CHATHAM = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Chatham"
SANTIAGO, APIA = "America/Santiago", "Pacific/Apia"


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        # 2026-03-29 in Berlin: 02:00 to 03:00 is skipped at 01:00 UTC
        (BERLIN, "30 2 * * *", "2026-03-28 02:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        (BERLIN, "15,30,45 2 * * *", "2026-03-28 02:00", ["2026-03-29 01:00", "2026-03-30 00:15"]),
        (BERLIN, "30 2,3 * * *", "2026-03-28 03:00", ["2026-03-29 01:00", "2026-03-29 01:30"]),
        (BERLIN, "30 2 29 3 *", "2026-01-01 00:00", ["2026-03-29 01:00", "2027-03-29 00:30"]),
        (BERLIN, "0,30 2,3 * * *", "2026-03-28 03:00", ["2026-03-29 01:00", "2026-03-29 01:30", "2026-03-30 00:00"]),
        (BERLIN, "*/30 2 * * *", "2026-03-28 02:00", ["2026-03-30 00:00", "2026-03-30 00:30"]),
        (BERLIN, "30 * * * *", "2026-03-29 00:00", ["2026-03-29 00:30", "2026-03-29 01:30"]),
        # 2026-10-25 in Berlin: 02:00 to 03:00 comes twice, from 00:00 and from 01:00 UTC
        (BERLIN, "30 2 * * *", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        (BERLIN, "0 2,3 * * *", "2026-10-24 12:00", ["2026-10-25 00:00", "2026-10-25 02:00", "2026-10-26 01:00"]),
        (BERLIN, "30 2 * * *", "2026-10-25 01:10", ["2026-10-26 01:30"]),
        (BERLIN, "*/30 2 * * *", "2026-10-24 12:00", [f"2026-10-25 0{h}:{m}" for h in (0, 1) for m in ("00", "30")]),
        (BERLIN, "@hourly", "2026-10-24 23:00", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]),
        (BERLIN, "* 30 2 * * *", "2026-10-25 00:30:58", ["2026-10-25 00:30:59", "2026-10-25 01:30"]),
        (BERLIN, "@daily", "2026-10-24 12:00", ["2026-10-24 22:00", "2026-10-25 23:00"]),
        # a change of half an hour: 02:00 to 02:30 skipped on 2026-10-04, 01:30 to 02:00 repeated on 2026-04-05
        (HOWE, "15 2 * * *", "2026-10-03 12:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        (HOWE, "45 1 * * *", "2026-04-04 12:00", ["2026-04-04 14:45", "2026-04-05 15:15"]),
        (HOWE, "*/45 1 * * *", "2026-04-04 14:10", ["2026-04-04 14:45", "2026-04-04 15:15"]),
        # 02:45 to 03:45 skipped at 14:00 UTC
        (CHATHAM, "0 3 * * *", "2026-09-26 00:00", ["2026-09-26 14:00", "2026-09-27 13:15"]),
        # midnight itself does not exist on 2026-09-06, and comes twice on 2026-04-05 (as 23:xx of the 4th)
        (SANTIAGO, "0 0 * * *", "2026-09-05 12:00", ["2026-09-06 04:00", "2026-09-07 03:00"]),
        (SANTIAGO, "30 23 * * *", "2026-04-04 12:00", ["2026-04-05 02:30", "2026-04-06 03:30"]),
        ("Africa/Cairo", "@daily", "2026-04-23 12:00", ["2026-04-23 22:00", "2026-04-24 21:00"]),
        ("Asia/Beirut", "@daily", "2026-03-28 12:00", ["2026-03-28 22:00", "2026-03-29 21:00"]),
        # the whole of 2011-12-30 is skipped
        (APIA, "0 9,15 * * *", "2011-12-30 05:00", ["2011-12-30 10:00", "2011-12-30 19:00"]),
        (APIA, "0 */8 * * *", "2011-12-30 03:00", ["2011-12-30 10:00", "2011-12-30 18:00"]),
        # beyond the last change that a zone file lists
        (BERLIN, "30 2 * * *", "2099-03-28 12:00", ["2099-03-29 01:00", "2099-03-30 00:30"]),
    ],
)
def test_over_a_clock_change_fixed_times_run_once_and_wildcards_in_real_time(
    zone: str, expression: str, start: str, expected: list[str]
) -> None:
    assert slots(expression, start, len(expected), zone) == expected


def test_every_counts_elapsed_time_from_its_anchor() -> None:
    schedule = parse("@every 90s", BERLIN, utc("2026-03-29 00:59:10"))
    found = list(islice(schedule.between(utc("2026-03-29 00:59:10"), utc("2026-03-30 00:00")), 2))
    assert found == [utc("2026-03-29 01:00:40"), utc("2026-03-29 01:02:10")]
    assert schedule.after(utc("2020-01-01 00:00")) == utc("2026-03-29 00:59:10")


def test_every_without_an_anchor_counts_from_1970() -> None:
    assert parse("@every 1h30m").after(utc("1970-01-01 00:00")) == utc("1970-01-01 01:30")


def test_every_24h_is_not_daily() -> None:
    assert slots("@every 24h", "2026-03-28 12:00", 2, BERLIN) == ["2026-03-29 00:00", "2026-03-30 00:00"]
    assert slots("@daily", "2026-03-28 12:00", 2, BERLIN) == ["2026-03-28 23:00", "2026-03-29 22:00"]


def test_after_is_a_delay_without_slots() -> None:
    schedule = parse("@after 1d2h3m4s")
    assert schedule.fixed_delay == timedelta(days=1, hours=2, minutes=3, seconds=4)
    assert schedule.after(utc("2026-01-01 00:00")) is None
    assert list(schedule.between(utc("2026-01-01 00:00"), utc("2027-01-01 00:00"))) == []
    assert parse("* * * * *").fixed_delay is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("0 0 * *", "schedule: expected 5 or 6 fields, got 4"),
        ("", "schedule: expected 5 or 6 fields, got 0"),
        ("0 0 0 * * * 2026", "schedule: expected 5 or 6 fields, got 7"),
        ("61 * * * *", "minute: 61 is out of range 0-59"),
        ("60 * * * * *", "second: 60 is out of range 0-59"),
        ("* 24 * * *", "hour: 24 is out of range 0-23"),
        ("* * 0 * *", "day of month: 0 is out of range 1-31"),
        ("* * 32W * *", "day of month: 32 is out of range 1-31"),
        ("* * * 13 *", "month: 13 is out of range 1-12"),
        ("* * * * 8", "day of week: 8 is out of range 0-7"),
        ("1,,2 * * * *", 'minute: empty item in "1,,2"'),
        ("* 22-2 * * *", "hour: range 22-2 runs backwards"),
        ("* * * NOV-FEB *", "month: range NOV-FEB runs backwards"),
        ("* * * * FRI-MON", "day of week: range FRI-MON runs backwards"),
        ("* * * * 7-2", "day of week: range 7-2 runs backwards"),
        ("*/0 * * * *", "minute: step 0 must be at least 1"),
        ("*/61 * * * *", "minute: step 61 is larger than the field (60 values)"),
        ("*/x * * * *", 'minute: step "x" is not a number'),
        ("H * * * *", 'minute: "H" is not supported'),
        ("H(1-5)/2 * * * *", 'minute: "H(1-5)/2" is not supported'),
        ("* R * * *", 'hour: "R" is not supported'),
        ("0 0 ? * *", 'day of month: "?" is not supported'),
        ("-5 * * * *", 'minute: "-5" is not a number'),
        ("jan * * * *", 'minute: "jan" is not a number'),
        ("0 0 * JANUARY *", 'month: "JANUARY" is not a number or a name'),
        ("0 0 L-3 * *", 'day of month: "L" is not a number'),
        ("0 0 * * L", 'day of week: "L" is not a number or a name'),
        ("0 0 * * 5#6", 'day of week: "5#6" needs a number from 1 to 5 after #'),
        ("@reboot", 'schedule: "@reboot" is not supported'),
        ("@fortnightly", 'schedule: "@fortnightly" is not a known macro'),
        ("@daily 5", "schedule: @daily takes nothing after it"),
        ("TZ=UTC 0 0 * * *", 'schedule: "TZ=UTC" is not supported, set timezone instead'),
        ("CRON_TZ=UTC 0 0 * * *", 'schedule: "CRON_TZ=UTC" is not supported, set timezone instead'),
        ("@every", "schedule: @every needs one duration such as 90s or 1h30m"),
        ("@every 1.5h", 'schedule: "1.5h" is not a duration such as 90s or 1h30m'),
        ("@every 30m1h", 'schedule: "30m1h" is not a duration such as 90s or 1h30m'),
        ("@every 0s", 'schedule: "0s" is shorter than 1s'),
        ("@after 10001d", 'schedule: "10001d" is longer than 10000d'),
        ("٣ * * * *", "schedule: only printable ASCII is accepted"),
        ("0 0 * * *\n", "schedule: only printable ASCII is accepted"),
        ("0 0 * * *" + " " * 504, "schedule: longer than 512 characters"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_field_and_the_reason(expression: str, text: str) -> None:
    assert refusal(expression) == text


@pytest.mark.parametrize(
    "expression",
    ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2", "0 0 15W * */7", "0 0 */31 * 1#5", "0 0 LW * */6"],
)
def test_a_schedule_without_any_day_never_fires(expression: str) -> None:
    assert refusal(expression) == "schedule: never fires: no month has such a day"


def test_a_wildcard_whose_times_are_all_skipped_by_clocks_never_fires() -> None:
    assert refusal("* 2 * 3 SUNL", BERLIN) == "schedule: never fires: Europe/Berlin skips every such time"
    assert slots("30 2 * 3 SUNL", "2026-01-01 00:00", 1, BERLIN) == ["2026-03-29 01:00"]


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Phobos",
        "localtime",
        "posix/UTC",
        "../UTC",
        "EST5EDT,M3.2.0,M11.1.0",
        "<+03>-3",
        "CEST",
        "utc",
        "europe/berlin",
        "Europe",
    ],
)
def test_a_time_zone_that_iana_does_not_know_is_refused(zone: str) -> None:
    said = refusal("0 0 * * *", zone) or ""
    assert said.partition("; did you mean")[0] == f'timezone: "{zone}" is not a known IANA zone'


def test_an_instant_without_a_time_zone_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        parse("0 0 * * *").after(datetime(2026, 1, 1))


def test_there_is_no_slot_after_the_year_9999() -> None:
    assert parse("0 0 1 1 *").after(utc("9999-06-01 00:00")) is None
    assert parse("@every 10000d").after(utc("9999-06-01 00:00")) is None


def test_an_equal_expression_and_zone_are_parsed_once() -> None:
    assert parse("7 3 * * *", BERLIN) is parse("7 3 * * *", BERLIN, utc("2026-01-01 00:00"))
    assert parse("7 3 * * *", BERLIN) is not parse("7 3 * * *")
