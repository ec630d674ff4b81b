"""Simulate the life of a job: years of slots in seconds, decided by the product's own pure function.

Invariant: only `decide_job` is the product's. What the database does is a plain model here: the unique slot, the mark
that only rises, the triggers of edits and pauses, and runs that take their time. The slots that must be covered come
from the tests' own enumeration. It begins at an edit, or at the start that the edit sets, whatever the mark says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from pgsched.core.planning.overlap import IN_TURN
from pgsched.core.planning.plan import Decided, SlotRow, decide_job
from tests.support.simulation.nominal import (
    DAY,
    DAYS,
    EVERY,
    HOURS,
    MINUTES,
    SECOND,
    START,
    YEARS,
    ZONES,
    Epoch,
    cron_slots,
)

BASE: dict[str, Any] = {
    "id": 1, "run_at": None, "starts_at": None, "ends_at": None, "max_runs": None, "run_count": 0,
    "jitter": timedelta(0), "overlap": "skip", "max_buffer": 3, "retry_within": None,
    "misfire_after": timedelta(minutes=1), "catch_up": "latest", "max_catch_up": 20, "catch_up_window": DAY,
    "start_deadline": None, "excluded": None, "last_finished_at": None,
}  # fmt: skip


@dataclass
class Open:
    """An unfinished run; `ends_at` is set once it runs."""

    row: SlotRow
    number: int
    ends_at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Return whether a policy holds the run back."""
        return self.row.state == "waiting" and self.ends_at is None


@dataclass
class Covered:
    """A row as the check sees it: the first and the last slot it stands for, and the number of slots it claims."""

    first: datetime
    last: datetime
    count: int | None
    state: str
    reason: str | None


@dataclass
class World:
    """One job, its rows and the clock."""

    rng: Random
    columns: dict[str, Any]
    now: datetime = START
    ticks: int = 0
    paused: bool = False
    next_run_at: datetime | None = START
    rows: dict[datetime, Covered] = field(default_factory=dict)
    open: list[Open] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    born: int = 0

    def __post_init__(self) -> None:
        self.job = BASE | self.columns
        self.begin(self.now)

    # ---- what people do, and what the triggers do then

    def begin(self, moment: datetime) -> None:
        """Put a new schedule in force, from now on or from a start in the future."""
        zone, interval = self.rng.choice(ZONES), timedelta(seconds=self.rng.choice(EVERY))
        if self.rng.random() < 0.4:
            expression, listed = f"@every {interval // SECOND}s", None
        else:
            expression, listed = cron_slots(zone, *(self.rng.randrange(len(x)) for x in (MINUTES, HOURS, DAYS)))
        starts_at = moment + self.rng.randint(1, 90) * DAY if self.rng.random() < 0.2 else None
        self.job |= {"schedule": expression, "timezone": zone, "ends_at": None}
        self.start(Epoch(expression, zone, listed, interval, moment, moment), moment, starts_at)

    def start(self, epoch: Epoch, moment: datetime, starts_at: datetime | None) -> None:
        """Let the slots of an epoch begin at an edit, or at `starts_at`."""
        anchor = starts_at or moment
        after = anchor - timedelta(microseconds=1) if anchor > moment else moment
        self.epochs.append(replace(epoch, anchor=anchor, after=after, until=None))
        self.job |= {"anchor_at": anchor, "starts_at": starts_at,
                     "decided_until": max(self.job.get("decided_until", moment), moment)}  # fmt: skip
        self.next_run_at = moment

    def waits_to_start(self) -> bool:
        return self.job["starts_at"] is not None and self.now < self.job["starts_at"]

    def undecided_after(self) -> datetime:
        """Return after which instant slots are undecided, as tick_due does: the mark, or just before the start."""
        start = self.job["starts_at"]
        return max(self.job["decided_until"], start - timedelta(microseconds=1)) if start else self.job["decided_until"]

    def edit_schedule(self) -> None:
        self.pass_over("missed", "edited")
        self.close(self.now)
        self.begin(self.now)

    def edit_start(self) -> None:
        """Remove or move the start."""
        self.pass_over("missed", "edited")
        self.close(self.now)
        moved = self.rng.choice((None, self.now + self.rng.randint(-3, 30) * DAY))
        if moved is None or self.job["ends_at"] is None or moved < self.job["ends_at"]:
            self.start(self.epochs[-1], self.now, moved)
        else:
            self.start(self.epochs[-1], self.now, None)

    def edit_limits(self) -> None:
        """Edit ends_at or max_runs. A job that had ended goes on from now, and its slots since the end are recorded."""
        ended, mark = self.next_run_at is None, self.undecided_after()
        if ended:
            mark = mark if self.used_up() or not self.job["ends_at"] else max(mark, self.job["ends_at"])
            self.close(mark)
        if self.rng.random() < 0.5:
            back = self.rng.choice((0, 0, 20 * 86_400))
            self.job["ends_at"] = self.rng.choice((None, self.now + self.rng.randint(-back, 60 * 86_400) * SECOND))
        else:
            self.job["max_runs"] = self.rng.choice((None, self.job["run_count"] + self.rng.randint(1, 300)))
        if not ended:
            self.next_run_at = self.now
        elif not self.used_up() and (self.job["ends_at"] is None or self.job["ends_at"] > mark):
            self.epochs.append(replace(self.epochs[-1], after=mark, until=None))
            self.next_run_at = self.now
            self.pass_over("skipped", "ended", since=mark)
            self.job["decided_until"] = max(self.job["decided_until"], self.until_now())

    def edit_calendar(self) -> None:
        rows = [self.now.date() + self.rng.randint(-3, 60) * DAY for _ in range(self.rng.randint(0, 4))]
        self.job["excluded"] = [
            [day.isoformat(), (day + self.rng.choice((0, 0, 1, 14)) * DAY).isoformat(), f"why {n}"]
            for n, day in enumerate(sorted(rows))
        ] or None

    def pause_or_resume(self) -> None:
        """Pause, or resume: from now (passed-over slots are recorded) or from the pause (they are caught up)."""
        self.paused = not self.paused
        if not self.paused and self.rng.random() < 0.5:
            self.pass_over("skipped", "paused")
            if self.next_run_at is not None:
                self.go_on()
                self.next_run_at = self.now

    def go_on(self) -> None:
        """Let the same schedule go on from now."""
        self.close(self.now)
        self.job["decided_until"] = max(self.job["decided_until"], self.until_now())
        self.epochs.append(replace(self.epochs[-1], after=self.undecided_after(), until=None))

    def until_now(self) -> datetime:
        """Return the present, or the end of the job if that is earlier."""
        return min(self.now, self.job["ends_at"] or self.now)

    def pass_over(self, state: str, reason: str, since: datetime | None = None) -> None:
        slots = self.epochs[-1].slots(max(since or self.undecided_after(), self.epochs[-1].after), self.until_now())
        if slots and self.next_run_at is not None and self.next_run_at <= self.now:
            self.rows[slots[-1]] = Covered(slots[0], slots[-1], len(slots), state, reason)

    def close(self, until: datetime) -> None:
        """End the present epoch: it has no slots after `until`; decided slots stay in it, wherever its end is now."""
        epoch = self.epochs[-1]
        end = max(self.job["ends_at"] or until, self.job["decided_until"])
        epoch.until = min(filter(None, (until, epoch.until, end)))

    # ---- what the leader and the workers do

    def tick(self, *, twice: bool = False) -> None:
        """Decide one batch of slots. `twice`: a second leader applies what it computed from the same state."""
        self.ticks += 1
        self.settle_due()
        held = [run for run in self.open if run.waits]
        in_turn = sum(run.row.reason == IN_TURN for run in held)
        newest = max((run.number for run in self.open), default=None)
        job = self.job | {"now": self.now, "decided_until": self.undecided_after(), "open": len(self.open),
                          "held": len(held) - in_turn, "in_turn": in_turn, "newest": newest}  # fmt: skip
        if self.job["overlap"] == "allow":
            job |= {"open": 0, "held": 0, "in_turn": 0, "newest": None}
        decided = decide_job(job)
        assert decided == decide_job(job), "the same state is decided alike by every leader"
        for _ in range(1 + twice):
            self.apply(decided)
        self.job["run_count"] += decided.advance.run_count
        if decided.advance.next_run_at is None and self.used_up() and self.epochs[-1].until is None:
            self.close(self.job["decided_until"])

    def used_up(self) -> bool:
        return self.job["max_runs"] is not None and self.job["run_count"] >= self.job["max_runs"]

    def apply(self, decided: Decided) -> None:
        if decided.ends_others:
            terminates = self.job["overlap"] == "terminate"
            self.open = [run for run in self.open if run.ends_at is not None and not terminates]
        for row in decided.rows:
            self.insert(row)
        mark, advance = self.job["decided_until"], decided.advance
        assert advance.error is None
        self.job["decided_until"] = max(mark, advance.decided_until or mark)
        self.next_run_at = advance.next_run_at

    def insert(self, row: SlotRow) -> None:
        """Extend a row or insert one, as tick_extend and tick_insert do."""
        before = next((slot for slot in reversed(self.rows) if slot < row.slot), None) if row.extend else None
        found = self.rows[before] if before is not None else None
        if found and (found.state, found.reason) == ("skipped", row.reason) and row.covers_until:
            if found.last >= row.covers_until:
                return
            if found.last == row.extend:
                found.last, found.count = row.covers_until, (found.count or 0) + (row.covers_count or 0)
                return
        if row.slot in self.rows:
            return
        first, last = row.covers_from or row.slot, row.covers_until or row.slot
        self.rows[row.slot] = Covered(first, last, row.covers_count if row.covers_until else 1, row.state, row.reason)
        if row.state not in ("skipped", "missed"):
            self.born += 1
            self.open.append(Open(row, self.born))

    def settle_due(self) -> None:
        """Let runs end, let waiting runs expire or become claimable, and let claimable runs begin."""
        self.open = [run for run in self.open if run.ends_at is None or run.ends_at > self.now]
        for run in list(self.open):
            bounds = [bound for bound in (run.row.expires_at, run.row.held_until) if bound is not None]
            held = run.waits and not all(other.waits and run.row.slot <= other.row.slot for other in self.open)
            if run.ends_at is None and bounds and min(bounds) <= self.now:
                self.open.remove(run)
            elif run.ends_at is None and not held:
                run.ends_at = self.now + self.rng.choice((1, 60, 1800, 7200, 90_000)) * self.rng.random() * SECOND

    # ---- the whole life

    def live(self, most_ticks: int) -> None:
        """Live until the years are over, or until the leader has ticked `most_ticks` times."""
        people: Iterable[Callable[[], None]] = (
            self.edit_schedule, self.edit_start, self.edit_limits, self.edit_calendar, self.pause_or_resume,
        )  # fmt: skip
        while self.now < START + YEARS and self.ticks < most_ticks:
            idle = self.paused or self.next_run_at is None
            if idle or self.rng.random() < 0.02:  # no leader, or nothing to do, for up to 20 days
                self.now += self.rng.choice((60, 3600, 86_400, 20 * 86_400)) * self.rng.random() * SECOND
            if idle or self.rng.random() < (0.3 if self.waits_to_start() else 0.03):
                self.rng.choice(tuple(people))()
            if not self.paused and self.next_run_at is not None:
                self.now = max(self.now, self.next_run_at) + self.rng.random() * SECOND
                self.tick(twice=self.job["max_runs"] is None and self.rng.random() < 0.1)

    def check(self) -> int:
        """Check that exactly one row covers each nominal slot, and rows cover nothing else; return how many slots."""
        self.close(self.job["decided_until"])
        nominal = [s for epoch in self.epochs for s in epoch.slots(epoch.after, epoch.until or epoch.after)]
        assert nominal == sorted(set(nominal)), "the enumeration itself must not repeat a slot"
        ranges = sorted(self.rows.values(), key=lambda row: row.first)
        expected = 0
        for row in ranges:
            start, end = bisect_right(nominal, row.first - timedelta(microseconds=1)), bisect_right(nominal, row.last)
            assert start == expected, f"slot {nominal[min(start, expected)]} has no row, or two: {row}"
            assert row.count in (None, end - start) and end > start, f"{row} stands for {end - start} slots"
            expected = end
        assert expected == len(nominal), f"slot {nominal[expected]} has no row"
        return len(nominal)
