"""Words for times: each kind of text, both directions, and days on which clocks change."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.input_values import parse_age_or_instant, parse_bounded_instant
from pgsched.core.schedule import zones
from pgsched.core.schedule.time_words import EXAMPLES, parse_age, parse_time
from pgsched.errors import InputError
from tests.support.paths import ROOT

BERLIN = zones.zone("Europe/Berlin")
NOW = datetime(2026, 5, 6, 18, 30, tzinfo=UTC)  # a Wednesday, 20:30 in Berlin


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "past", "ahead"),
    [
        ("now", "2026-05-06T20:30+02", "2026-05-06T20:30+02"),
        ("22:00", "2026-05-05T22:00+02", "2026-05-06T22:00+02"),
        ("20:30", "2026-05-06T20:30+02", "2026-05-07T20:30+02"),
        ("6:00", "2026-05-06T06:00+02", "2026-05-07T06:00+02"),
        ("06:00:30", "2026-05-06T06:00:30+02", "2026-05-07T06:00:30+02"),
        ("today", "2026-05-06T00:00+02", "2026-05-06T00:00+02"),
        ("yesterday", "2026-05-05T00:00+02", "2026-05-05T00:00+02"),
        ("yesterday 22:00", "2026-05-05T22:00+02", "2026-05-05T22:00+02"),
        ("22:00 yesterday", "2026-05-05T22:00+02", "2026-05-05T22:00+02"),
        ("Yesterday at 22:00", "2026-05-05T22:00+02", "2026-05-05T22:00+02"),
        ("tomorrow 6:00", "2026-05-07T06:00+02", "2026-05-07T06:00+02"),
        ("monday", "2026-05-04T00:00+02", "2026-05-11T00:00+02"),
        ("mon 6:00", "2026-05-04T06:00+02", "2026-05-11T06:00+02"),
        ("wednesday", "2026-05-06T00:00+02", "2026-05-13T00:00+02"),
        ("wednesday 22:00", "2026-04-29T22:00+02", "2026-05-06T22:00+02"),
        ("2h", "2026-05-06T18:30+02", "2026-05-06T22:30+02"),
        ("1h 30m", "2026-05-06T19:00+02", "2026-05-06T22:00+02"),
        ("12 hours ago", "2026-05-06T08:30+02", "2026-05-06T08:30+02"),
        ("1 day ago", "2026-05-05T20:30+02", "2026-05-05T20:30+02"),
        ("in 2 hours", "2026-05-06T22:30+02", "2026-05-06T22:30+02"),
        ("in 90m", "2026-05-06T22:00+02", "2026-05-06T22:00+02"),
        ("2026-05-01", "2026-05-01T00:00+02", "2026-05-01T00:00+02"),
        ("2026-05-01T10:00", "2026-05-01T10:00+02", "2026-05-01T10:00+02"),
        ("2026-05-01 10:00:00Z", "2026-05-01T12:00+02", "2026-05-01T12:00+02"),
    ],
)  # fmt: skip
def test_a_text_means_an_instant(text: str, past: str, ahead: str) -> None:
    assert parse_time(text, NOW, BERLIN) == instant(past)
    assert parse_time(text, NOW, BERLIN, ahead=True) == instant(ahead)


@pytest.mark.parametrize(
    ("text", "now", "past", "ahead"),
    [
        # clocks go from 02:00 to 03:00 on 2026-03-29: 02:30 stands for the end of the gap
        ("2:30", "2026-03-29T12:00+02", "2026-03-29T03:00+02", "2026-03-30T02:30+02"),
        ("2:30", "2026-03-29T01:00+01", "2026-03-28T02:30+01", "2026-03-29T03:00+02"),
        ("yesterday 2:30", "2026-03-30T12:00+02", "2026-03-29T03:00+02", "2026-03-29T03:00+02"),
        ("2026-03-29T02:30", "2026-05-06T12:00+02", "2026-03-29T03:00+02", "2026-03-29T03:00+02"),
        # clocks go from 03:00 to 02:00 on 2026-10-25: 02:30 comes twice
        ("2:30", "2026-10-25T02:45+02", "2026-10-25T02:30+02", "2026-10-25T02:30+01"),
        ("2:30", "2026-10-25T12:00+01", "2026-10-25T02:30+01", "2026-10-26T02:30+01"),
        ("yesterday 2:30", "2026-10-26T12:00+01", "2026-10-25T02:30+02", "2026-10-25T02:30+02"),
        # a day that is shorter or longer: the same clock, not 24 hours
        ("yesterday 22:00", "2026-03-29T22:00+02", "2026-03-28T22:00+01", "2026-03-28T22:00+01"),
        ("tomorrow", "2026-10-24T23:30+02", "2026-10-25T00:00+02", "2026-10-25T00:00+02"),
    ],
)
def test_a_change_of_the_clocks_is_considered(text: str, now: str, past: str, ahead: str) -> None:
    assert parse_time(text, instant(now), BERLIN) == instant(past)
    assert parse_time(text, instant(now), BERLIN, ahead=True) == instant(ahead)


def test_a_day_that_begins_in_a_gap_begins_after_it() -> None:
    cairo = zones.zone("Africa/Cairo")  # clocks go from 00:00 to 01:00 on 2026-04-24
    assert parse_time("today", instant("2026-04-24T12:00+03"), cairo) == instant("2026-04-24T01:00+03")


@pytest.mark.parametrize(
    "text",
    ["", " ", "24:00", "22:60", "22:00 22:00", "monday tuesday", "yesterday tomorrow", "2h ago ago", "2 parsecs", "in",
     "ago", "-2h", "2.5h", "h", "in monday", "2026-13-01", "x" * 500, "1h " * 100, "22:0", "٢٢:٠٠", "at", "22:00\0"],
)  # fmt: skip
def test_another_text_is_refused_with_the_words_that_are_understood(text: str) -> None:
    assert parse_time(text, NOW, BERLIN) is None
    with pytest.raises(InputError) as refused:
        parse_age_or_instant("since", text)
    assert refused.value.field == "since" and all(example in str(refused.value) for example in EXAMPLES)


@pytest.mark.parametrize(
    ("text", "meant"), [("yesturday", "yesterday"), ("mondy 22:00", "monday"), ("tommorow", "tomorrow")]
)
def test_a_misspelled_word_gets_a_hint(text: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"did you mean {meant}"):
        parse_age_or_instant("at", text)


def test_an_age_stays_a_length_of_time_for_the_clock_of_the_database() -> None:
    assert parse_age_or_instant("since", "2h") == timedelta(hours=2) == parse_age("2 hours ago")
    assert parse_age_or_instant("since", "1w 1d") == timedelta(days=8)
    found = parse_age_or_instant("at", "2h", ahead=True)
    assert isinstance(found, datetime) and timedelta(hours=1) < found - datetime.now(UTC) <= timedelta(hours=2)
    assert parse_age_or_instant("since", None) is None


@pytest.mark.parametrize("text", ["999999999w", "999999999 days ago", "in 999999999 weeks", "0001-01-01T00:00+10:00"])
def test_a_time_beyond_the_calendar_is_refused(text: str) -> None:
    for ahead in (False, True):
        with pytest.raises(InputError, match="between 1970 and 9000"):
            parse_bounded_instant("since", text, BERLIN, ahead=ahead)


@settings(deadline=None)
@given(
    st.sampled_from(["22:00", "monday", "mon 02:30", "2:30", "0:00", "sunday 23:59:59"]),
    st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
)
def test_the_direction_decides_on_which_side_of_now_an_open_day_lies(text: str, now: datetime, name: str) -> None:
    tz = zones.zone(name)
    past, ahead = parse_time(text, now, tz), parse_time(text, now, tz, ahead=True)
    assert past is not None and ahead is not None and past <= now < ahead
    assert ahead - past <= timedelta(days=9 if text[0] in "ms" else 3)  # Apia has skipped a day


@settings(deadline=None)
@given(st.text(alphabet="0123456789:abdehimnorstuwy -TZ+.", max_size=30))
def test_any_text_gives_an_instant_or_an_input_error(text: str) -> None:
    for tz in (UTC, BERLIN, ZoneInfo("UTC")):
        try:
            found = parse_age_or_instant("since", text, tz)
        except InputError:
            continue
        assert isinstance(found, timedelta) or (found is not None and found.tzinfo is not None)


def test_every_example_of_the_page_is_understood() -> None:
    page = (ROOT / "docs/reference/times.md").read_text().split("| field |")[0]
    examples = re.findall(r"^\| `([^|]+)` \|", page, re.MULTILINE)
    assert set(EXAMPLES) <= {one for cell in examples for one in cell.split("`, `")}
    for cell in examples:
        for text in cell.split("`, `"):
            assert parse_time(text, NOW, BERLIN) is not None, text
