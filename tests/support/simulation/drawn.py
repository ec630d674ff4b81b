"""Strategies for expressions, time zones and instants near clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
    "America/Santiago",
    "Africa/Cairo",
    "Asia/Beirut",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Asia/Kathmandu",
]
instants = st.datetimes(datetime(2005, 1, 1), datetime(2070, 1, 1), timezones=st.just(UTC))
# Half of all instants lie within 30 hours of a clock change.
changes = st.sampled_from(
    ["2011-12-30T10:00", "2026-03-29T01:00", "2026-10-25T01:00", "2026-04-04T14:00", "2026-09-06T04:00"]
).map(lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC))
near = st.builds(lambda at, by: at + by, changes, st.timedeltas(timedelta(hours=-30), timedelta(hours=30)))
moments = st.one_of(instants, near)


def column(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    ranges = st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, high - low + 1).map(lambda n: f"*/{n}")
    return st.one_of(st.just("*"), value.map(str), ranges, steps, st.lists(value, min_size=1).map(_listed))


def _listed(values: list[int]) -> str:
    return ",".join(map(str, values))


days = st.one_of(column(1, 31), st.just("*"), st.sampled_from(["L", "LW", "15W", "1W,31", "L,10"]))
weekdays = st.one_of(column(0, 6), st.just("*"), st.sampled_from(["5#5", "1L", "MON,FRI#2", "FRI-SUN"]))
crons = st.tuples(column(0, 59), column(0, 23), days, column(1, 12), weekdays).map(" ".join)
seconds = st.tuples(column(0, 59), crons).map(" ".join)
intervals = st.integers(1, 200_000).map(lambda n: f"@every {n}s")
