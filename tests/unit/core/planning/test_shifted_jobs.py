"""Of a job whose slots a calendar shifts, each nominal slot is decided once, whatever is edited meanwhile."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

import pytest

from pgsched.core.planning.catchup import TOO_MANY
from pgsched.core.planning.intervals import CoveredSlots
from pgsched.core.planning.job_schedule import job_calendar, job_schedule, whole_schedule
from pgsched.core.planning.overtaken import OVERTAKEN
from pgsched.core.planning.plan import SlotRow, decide_job
from pgsched.core.planning.shared_plan import NOTHING
from pgsched.core.schedule.preview import preview_job
from tests.support.simulation.shifting import Restated, Times
from tests.support.simulation.simulate import BASE

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BERLIN = "Europe/Berlin"
WEEKEND = Times(weekdays=(0, 6))
EXPRESSIONS = ["0 9 * * *", "0 9,17 * * *", "30 2 * * *", "0 9 1,15,28 * *", "0 */6 * * *", "0 9 * * *;0 20 * * SAT"]
STEP = {"next_business_day": 1, "previous": -1, "skip": 0}
STARTS = ["2026-03-24", "2026-10-20", "2026-12-20"]  # around the clock changes in Berlin, and around Christmas


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_job(start: datetime, **columns: Any) -> dict[str, Any]:
    return BASE | NOTHING | {
        "anchor_at": start, "decided_until": start, "now": start, "timezone": BERLIN, "overlap": "allow",
        "catch_up": "all", "catch_up_window": 30 * DAY, "shifts": None, "calendar_times": None, "on_excluded": "skip",
    } | columns  # fmt: skip


def rows_of(times: list[Times]) -> list[tuple[object, ...]]:
    return [time.row() for time in times]


def a_calendar(rng: Random, around: datetime) -> list[Times]:
    """Return a weekend, and some holidays and evenings near an instant."""
    rows = [WEEKEND] if rng.random() < 0.8 else []
    for _ in range(rng.randint(0, 3)):
        first = around.date() + rng.randint(-3, 5) * DAY
        rows.append(Times(first, first + rng.choice([0, 0, 1, 3]) * DAY))
    if rng.random() < 0.2:
        rows.append(Times(weekdays=(rng.randint(1, 5),), begins=time(16), ends=time(23, 30)))
    return rows


class Life:
    """A job that is ticked at random instants, and whose calendar changes between them."""

    def __init__(self, seed: str) -> None:
        self.rng = Random(seed)
        self.now = utc(self.rng.choice(STARTS)) + self.rng.randint(0, 48) * HOUR
        self.job = a_job(self.now, schedule=self.rng.choice(EXPRESSIONS))
        self.rows: list[SlotRow] = []
        self.decided: dict[datetime, str] = {}  # by nominal instant
        self.next_at: datetime | None = None
        self.first = self.now
        self.edit()
        slots = self.near()
        self.decided |= {one: "before" for slot, ones in slots.items() if slot <= self.now for one in ones}

    def edit(self) -> None:
        """Change the calendar or the policy, as the triggers leave the job then."""
        rows = a_calendar(self.rng, self.now)
        policy = self.rng.choice(["next_business_day", "previous"] * 3 + ["skip"])
        if self.job["on_excluded"] == "skip" and policy != "skip" and self.job["shifts"] is None and self.rows:
            self.job["shifts"] = {"at": self.job["decided_until"].isoformat()}
        self.restated = Restated(self.job["schedule"], BERLIN, rows, STEP[policy])
        self.job |= {"calendar_times": rows_of(rows), "on_excluded": policy}

    def near(self) -> dict[datetime, list[datetime]]:
        """Return the undecided slots by the restatement, each with its nominal instants."""
        return self.restated.by_slot(self.now - 2 * DAY, self.now + 3 * DAY, self.decided.__contains__)

    def tick(self) -> None:
        mark = self.job["decided_until"]
        due = {slot: ones for slot, ones in self.near().items() if slot <= self.now}
        before = {slot: due.pop(slot) for slot in [*due] if slot <= self.first}  # those do not exist
        known: list[CoveredSlots] = [(row.covers_from or row.slot, row.covers_until or row.slot) for row in self.rows]
        decided = decide_job(self.job | {"now": self.now}, None, [one for one in known if one[0] >= self.first])
        taken = {row.slot for row in self.rows}
        assert not taken & {row.slot for row in decided.rows}, "one row a slot"
        for row in decided.rows:
            if row.reason == OVERTAKEN:
                assert row.slot <= mark and row.state == "missed"
            else:
                assert row.slot > mark
                assert row.slot in due, "each slot is one of the restatement"
                assert row.nominal_at == (None if row.slot in due[row.slot] else min(due[row.slot]))
        covered = {slot for row in decided.rows for slot in due
                   if (row.covers_from or row.slot) <= slot <= (row.covers_until or row.slot)}  # fmt: skip
        shared = {slot for slot, ones in due.items() if slot <= mark and (slot in taken or self.is_shared(slot))}
        assert set(due) - covered <= shared | {slot for slot in due if slot in taken}, "none is lost"
        self.rows += decided.rows
        advance = decided.advance
        # what shifts to the past counts as decided only when something was: until then the calendar may change again
        noted = due | before if advance.decided_until or advance.shift else {
            slot: ones for slot, ones in due.items() if slot not in shared}  # fmt: skip
        self.decided |= {one: "decided" for ones in noted.values() for one in ones}
        new_mark = max(mark, advance.decided_until or mark)
        shifts = self.job["shifts"] if advance.shift is None else json.loads(advance.shift or "null")
        self.job |= {"decided_until": new_mark, "shifts": shifts}
        self.next_at = advance.next_run_at
        coming = min((slot for slot in self.near() if slot > self.now), default=None)
        assert coming is None or self.next_at == coming, "the leader wakes up for the next slot"

    def is_shared(self, slot: datetime) -> bool:
        """Check whether a nominal slot that is decided lies at this instant, too."""
        return any(one in self.decided for one in self.restated.nominal.between(slot - HOUR, slot) if one == slot)

    def live(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()
            if self.rng.random() < 0.25:
                self.edit()
                if self.rng.random() < 0.5:
                    self.tick()
            punctual = self.next_at is not None and self.next_at < self.now + 4 * DAY
            self.now = self.next_at if punctual and self.next_at is not None else self.now + 4 * DAY
            self.now += self.rng.choice([0, 0, 0, 50, 7200]) * timedelta(seconds=1)


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", [*range(40), 222])
def test_each_nominal_slot_is_decided_once_however_the_calendar_changes(seed: int) -> None:
    Life(f"shifted {seed}").live(25)


def test_a_slot_that_was_decided_ahead_does_not_come_again_when_its_day_is_a_business_day() -> None:
    """Payroll of Saturday the 1st runs on Friday. On that evening the calendar is emptied: Saturday runs nothing."""
    job = a_job(utc("2026-07-20"), schedule="0 9 1 * *", on_excluded="previous", calendar_times=rows_of([WEEKEND]))
    friday = utc("2026-07-31 07:00")
    decided = decide_job(job | {"now": friday})
    assert [(row.slot, row.nominal_at, row.state) for row in decided.rows] == [
        (friday, utc("2026-08-01 07:00"), "queued")
    ]  # fmt: skip
    job |= {"decided_until": decided.advance.decided_until, "shifts": json.loads(decided.advance.shift or "null")}
    for change in ({"calendar_times": None}, {"calendar_times": None, "on_excluded": "skip"},
                   {"on_excluded": "next_business_day"}):  # fmt: skip
        edited = decide_job(job | change | {"now": friday + 9 * HOUR})
        assert (edited.rows, edited.advance.next_run_at) == ([], utc("2026-09-01 07:00"))
    forgotten = decide_job(job | {"shifts": None, "calendar_times": None, "now": friday + 9 * HOUR})
    assert forgotten.advance.next_run_at == utc("2026-08-01 07:00"), "without its memory the job would run again"


def test_a_slot_on_its_way_is_not_lost_when_its_day_is_a_business_day_again() -> None:
    """Saturday's slot waits for Monday; on Sunday the calendar is emptied: the slot is late, and runs."""
    job = a_job(utc("2026-07-20"), schedule="0 9 * * SAT", on_excluded="next_business_day", catch_up="latest",
                calendar_times=rows_of([WEEKEND]), decided_until=utc("2026-07-27 07:00"))  # fmt: skip
    sunday = utc("2026-08-02 07:00")
    waiting = decide_job(job | {"now": sunday})
    assert (waiting.rows, waiting.advance.next_run_at) == ([], utc("2026-08-03 07:00"))
    edited = decide_job(job | {"calendar_times": None, "now": sunday})
    assert [(row.slot, row.state) for row in edited.rows] == [(utc("2026-08-01 07:00"), "queued")]


def test_a_skipped_slot_that_a_gap_has_moved_comes_on_its_day() -> None:
    """On Sunday the 29th clocks go from 2 to 3: the slot of 02:30 comes at 3, and is skipped then."""
    saturday = utc("2026-03-28 01:30")
    job = a_job(utc("2026-03-27"), schedule="30 2 * * *", calendar_times=rows_of([WEEKEND]),
                shifts={"at": utc("2026-03-27 01:30").isoformat()}, decided_until=utc("2026-03-27 01:30"))  # fmt: skip
    assert decide_job(job | {"now": saturday}).advance.next_run_at == utc("2026-03-29 01:00")


def test_a_slot_that_a_pause_passed_over_does_not_come_again() -> None:
    """Saturday's slot was shifted to Monday, and passed over there. Then Monday becomes a holiday."""
    job = a_job(utc("2026-07-30"), schedule="0 9 * * SAT", on_excluded="next_business_day",
                calendar_times=rows_of([WEEKEND]))  # fmt: skip
    job |= {"shifts": json.loads(decide_job(job).advance.shift or "null")}
    monday = utc("2026-08-03 12:00")
    resumed = job | {"decided_until": monday, "now": monday}
    known = decide_job(resumed)
    assert (known.rows, known.advance.next_run_at) == ([], utc("2026-08-10 07:00"))
    holiday = {"calendar_times": rows_of([WEEKEND, Times(date(2026, 8, 3), date(2026, 8, 3))])}
    forgotten = decide_job(resumed | holiday).advance.next_run_at
    assert forgotten == utc("2026-08-04 07:00"), "without a look before the change"
    edited = decide_job(resumed | holiday | {"shifts": json.loads(known.advance.shift or "null")})
    assert (edited.rows, edited.advance.next_run_at) == ([], utc("2026-08-10 07:00"))


def test_a_slot_that_a_change_moves_behind_decided_ones_is_recorded_as_missed() -> None:
    job = a_job(utc("2026-07-20"), schedule="0 9 * * FRI;0 8 * * SAT", on_excluded="previous")
    friday = utc("2026-07-31 07:00")
    job |= {"decided_until": utc("2026-07-30 07:00")}
    decided = decide_job(job | {"now": friday})
    job |= {"decided_until": friday, "shifts": json.loads(decided.advance.shift or "null")}
    edited = decide_job(job | {"calendar_times": rows_of([WEEKEND]), "now": friday + HOUR})
    (row,) = edited.rows
    assert (row.slot, row.nominal_at, row.state, row.reason) == (
        friday - HOUR, utc("2026-08-01 06:00"), "missed", OVERTAKEN
    )  # fmt: skip
    assert row.interval_start == utc("2026-07-24 07:00")
    again = job | {"calendar_times": rows_of([WEEKEND]), "shifts": json.loads(edited.advance.shift or "null")}
    assert decide_job(again | {"now": friday + 2 * HOUR}).rows == []


def test_a_job_that_runs_once_is_shifted_and_never_runs_twice() -> None:
    sunday = utc("2026-08-02 07:00")
    job = a_job(utc("2026-07-20"), schedule=None, run_at=sunday, on_excluded="previous", decided_until=None,
                calendar_times=rows_of([WEEKEND]))  # fmt: skip
    assert decide_job(job).advance.next_run_at == utc("2026-07-31 07:00")
    decided = decide_job(job | {"now": utc("2026-07-31 07:00")})
    assert [(row.slot, row.nominal_at) for row in decided.rows] == [(utc("2026-07-31 07:00"), sunday)]
    assert decided.advance.decided_until == sunday, "so that no edit makes it due again"
    after = decide_job(job | {"decided_until": sunday, "calendar_times": None, "now": sunday})
    assert (after.rows, after.advance.next_run_at) == ([], None)


def test_a_slot_that_cannot_be_shifted_is_skipped_with_the_reason() -> None:
    closed = Times(date(2026, 7, 1), date(2026, 9, 30))
    job = a_job(utc("2026-07-20"), schedule="0 9 1 * *", on_excluded="previous", calendar_times=rows_of([closed]))
    (row,) = decide_job(job | {"now": utc("2026-08-01 07:00")}).rows
    assert row.state == "skipped"
    assert row.reason == (
        "excluded by calendar c: 2026-07-01 to 2026-09-30; no time within 31 days is allowed"
    )  # fmt: skip


def test_a_calendar_without_shifting_skips_slots_with_its_reason() -> None:
    job = a_job(utc("2026-07-31"), schedule="0 9 * * *", calendar_times=rows_of([WEEKEND]))
    decided = decide_job(job | {"now": utc("2026-08-03 07:00")})
    assert [(f"{row.slot:%a}", row.state, row.reason) for row in decided.rows] == [
        ("Fri", "queued", "late"), ("Sun", "skipped", "excluded by calendar c: Sun, Sat"), ("Mon", "queued", None)
    ]  # fmt: skip
    assert decided.advance.shift is None


def test_fixed_delays_wait_for_an_allowed_time() -> None:
    job = a_job(utc("2026-07-31 20:00"), schedule="@after 12h", on_excluded="next_business_day",
                calendar_times=rows_of([WEEKEND]))  # fmt: skip
    assert decide_job(job).advance.next_run_at == utc("2026-08-02 22:00"), "the first instant of Monday in Berlin"
    always = a_job(utc("2026-07-31"), schedule="@after 1h", calendar_times=rows_of([Times(weekdays=tuple(range(7)))]))
    found = decide_job(always).advance.next_run_at
    assert found is not None and found > utc("2027-07-31"), "looked for again then"


def test_a_preview_shows_the_slots_that_will_be_decided() -> None:
    job = a_job(utc("2026-07-30"), schedule="0 9 1 * *", on_excluded="previous", calendar="c", next_run_at=None,
                calendar_times=rows_of([WEEKEND]), paused=False, error=None)  # fmt: skip
    found = preview_job(job, 2)
    assert [(f"{fire.local:%a %m-%d %H:%M}", fire.remarks) for fire in found.fires] == [
        ("Fri 07-31 09:00", ("moved from Sat 2026-08-01 09:00",)), ("Tue 09-01 09:00", ())
    ]  # fmt: skip
    assert found.fires[0].nominal == utc("2026-08-01 07:00")
    assert found.notes[0].startswith("calendar c: slots at its times move to the day before")


def test_an_excluded_part_of_a_day_has_one_row_however_long_the_outage_was() -> None:
    """Hundreds of nights are not told apart: what lies before the last ones is one row."""
    nights = Times(begins=time(0), ends=time(6))
    job = a_job(utc("2020-01-01"), schedule="0 * * * *", catch_up="latest", calendar_times=rows_of([nights]))
    decided = decide_job(job | {"now": utc("2026-01-01")})
    assert len(decided.rows) <= 1001
    first = decided.rows[0]
    assert (first.state, first.reason) == ("missed", "late, and before more excluded times than are told apart")
    assert sum(row.state == "queued" for row in decided.rows) == 1
    assert sum(row.covers_count or 1 for row in decided.rows[1:]) + (first.covers_count or 0) > 0


def test_excluded_times_without_a_slot_divide_no_late_slots() -> None:
    nights = Times(begins=time(0), ends=time(6))
    job = a_job(utc("2026-07-06"), schedule="0 9 * * *", catch_up="latest", calendar_times=rows_of([nights]))
    (row,) = decide_job(job | {"now": utc("2026-07-10 12:00")}).rows
    assert (row.slot, row.covers_count, row.reason) == (utc("2026-07-10 07:00"), 5, "late, runs once for 5 slots")
    shifted = job | {"on_excluded": "next_business_day", "calendar_times": rows_of([nights, WEEKEND])}
    (row,) = decide_job(shifted | {"now": utc("2026-07-14 12:00")}).rows
    assert (row.slot, row.covers_count, row.interval_start) == (utc("2026-07-14 07:00"), 7, utc("2026-07-03 07:00"))


@pytest.mark.parametrize("on_excluded", ["next_business_day", "previous"])
def test_of_shifted_slots_few_excluded_times_are_told_apart_after_an_outage(on_excluded: str) -> None:
    """Each of them takes milliseconds. Slots of these nights stay: each night is excluded."""
    nights = Times(begins=time(22), ends=time(23, 59))
    job = a_job(utc("2025-01-01"), schedule="0 * * * *", catch_up="latest", on_excluded=on_excluded,
                calendar_times=rows_of([nights]))  # fmt: skip
    decided = decide_job(job | {"now": utc("2026-01-01")})
    assert len(decided.rows) <= 101
    assert (decided.rows[0].state, decided.rows[0].reason) == ("missed", TOO_MANY)
    assert {row.state for row in decided.rows[1:]} == {"missed", "skipped", "queued"}


# ---- intervals


@pytest.mark.parametrize("seed", range(30))
def test_the_interval_of_a_slot_begins_at_the_slot_before_it(seed: int) -> None:
    rng = Random(f"interval {seed}")
    start = utc(rng.choice(STARTS)) + rng.randint(0, 400) * timedelta(minutes=7)
    times = a_calendar(rng, start) if rng.random() < 0.7 else []
    job = a_job(start, schedule=rng.choice([*EXPRESSIONS, "@every 95m"]), on_excluded=rng.choice(list(STEP)),
                calendar_times=rows_of(times), catch_up=rng.choice(["all", "latest", "skip", "earliest"]))  # fmt: skip
    for _ in range(6):
        job["now"] = job["now"] + rng.choice([1, 5, 30, 100]) * HOUR
        decided = decide_job(job)
        every = list(whole_schedule(job).between(start - 60 * DAY, job["now"]))
        for row in decided.rows:
            first = row.covers_from if row.state == "queued" and row.covers_from else row.slot
            before = [slot for slot in every if slot < first]
            assert row.interval_start == (before[-1] if before else None), row
        job["decided_until"] = max(job["decided_until"], decided.advance.decided_until or job["decided_until"])
        if decided.advance.shift is not None:
            job["shifts"] = json.loads(decided.advance.shift)


@pytest.mark.parametrize("overlap", ["skip", "replace"])
def test_a_late_slot_for_several_that_does_not_run_has_its_own_interval(overlap: str) -> None:
    """A person revives it for this slot alone. Under `replace` a slot on time ends it in the same batch."""
    late = a_job(utc("2026-05-01"), schedule="*/2 * * * *", catch_up="latest", overlap=overlap, max_buffer=1,
                 now=utc("2026-05-01 00:10:30"), open=1, newest=7)  # fmt: skip
    row = decide_job(late).rows[0]
    assert (row.slot, row.state, row.covers_count) == (utc("2026-05-01 00:08"), "skipped", 4)
    assert row.interval_start == utc("2026-05-01 00:06")
    running = decide_job(late | {"open": 0, "overlap": "allow"}).rows[0]
    assert (running.covers_count, running.interval_start) == (4, utc("2026-05-01"))


def test_what_remains_of_a_stretch_around_a_known_row_has_its_own_interval() -> None:
    job = a_job(utc("2026-05-01"), schedule="0 * * * *", catch_up="latest", now=utc("2026-05-01 10:00"))
    (whole,) = decide_job(job | {"now": utc("2026-05-01 10:30"), "misfire_after": timedelta(0)}).rows
    assert (whole.slot, whole.interval_start) == (utc("2026-05-01 10:00"), utc("2026-05-01 00:00"))
    known = [(utc("2026-05-01 04:00"), utc("2026-05-01 04:00"))]
    parts = decide_job(job | {"now": utc("2026-05-01 10:30"), "misfire_after": timedelta(0)}, None, known).rows
    assert [(row.slot, row.state, row.interval_start) for row in parts] == [
        (utc("2026-05-01 03:00"), "missed", utc("2026-05-01 02:00")),
        (utc("2026-05-01 10:00"), "queued", utc("2026-05-01 04:00")),
    ]


def test_a_slot_in_mode_shadow_has_its_interval_and_its_nominal_instant() -> None:
    job = a_job(utc("2026-07-20"), schedule="0 9 1 * *", on_excluded="previous", calendar_times=rows_of([WEEKEND]),
                mode="shadow")  # fmt: skip
    (row,) = decide_job(job | {"now": utc("2026-07-31 07:00")}).rows
    assert (row.state, row.reason) == ("skipped", "shadow")
    assert (row.nominal_at, row.interval_start) == (utc("2026-08-01 07:00"), utc("2026-07-01 07:00"))


def test_a_job_without_slots_of_a_schedule_has_no_intervals() -> None:
    once = a_job(utc("2026-05-01"), schedule=None, run_at=utc("2026-05-02"), decided_until=None, now=utc("2026-05-02"))
    delayed = a_job(utc("2026-05-01"), schedule="@after 1h", now=utc("2026-05-01 01:00"))
    assert [decide_job(job).rows[0].interval_start for job in (once, delayed)] == [None, None]
    assert job_schedule(delayed).fixed_delay == HOUR and job_calendar(delayed).excluded(delayed["now"]) is None
