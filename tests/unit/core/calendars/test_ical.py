"""Events of iCalendar files become times of a calendar; what is not understood is said, with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.calendars import ical
from pgsched.core.calendars.ical import read_ical
from pgsched.core.calendars.times import CalendarTime
from pgsched.errors import InputError

TODAY = date(2026, 6, 1)
BERLIN = ZoneInfo("Europe/Berlin")


def calendar(*events: str) -> str:
    """Return a file of these events, each given as lines between BEGIN and END."""
    inner = "\n".join(f"BEGIN:VEVENT\n{event}\nEND:VEVENT" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test\n{inner}\nEND:VCALENDAR\n".replace("\n", "\r\n")


def times(*lines: str, zone: ZoneInfo | None = None, years: int = 3) -> list[CalendarTime]:
    """Return the times of one event, which is understood."""
    read = read_ical(calendar("\n".join(lines)), TODAY, years, zone)
    assert read.remarks == []
    return read.times


def day(text: str) -> date:
    return date.fromisoformat(text)


def dates(*lines: str, years: int = 3) -> list[str]:
    """Return the first dates of the times of one event."""
    return [str(time.from_date) for time in times(*lines, years=years)]


def test_an_all_day_event_lasts_until_the_day_before_its_end() -> None:
    found = times("DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261227", "SUMMARY:Christmas")
    assert found == [CalendarTime(day("2026-12-24"), day("2026-12-26"), reason="Christmas")]
    assert times("DTSTART;VALUE=DATE:20261224") == [CalendarTime(day("2026-12-24"), day("2026-12-24"))]
    assert dates("DTSTART;VALUE=DATE:20261224", "DURATION:P1W") == ["2026-12-24"]


def test_a_timed_event_is_cut_at_midnight() -> None:
    first, last = day("2026-12-24"), day("2026-12-27")
    found = times("DTSTART:20261224T140000", "DTEND:20261227T063000", "SUMMARY:closed")
    assert found == [
        CalendarTime(first, first, None, "14:00:00", "24:00:00", "closed"),
        CalendarTime(day("2026-12-25"), day("2026-12-26"), reason="closed"),
        CalendarTime(last, last, None, "00:00:00", "06:30:00", "closed"),
    ]
    assert times("DTSTART:20261224T140000", "DURATION:PT90M")[0].until_time == "15:30:00"
    assert times("DTSTART:20261224T000000", "DTEND:20261225T000000") == [CalendarTime(first, first)]


def test_wall_clocks_of_other_zones_are_converted_where_a_zone_is_given() -> None:
    utc = ("DTSTART:20261224T230000Z", "DTEND:20261224T233000Z")
    found = times(*utc, zone=BERLIN)
    assert found == [CalendarTime(day("2026-12-25"), day("2026-12-25"), None, "00:00:00", "00:30:00")]
    york = ("DTSTART;TZID=America/New_York:20261224T090000", "DTEND;TZID=America/New_York:20261224T100000")
    assert times(*york, zone=BERLIN)[0].from_time == "15:00:00"
    assert times(*york)[0].from_time == "09:00:00"  # as it stands
    read = read_ical(calendar("\n".join(utc)), TODAY)
    assert (read.times, read.remarks) == (
        [], ["line 4: its times are in UTC: give the time zone of the calendar (--timezone)"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "rule", "expected"),
    [
        ("20201225", "FREQ=YEARLY", ["2025-12-25", "2026-12-25", "2027-12-25", "2028-12-25"]),
        ("20200229", "FREQ=YEARLY", ["2028-02-29"]),
        ("20201126", "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", ["2025-11-27", "2026-11-26", "2027-11-25", "2028-11-23"]),
        ("20200525", "FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO", ["2026-05-25", "2027-05-31", "2028-05-29", "2029-05-28"]),
        ("20260101", "FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3", ["2026-01-01", "2026-01-31", "2026-02-28"]),
        ("20260713", "FREQ=WEEKLY;INTERVAL=2;COUNT=3", ["2026-07-13", "2026-07-27", "2026-08-10"]),
        ("20260713", "FREQ=DAILY;INTERVAL=10;UNTIL=20260805", ["2026-07-13", "2026-07-23", "2026-08-02"]),
        ("20260713", "FREQ=WEEKLY;COUNT=4;BYDAY=MO,FR", ["2026-07-13", "2026-07-17", "2026-07-20", "2026-07-24"]),
    ],
)
def test_a_rule_is_written_out(start: str, rule: str, expected: list[str]) -> None:
    assert dates(f"DTSTART;VALUE=DATE:{start}", f"RRULE:{rule}") == expected


def test_a_rule_that_repeats_each_week_is_one_time() -> None:
    found = times("DTSTART:20260601T180000", "DTEND:20260601T200000", "RRULE:FREQ=WEEKLY;BYDAY=MO,FR")
    assert found == [CalendarTime(day("2026-06-01"), ical.LAST, (1, 5), "18:00:00", "20:00:00")]
    until = times("DTSTART;VALUE=DATE:20260601", "RRULE:FREQ=DAILY;UNTIL=20260610")
    assert until == [CalendarTime(day("2026-06-01"), day("2026-06-10"))]


def test_a_rule_repeats_in_the_zone_of_its_event() -> None:
    monday = ("DTSTART;TZID=America/New_York:20260105T200000", "DTEND;TZID=America/New_York:20260105T210000")
    found = times(*monday, "RRULE:FREQ=WEEKLY;BYDAY=MO", zone=BERLIN, years=1)
    assert {time.from_date.isoweekday() for time in found if time.from_date} == {2}  # Tuesday in Berlin
    begins = {str(time.from_date): time.from_time for time in found}
    # the clocks of New York change three weeks before those of Berlin
    assert [begins[day] for day in ("2026-03-03", "2026-03-10", "2026-03-31")] == ["02:00:00", "01:00:00", "02:00:00"]
    utc = times("DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;UNTIL=20260601T080000Z", zone=BERLIN)
    assert (utc[0].from_time, utc[-1].from_time, str(utc[-1].until_date)) == ("10:00:00", "11:00:00", "2026-05-31")
    same = times("DTSTART;TZID=Europe/Berlin:20260601T180000", "DURATION:PT1H", "RRULE:FREQ=DAILY", zone=BERLIN)
    assert same == [CalendarTime(day("2026-06-01"), ical.LAST, None, "18:00:00", "19:00:00")]


def test_an_event_in_the_hour_that_comes_twice_keeps_its_length() -> None:
    found = times("DTSTART:20261025T003000Z", "DTEND:20261025T013000Z", zone=BERLIN)
    assert found == [CalendarTime(day("2026-10-25"), day("2026-10-25"), None, "02:30:00", "03:30:00")]


def test_until_is_an_instant() -> None:
    york = ("DTSTART;TZID=America/New_York:20260504T090000", "DTEND;TZID=America/New_York:20260504T100000")
    rule = "RRULE:FREQ=WEEKLY;BYDAY=MO;UNTIL=20260601T035959Z"
    assert times(*york, rule)[0].until_date == day("2026-05-31")
    assert str(times(*york, rule, zone=BERLIN)[-1].from_date) == "2026-05-25"
    daily = ("DTSTART;TZID=Europe/Berlin:20260501T090000", "DURATION:PT1H")
    for until, last in (
        ("20260601T000000Z", "2026-05-31"),
        ("20260601T070000Z", "2026-06-01"),
        ("20260601", "2026-06-01"),
    ):
        assert str(times(*daily, f"RRULE:FREQ=DAILY;UNTIL={until}", zone=BERLIN)[0].until_date) == last
        assert dates(*daily, f"RRULE:FREQ=DAILY;INTERVAL=31;UNTIL={until}")[-1] == (
            "2026-06-01" if last > "2026-06" else "2026-05-01"
        )
    for_ever = times("DTSTART;VALUE=DATE:20260601", "RRULE:FREQ=DAILY;UNTIL=99991231T235959Z")
    assert for_ever == [CalendarTime(day("2026-06-01"), ical.LAST)]


def test_a_rule_that_is_over_gives_no_time() -> None:
    cut = ("DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=WEEKLY;UNTIL=20251231")
    old = ("DTSTART:20100104T090000", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;UNTIL=20121231T090000")
    assert times(*cut) == times(*old) == []


def test_weeks_begin_where_the_rule_says() -> None:
    sunday = ("DTSTART;VALUE=DATE:20260104", "RRULE:FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=SU,WE")
    assert dates(*sunday) == ["2026-01-04", "2026-01-14", "2026-01-18", "2026-01-28"]
    assert dates(sunday[0], sunday[1] + ";WKST=SU") == ["2026-01-04", "2026-01-07", "2026-01-18", "2026-01-21"]


def test_the_first_day_counts_though_the_rule_does_not_name_it() -> None:
    assert times("DTSTART;VALUE=DATE:20260601", "RRULE:FREQ=WEEKLY;BYDAY=TU") == [
        CalendarTime(day("2026-06-01"), day("2026-06-01")), CalendarTime(day("2026-06-01"), ical.LAST, (2,))
    ]  # fmt: skip


def test_a_rule_that_began_long_ago_still_repeats() -> None:
    found = dates("DTSTART;VALUE=DATE:19010101", "RRULE:FREQ=DAILY;BYMONTH=6", "EXDATE:20270610", years=1)
    assert (found[0], found[-1], len(found)) == ("2025-06-01", "2027-06-01", 61)


def test_what_the_rules_of_a_file_go_through_is_bounded() -> None:
    never = "DTSTART;VALUE=DATE:20260201\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"
    assert read_ical(calendar(*[never] * 300), TODAY).remarks == []
    with pytest.raises(InputError, match=r"^file: line 4: the rules of this file repeat too often$"):
        read_ical(calendar("\n".join(["DTSTART;VALUE=DATE:00200101", "RRULE:FREQ=DAILY;COUNT=9999;BYMONTH=2"])), TODAY)


def test_excluded_days_of_a_rule_are_left_out() -> None:
    rule = ("DTSTART;VALUE=DATE:20260601", "RRULE:FREQ=WEEKLY;COUNT=3", "EXDATE;VALUE=DATE:20260608")
    assert dates(*rule) == ["2026-06-01", "2026-06-15"]


@pytest.mark.parametrize(
    ("lines", "remark"),
    [
        ("SUMMARY:x", "it has no DTSTART"),
        ("DTSTART:2026", '"2026" is neither a date nor a time'),
        ("DTSTART;VALUE=DATE:20260230", '"20260230" is not in the calendar'),
        ("DTSTART;VALUE=DATE:20260202\nDTEND;VALUE=DATE:20260202", "it ends when it begins, or before"),
        ("DTSTART;VALUE=DATE:20260202\nDTEND:20260202T100000", "DTSTART and DTEND are not both dates, or both times"),
        ("DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=HOURLY", "RRULE with FREQ=HOURLY is not understood"),
        ("DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=YEARLY;BYEASTER=1", "RRULE with BYEASTER is not understood"),
        ("DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=MONTHLY;BYDAY=XX", 'RRULE "FREQ=MONTHLY;BYDAY=XX" is not understood'),
        ("DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=YEARLY;INTERVAL=0", "RRULE with INTERVAL=0 is not understood"),
        ("DTSTART;VALUE=DATE:20260202\nRDATE:20260303", "RDATE is not understood"),
        ("DTSTART;VALUE=DATE:00010202", "it lies outside the years 1970 to 8999"),
        ("DTSTART;VALUE=DATE:99991231", "it lies outside the years 1970 to 8999"),
        ("DTSTART;VALUE=DATE:89991230\nDURATION:P9999W", "it lies outside the years 1970 to 8999"),
        (
            "DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=DAILY;UNTIL=20260501T000000Z",
            "its UNTIL is in UTC: give the time zone of the calendar (--timezone)",
        ),
        ("DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=DAILY;UNTIL=XXXX", '"XXXX" is neither a date nor a time'),
        ("DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=DAILY;WKST=X", "RRULE with WKST=X is not understood"),
        (
            "DTSTART;VALUE=DATE:20260202\nRRULE:FREQ=MONTHLY;BYDAY=" + ",".join(["1MO"] * 101),
            f"RRULE with BYDAY={','.join(['1MO'] * 101)[:50]} is not understood",
        ),
    ],
)
def test_what_is_not_understood_is_said_with_its_line(lines: str, remark: str) -> None:
    read = read_ical(calendar("DTSTART;VALUE=DATE:20260101", lines), TODAY)
    assert (len(read.times), read.remarks) == (1, [f"line 7: {remark}"])


def test_summaries_are_one_line_and_cancelled_events_are_left_out() -> None:
    assert times("DTSTART;VALUE=DATE:20260101", "SUMMARY:New\\, Year\\nand", "  more")[0].reason == "New, Year and more"
    assert times("DTSTART;VALUE=DATE:20260101", "SUMMARY:" + "x" * 500)[0].reason == "x" * 200
    assert times("DTSTART;VALUE=DATE:20260101", "STATUS:CANCELLED") == []
    assert len(times("DTSTART;VALUE=DATE:20260101", "TRANSP:TRANSPARENT")) == 1
    assert len(times("DTSTART;VALUE=DATE:20260101", "BEGIN:VALARM", "DTSTART:x", "END:VALARM")) == 1


def test_equal_events_are_one_time() -> None:
    event = "DTSTART;VALUE=DATE:20260101\nSUMMARY:New Year"
    assert len(read_ical(calendar(event, event), TODAY).times) == 1


@pytest.mark.parametrize("text", ["", "\n", "hello", "BEGIN:VEVENT", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101"])
def test_what_is_no_calendar_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^file: "):
        read_ical(text, TODAY)


def test_a_file_has_a_bounded_number_of_times() -> None:
    rule = "DTSTART;VALUE=DATE:19700101\nRRULE:FREQ=DAILY;INTERVAL=2\nSUMMARY:{}"
    with pytest.raises(InputError, match="more than 5000 times"):
        read_ical(calendar(*(rule.format(n) for n in range(50))), TODAY, 50)


def test_a_holiday_calendar_in_the_manner_of_public_ones(tmp_path: Path) -> None:
    text = calendar(
        "DTSTART;VALUE=DATE:20261003\nDTEND;VALUE=DATE:20261004\nDTSTAMP:20260101T000000Z\nUID:a@example.org\n"
        "CLASS:PUBLIC\nDESCRIPTION:Public holiday\nSTATUS:CONFIRMED\nSUMMARY:German Unity Day\nTRANSP:TRANSPARENT",
        "DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261227\nSUMMARY;LANGUAGE=en:Christmas\nCATEGORIES:A,B",
    )
    read = read_ical("\ufeff" + text, TODAY)
    assert [(str(one.from_date), str(one.until_date), one.reason) for one in read.times] == [
        ("2026-10-03", "2026-10-03", "German Unity Day"), ("2026-12-25", "2026-12-26", "Christmas")
    ]  # fmt: skip


lines = st.lists(st.one_of(
    st.sampled_from(["BEGIN:VEVENT", "END:VEVENT", "BEGIN:VALARM", "END:VALARM", "DTSTART:20260101T100000Z",
                     "DTSTART;VALUE=DATE:20260101", "DTEND;VALUE=DATE:20260105", "DURATION:P1D", "EXDATE:20260101",
                     "RRULE:FREQ=DAILY;COUNT=20000;INTERVAL=1000", "RRULE:FREQ=MONTHLY;BYDAY=5MO", " folded"]),
    st.text(max_size=30),
    st.from_regex(r"\A(DTSTART|DTEND|RRULE|DURATION|EXDATE)(;TZID=[A-Z/]{0,9})?:[0-9TZPWDHMS;=A-Z,+-]{0,25}\Z"),
), max_size=14)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(lines, st.booleans())
def test_any_text_is_read_or_refused(found: list[str], zoned: bool) -> None:
    try:
        read = read_ical("\n".join(["BEGIN:VCALENDAR", *found]), TODAY, 2, BERLIN if zoned else None)
    except InputError as error:
        assert str(error).startswith("file: ") and "\n" not in str(error)
        return
    assert all("\n" not in remark for remark in read.remarks)
    assert all(time.from_date is not None and time.from_date >= ical.FIRST for time in read.times)
