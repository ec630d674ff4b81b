"""The slots of an imported crontab are those of cron: against Vixie's matching restated, and against croniter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from pgsched.importers.crontab.importing import CrontabOptions, import_crontab
from pgsched.importers.imported import Imported, Reason
from tests.support.fuzz.profile import examples
from tests.support.importing.slots import imported_slots
from tests.support.importing.vixie import Vixie

START = datetime(2026, 3, 27, 21, 7, 30, tzinfo=UTC)
TIMES = [
    "* * * * *", "*/5 * * * *", "15 2 * * *", "0 */2 * * *", "30 1-5 * * *", "0,30 2 * * *", "*/90 * * * *",
    "7-59/20 3 * * *", "0 0 1,15 * 5", "0 0 */2 * 1", "0 0 1-7 * */2", "0 0 * * 7", "0 0 * * 5-7", "0 0 * * sat-sun",
    "0 12 * jan,JUL mon", "5 4 * * sun", "23 0-23/2 * * *", "0 6 29 2 *", "0 0 31 * *", "*/7 */3 */10 */5 */2",
    "0-30/90 1 * * *", "17 * * * *", "0 22 * * 1-5", "@hourly", "@daily", "@weekly", "@monthly", "@yearly",
    "59 23 31 12 *", "0 0 *,5 * 1", "1-9/3 * * * 0-7",
]  # fmt: skip
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]


def read(line: str, zone: str = "UTC") -> Imported:
    return import_crontab(f"{line}\n", CrontabOptions(zone, START))


def slots(times: str, zone: str, count: int) -> list[datetime]:
    imported = read(f"{times} true", zone)
    assert not imported.omitted, imported.omitted
    return imported_slots(imported.jobs[0].columns, START, count)


@pytest.mark.few(4)
@pytest.mark.parametrize("times", TIMES)
def test_the_next_thousand_slots_are_those_of_vixie_s_cron(times: str) -> None:
    for zone in ZONES:
        assert slots(times, zone, 1000) == Vixie(times, zone).slots(START, 1000), zone


@pytest.mark.few(6)
@pytest.mark.parametrize("times", [one for one in TIMES if "/90" not in one])
def test_the_next_thousand_slots_are_those_of_croniter(times: str) -> None:
    theirs = croniter(times, START, ret_type=datetime, implement_cron_bug=True, max_years_between_matches=50)
    assert slots(times, "UTC", 1000) == [theirs.get_next() for _ in range(1000)]


def field(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.sampled_from(["", "", "/2", "/3", "/7", "/61"])
    item = st.one_of(number.map(str), ranges.flatmap(lambda one: step.map(lambda s: one + s)),
                     step.map(lambda s: "*" + s), *([st.sampled_from(names)] if names else []))  # fmt: skip
    return st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3).map(",".join))


ENTRIES = st.tuples(
    field(0, 59), field(0, 23), field(1, 31), field(1, 12, ("jan", "Dec")), field(0, 7, ("sun", "FRI"))
).map(" ".join)


@examples(50, 150)
@given(ENTRIES, st.sampled_from(ZONES))
def test_any_times_have_the_slots_of_vixie_s_cron(times: str, zone: str) -> None:
    imported = read(f"{times} true", zone)
    if imported.omitted:  # 31 February: no slot in cron, either
        assert imported.omitted[0].remark.reason is Reason.SCHEDULE
        assert Vixie(times).slots(START, 1) == []
        return
    assert slots(times, zone, 60) == Vixie(times, zone).slots(START, 60)


@pytest.mark.parametrize(("times", "allowed"), [
    ("~ 3 * * *", {f"{n} 3 * * *" for n in range(60)}),
    ("5~7 3 * * *", {f"{n} 3 * * *" for n in (5, 6, 7)}),
    ("0 ~4 * * *", {f"0 {n} * * *" for n in range(5)}),
    ("0 0 20~ * *", {f"0 0 {n} * *" for n in range(20, 32)}),
    ("0~59/20 * * * *", {f"{n}-59/20 * * * *" for n in range(20)}),
    ("~/30 * * * *", {f"{n}-59/30 * * * *" for n in range(30)}),
])  # fmt: skip
def test_a_random_value_is_chosen_once_within_its_range(times: str, allowed: set[str]) -> None:
    found = {read(f"{times} job{n}").jobs[0].columns["schedule"] for n in range(40)}
    assert found <= allowed and len(found) > 1
    job = read(f"{times} job1").jobs[0]
    assert job.columns == read(f"{times} job1").jobs[0].columns
    assert [remark.reason for remark in job.remarks] == [Reason.RANDOM_VALUE] and job.exact


def test_a_line_that_cron_starts_twice_after_a_gap_says_so() -> None:
    assert Vixie("0,30 2 * * *", "Europe/Berlin").slots(START, 3)[1] == datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    job = read("0,30 2 * * * true", "Europe/Berlin").jobs[0]
    assert [remark.reason for remark in job.remarks] == [Reason.CLOCK_CHANGE] and not job.exact
    assert "2026-03-29" in job.remarks[0].text and "02:00 to 03:00" in job.remarks[0].text
    for line in ("30 2 * * *", "0,30 4 * * *", "*/5 * * * *"):
        assert read(f"{line} true", "Europe/Berlin").jobs[0].remarks == []
