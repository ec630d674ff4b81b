"""Lengths of time: what texts mean, how they are written, and when two are equal."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from pgsched.core.jobs_file.model.spans import Span, read_span
from tests.support.fuzz.profile import PURE, fuzz


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("90s", "90 seconds"), ("90", "90 seconds"), ("1.5", "1.5 seconds"), ("2h", "2 hours"), ("1 day", "1 day"),
        ("1h 30m", "1 hour 30 minutes"), ("2 weeks", "14 days"), ("00:01:00", "1 minute"),
        ("04:05:06.5", "4 hours 5 minutes 6.5 seconds"), ("100 seconds", "1 minute 40 seconds"),
        ("1 year 2 mons 3 days 04:05:06", "1 year 2 months 3 days 4 hours 5 minutes 6 seconds"), ("0", "0 seconds"),
        ("604800 seconds", "168 hours"), ("250ms", "0.25 seconds"), ("00:00:01", "1 second"),
    ],
)  # fmt: skip
def test_a_text_is_read_and_written(text: str, written: str) -> None:
    found = read_span(text)
    assert found is not None
    assert str(found) == written
    assert read_span(written) == found


@pytest.mark.parametrize("text", ["", "soon", "1", "x1s", "1h30", "1.5h", "1 fortnight", "1s " * 60, "٣s"])
def test_any_other_text_is_none(text: str) -> None:
    assert read_span(text) == (Span(microseconds=10**6) if text == "1" else None)


def test_equal_is_what_postgresql_finds_equal() -> None:
    assert read_span("1 mon") == read_span("30 days") == read_span("720:00:00")
    assert read_span("1 year") == read_span("360 days") != read_span("365 days")


@fuzz(PURE, st.integers(0, 120), st.integers(0, 3600), st.integers(0, 10**13))
def test_whatever_is_written_reads_back(months: int, days: int, microseconds: int) -> None:
    span = Span(months, days, microseconds)
    found = read_span(str(span))
    assert found is not None
    assert (found.months, found.days, found.microseconds) == (months, days, microseconds)
