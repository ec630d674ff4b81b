"""Starts that fall on the same minute: compared with a count of every slot, and the jitter that is proposed."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from pgsched.core.jobs_file import collisions
from pgsched.core.jobs_file.collisions import MINUTES, collide
from pgsched.core.schedule.cron import parse
from tests.support.files.jobs_files import NOW

BEGIN = NOW.replace(minute=0)


def job(name: str, schedule: str | None, timezone: str = "UTC", jitter_s: float = 0, **more: Any) -> dict[str, Any]:
    return {"id": len(name), "name": name, "schedule": schedule, "timezone": timezone, "anchor_at": BEGIN,
            "jitter": timedelta(seconds=jitter_s), "excluded": None, "starts_at": None, "ends_at": None,
            **more}  # fmt: skip


def counted(jobs: list[dict[str, Any]]) -> Counter[int]:
    found: Counter[int] = Counter()
    for one in jobs:
        schedule = parse(one["schedule"], one["timezone"], BEGIN)
        slots = schedule.between(BEGIN - timedelta(seconds=1), BEGIN + timedelta(days=7))
        found.update({(slot - BEGIN) // timedelta(minutes=1) for slot in slots})
    return Counter({minute: count for minute, count in found.items() if minute < MINUTES})


def test_the_count_is_that_of_every_slot() -> None:
    schedules = ["0 2 * * *", "30 9 * * 1-5", "*/5 * * * *", "* * * * *", "7 8-18 * * 1", "0 0 28 11 *",
                 "*/10 * * * * *",
                 "15,45 */2 * * *", "0 12 L * *", "*/7 0-11 * * *",
                 "0,10 0-11 * * *; 30,40 12-23 * * *"]  # fmt: skip
    zones = ("UTC", "Europe/Berlin", "Asia/Kolkata")
    jobs = [job(f"{text} {zone}", text, zone) for text in schedules for zone in zones]
    jobs.append(job("often", "*/30 * * * * *"))
    exact, found = counted(jobs), collide(jobs, NOW)
    assert found.starts == sum(exact.values())
    assert found.peaks == tuple(max(exact[at + minute] for minute in range(15)) for at in range(0, MINUTES, 15))
    assert found.peaks_by_hour == tuple(max(exact[hour * 60 + minute] for minute in range(60)) for hour in range(168))
    assert [one.starts for one in found.busiest] == sorted(exact.values(), reverse=True)[:5]
    assert found.left_out == 0


def test_the_minutes_of_frequent_jobs_may_be_off_but_not_their_number() -> None:
    """Hours with as many slots are taken to have them in the same minutes."""
    jobs = [job("a", "@every 7m"), job("b", "@every 45m")]
    exact, found = counted(jobs), collide(jobs, NOW)
    assert found.starts == sum(exact.values())


def test_a_job_that_starts_every_second_hides_no_collision() -> None:
    jobs = [job("tick", "* * * * * *"), *(job(f"n{n}", "0 2 * * *") for n in range(20))]
    found = collide(jobs, NOW)
    busy = found.busiest[0]
    assert (busy.starts, busy.at.hour, busy.jitter) == (21, 2, timedelta(minutes=5))
    assert sorted(found.peaks)[0] == 1


def test_jobs_that_begin_later_do_not_count_before() -> None:
    later: dict[str, Any] = {"starts_at": BEGIN + timedelta(days=2)}
    jobs = [job("a", "0 2 * * *", **later), job("b", "* * * * *", **later), job("c", "* * * * * *", **later)]
    found = collide(jobs, NOW)
    assert max(found.peaks[: 2 * 24 * 4]) == 0 and found.starts == 5 + 2 * 5 * 24 * 60
    assert collide([job("a", "0 2 * * *", starts_at=BEGIN + timedelta(days=400))], NOW).starts == 0


def test_busy_minutes_are_named_with_a_jitter() -> None:
    jobs = [job(f"nightly-{n:02}", "0 2 * * *") for n in range(40)] + [job("other", "0 3 * * *")]
    busy = collide(jobs, NOW).busiest[0]
    assert (busy.starts, busy.at.hour, busy.jobs) == (40, 2, tuple(f"nightly-{n:02}" for n in range(5)))
    assert busy.jitter == timedelta(minutes=10)
    moved = [one | {"jitter": busy.jitter, "id": n + 1} for n, one in enumerate(jobs)]
    assert max(collide(moved, NOW).peaks) < 15
    assert collide(moved, NOW).starts == len(jobs) * 7


@pytest.mark.parametrize(
    ("schedules", "jitter"),
    [
        (["0 2 * * *"] * 4, None),  # so few need none
        (["0 2 * * *"] * 1000, timedelta(hours=1)),
        (["*/5 * * * *"] * 100, timedelta(minutes=1)),  # a quarter of the time between slots
        (["* * * * *"] * 100, None),
    ],
)
def test_jitter_is_proposed_where_it_is_of_use(schedules: list[str], jitter: timedelta | None) -> None:
    jobs = [job(f"n{n}", schedule) for n, schedule in enumerate(schedules)]
    assert collide(jobs, NOW).busiest[0].jitter == jitter


def test_excluded_dates_and_ends_count() -> None:
    jobs = [job("a", "0 2 * * *", excluded=[["2026-11-28", "2026-11-29", None]]),
            job("b", "0 2 * * *", ends_at=BEGIN + timedelta(days=2)), job("c", None), job("d", "wrong"),
            job("e", "@after 5m")]  # fmt: skip
    assert collide(jobs, NOW).starts == 5 + 2


WEEKEND = [("c", None, None, (0, 6), None, None, None)]


def test_shared_calendars_exclude_and_shift() -> None:
    def starts(schedule: str, times: list[Any], on_excluded: str = "skip") -> int:
        one = job("a", schedule, calendar="c", calendar_times=times, on_excluded=on_excluded, shifts=None)
        return collide([one], NOW).starts

    assert starts("0 2 * * *", WEEKEND) == 5
    assert starts("0 2 * * 6", WEEKEND, "next_business_day") == starts("0 2 * * 6", WEEKEND, "previous") == 1
    assert starts("0 2 * * *", WEEKEND, "next_business_day") == 5
    nights = [("c", None, None, None, "18:00:00", "24:00:00", None), *WEEKEND]
    assert starts("*/10 * * * *", nights) == starts("*/10 * * * *", nights, "previous") == 5 * 18 * 6
    found = collide([job("a", "* * * * *", calendar_times=WEEKEND, ends_at=BEGIN + timedelta(days=5))], NOW)
    assert found.starts == 3 * 24 * 60 + 1  # until the end, which is a slot too
    assert max(found.peaks[14 * 4 : 62 * 4]) == 0


def test_beyond_a_limit_calendars_shift_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {"calendar": "c", "calendar_times": WEEKEND, "on_excluded": "next_business_day"}
    jobs = [job(f"n{n}", f"{n} 2 * * 6", **more) for n in range(5)]
    assert collide(jobs, NOW).starts == 5
    monkeypatch.setattr(collisions, "MOST_SHIFTED", 2)
    assert collide(jobs, NOW).starts == 2


def test_several_expressions_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job("a", "0 2 * * *; 0 14 * * *"), job("b", "*/5 8-17 * * *; */30 * * * *")]
    exact, found = counted(jobs), collide(jobs, NOW)
    assert found.starts == sum(exact.values())
    assert [one.starts for one in found.busiest] == sorted(exact.values(), reverse=True)[:5]
    monkeypatch.setattr(collisions, "MOST_FREQUENT", 7)
    assert collide(jobs, NOW).left_out == 1
    monkeypatch.undo()
    seconds = "*/2 * * * * *; */3 * * * * *; */5 * * * * *"
    assert collide([job("a", seconds)], NOW).starts == MINUTES


def test_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collisions, "MOST_SLOTS", 20)
    monkeypatch.setattr(collisions, "MOST_FREQUENT", 1)
    jobs = [job("a", "0 2 * * *"), job("b", "0 3 * * *"), job("c", "0 4 * * *"), job("d", "* * * * *"),
            job("e", "*/2 * * * *")]  # fmt: skip
    found = collide(jobs, NOW)
    assert (found.starts, found.left_out) == (14 + 5040, 2)


def test_nothing_starts() -> None:
    found = collide([], NOW)
    assert (found.starts, found.busiest, set(found.peaks)) == (0, (), {0})
