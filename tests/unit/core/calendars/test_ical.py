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
