"""What a worker counts where metrics are asked for; where they are not, none of this is there and nothing is paid.

The rule: an attempt costs next to nothing. Counting is done for a whole batch, when its outcomes have been written;
times are taken of at most BURST attempts in a STRETCH of time, and stand for those with the same labels, for KEPT_S.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from pgsched.core.model import Claim, Kind, Result, Settlement
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.connect_counter import TRIED
from pgsched.db.queries.reports import metrics
from pgsched.telemetry.catalogue import OTHER
from pgsched.telemetry.metrics import Bounded, Meter, Sample
from pgsched.worker.attempts.attempt import Ended
from pgsched.worker.attempts.runner import AttemptRunner

LAG_STRETCH_S, LAG_EVERY_S = 15.0, 0.25
BURST, STRETCH_S = 32, 0.05
KEPT_S = 1.0  # outcomes of what ended with those that were timed may be written so much later
BACKFILLED = timedelta(hours=1)  # a slot whose run came so late was asked for later
FINAL = ("succeeded", "dead", "cancelled")
PURPOSES = ("claim", "settle", "heartbeat", "listen", "leader", "logs", "metrics")
MOST_KNOWN = 1000
Way = tuple[str, str, str]
Labels = tuple[str, ...]
Noted = tuple[Claim, float, float]  # when its attempt began and ended, in monotonic seconds
Timed = tuple[float, float | None, float | None]  # how long it took, how long it had waited, how late it was
WAY: Callable[[Claim], Way] = itemgetter(*map(Claim._fields.index, ("queue", "kind", "task")))  # quicker by place
WAY_OF: Callable[[Settlement], Way] = itemgetter(*map(Settlement._fields.index, ("queue", "kind", "task")))
PARTS = [itemgetter(Settlement._fields.index(name)) for name in ("task", "queue", "kind")]


class WorkerMeter:
    """Counts one worker's work into `meter`; hears of it as WorkerEvents."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.ended: list[Noted] = []
        self.wants_times = True  # of the next attempts
        self._timed: dict[Labels, tuple[float, list[Timed]]] = {}  # the last that were, and when that was looked at
        self._owed: Counter[Labels] = Counter()  # attempts that have ended and are in no histogram yet
        self._stretch_ends = 0.0
        self._queue, self._task = Bounded(), Bounded()
        self._known: dict[Way, Labels] = {}
        self._lags = (0.0, 0.0)  # the worst of the last stretch, and of this one
        self._offset_s: float | None = None  # of the database's clock, against this process's monotonic one

    def beat(self, conn: Connection[Any]) -> None:
        """Learn what the database's time is; called at each heartbeat."""
        self._offset_s = metrics.clock_offset(conn)

    def claimed(self, claims: Sequence[Claim]) -> None:
        """A claim was answered with these."""
        if claims:
            self.meter.observe("pgsched_claim_batch_size", [len(claims)])

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """An attempt has ended: one of those that stand for the others of a stretch of time."""
        self.ended.append((claim, started, now))
        self.wants_times = len(self.ended) < BURST

    def ending(self, claim: Claim, why: Ended) -> None:
        """An attempt is told to stop, for this reason."""
        if why is Ended.LOST:
            self.lost("denied")
            self.gone(claim)  # there will be no outcome
        elif why is Ended.DEADLINE:
            self.lost("deadline")

    def lost(self, reason: str, count: int = 1) -> None:
        """So many claims were lost."""
        self.meter.count("pgsched_leases_lost_total", (reason,), count)

    def gone(self, claim: Claim) -> None:
        """An attempt was stopped because its claim was lost."""
        labels = self._labels(WAY(claim))
        self.meter.count("pgsched_attempts_total", (*labels, "lost"))
        self._owed[labels] += 1

    async def watch(self) -> None:
        """Measure how late the event loop comes to a timer, until cancelled; see to times where nothing is settled."""
        stretch_ends = time.monotonic() + LAG_STRETCH_S
        while True:
            due = time.monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            now = time.monotonic()
            before, worst = self._lags
            self._lags = before, max(worst, now - due)
            self._look()
            if now >= stretch_ends:
                stretch_ends, self._lags = now + LAG_STRETCH_S, (self._lags[1], 0.0)

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """A batch of outcomes has been written; `verdicts`: what became of each."""
        self.meter.observe("pgsched_settle_batch_size", [len(batch)])
        if verdicts.count("succeeded") == len(verdicts):  # nearly always: then no outcome need be looked at
            for way, count in counted_ways(batch).items():
                self._count(way, Result.SUCCEEDED.value, "succeeded", count)
        else:
            for (way, verdict, result), count in Counter(
                (WAY_OF(s), verdict, s.outcome.result.value) for s, verdict in zip(batch, verdicts, strict=True)
            ).items():
                self._count(way, result, verdict, count)
        self._look()

    def _count(self, way: Way, outcome: str, verdict: str, count: int) -> None:
        labels = self._labels(way)
        self.meter.count("pgsched_attempts_total", (*labels, "lost" if verdict == "lost" else outcome), count)
        self._owed[labels] += 0 if outcome == Result.RELEASED else count
        # Repeated: settled before this settlement came, by the run's own transaction, or by one whose answer was lost.
        state = outcome if verdict == "repeated" else verdict
        if state in FINAL:
            self.meter.count("pgsched_runs_finished_total", (*labels, state), count)
        elif verdict == "lost":
            self.lost("settled_late", count)

    def _look(self) -> None:
        """Where a stretch of time is over, put the times that were taken in it into the histograms."""
        now = time.monotonic()
        if now < self._stretch_ends:
            return
        self._stretch_ends = now + STRETCH_S
        noted, self.ended, self.wants_times = self.ended, [], True
        fresh: defaultdict[Labels, list[Timed]] = defaultdict(list)
        for claim, started, ended in noted:
            fresh[self._labels(WAY(claim))].append(self._time(claim, started, ended))
        kept = {labels: one for labels, one in self._timed.items() if one[0] > now - KEPT_S}
        self._timed = kept | {labels: (now, times) for labels, times in fresh.items()}
        for labels in {*fresh, *self._owed}.intersection(self._timed):
            timed = self._timed[labels][1]
            owed = max(self._owed[labels], len(fresh.get(labels, ())))
            self._owed[labels] -= owed
            each, more = divmod(owed, len(timed))
            self._observe(labels, timed[:more], each + 1)
            self._observe(labels, timed[more:], each)
        # of what is still owed none of its like was timed lately: it is counted and not timed
        self._owed = Counter({labels: owed for labels, owed in self._owed.items() if owed < 0})

    def _time(self, claim: Claim, started: float, ended: float) -> Timed:
        waited, late = None, None
        if self._offset_s is not None and claim.available_at is not None:
            began, available_at = started + self._offset_s, datetime.fromisoformat(claim.available_at)
            waited = max(0.0, began - available_at.timestamp())
            slot = claim.scheduled_at
            if slot is not None and claim.attempt == 1 and available_at - slot < BACKFILLED:
                late = max(0.0, began - slot.timestamp())
        return ended - started, waited, late

    def _observe(self, labels: Labels, timed: Sequence[Timed], weight: int) -> None:
        """Put these times into the histograms, each for so many."""
        if not (timed and weight):
            return
        took, waited, late = (list(filter(is_known, values)) for values in zip(*timed, strict=True))
        self.meter.observe("pgsched_attempt_duration_seconds", took, labels, weight)
        for name, values in ("pgsched_pickup_latency_seconds", waited), ("pgsched_lateness_seconds", late):
            if values:
                self.meter.observe(name, values, labels[:1], weight)

    def _labels(self, way: Way) -> Labels:
        """Queue, kind and task as labels: a program, statement or URL is no task."""
        labels = self._known.get(way)
        if labels is None:
            queue, kind, task = way
            labels = self._queue(queue), kind, self._task(task) if kind == Kind.TASK else OTHER
            if kind == Kind.TASK and len(self._known) < MOST_KNOWN:
                self._known[way] = labels
        return labels

    def samples(self) -> Iterator[Sample]:
        """A source: the loop's lag, and how often each connection was opened again."""
        yield "pgsched_event_loop_lag_seconds", (), max(self._lags)
        for purpose in PURPOSES:
            yield "pgsched_reconnects_total", (purpose,), max(0, TRIED[purpose] - 1)


def is_known(taken: float | None) -> bool:
    """Was it taken?"""
    return taken is not None


def counted_ways(batch: Sequence[Settlement]) -> Mapping[Way, int]:
    """How many there are of each queue, kind and task. Nearly always of one only, which is seen sooner than counted."""
    if batch and all(each.count(each[0]) == len(each) for each in (list(map(part, batch)) for part in PARTS)):
        return {WAY_OF(batch[0]): len(batch)}
    return Counter(map(WAY_OF, batch))


def samples_of(runner: AttemptRunner) -> Iterator[Sample]:
    """A source: how many places are taken at the moment. Called by another thread: not all of one moment."""
    capacity, ahead = runner.capacity, len(runner.buffer.claims)
    ended = runner.leases.count - len(runner) - ahead
    yield "pgsched_worker_slots", (), capacity.concurrency
    yield "pgsched_worker_slots_busy", (), capacity.busy
    yield "pgsched_worker_prefetched", (), ahead
    yield "pgsched_worker_unsettled", (), max(0, ended)
    yield "pgsched_worker_draining", (), int(runner.buffer.stopped)
    yield "pgsched_worker_abandoned", (), capacity.abandoned + sum(e.abandoned for e in set(runner.executors.values()))
