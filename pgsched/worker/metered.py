"""What a worker counts where metrics are asked for; where they are not, none of this is there and nothing is paid.

The rule: the hot path only appends to a list; counting is done for a whole batch, when its outcomes have been written.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any

from pgsched.db import metering
from pgsched.db.connect import Connection
from pgsched.db.tried import TRIED
from pgsched.model import Claim, Kind, Outcome, Result
from pgsched.observe.catalogue import OTHER
from pgsched.observe.meter import Bounded, Meter, Sample
from pgsched.worker.running import Ended, Running
from pgsched.worker.settle import Settled
from pgsched.worker.slots import Slots

STRETCH_S, LAG_EVERY_S = 15.0, 0.25
BACKFILLED = timedelta(hours=1)  # a slot whose run came so late was asked for later
FINAL = ("succeeded", "dead", "cancelled")
PURPOSES = ("claim", "settle", "heartbeat", "listen", "leader", "logs", "metrics")
SAMPLE, STEP = 30, 10  # between two batches: so many attempts are noted, then every 10th, then every 100th
MOST_KNOWN = 1000
Way = tuple[str, str, str]
Labels = tuple[str, str, str]
Noted = tuple[Running, float, int]  # when it ended, in monotonic seconds; for how many it stands
WAY: Callable[[Claim], Way] = itemgetter(*map(Claim._fields.index, ("queue", "kind", "task")))  # quicker by place


class WorkerMeter:
    """Counts one worker's work into `meter`."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.ended: list[Noted] = []
        self._queue, self._task = Bounded(), Bounded()
        self._known: dict[Way, Labels] = {}
        self.note: Callable[[], object] = bool  # to be called when more attempts are to be noted
        self._lags = (0.0, 0.0)  # the worst of the last stretch, and of this one
        self._offset_s: float | None = None  # of the database's clock, against this process's monotonic one

    def look_at_clock(self, conn: Connection[Any]) -> None:
        """Learn what the database's time is; called at each heartbeat."""
        self._offset_s = metering.clock_offset(conn)

    def claimed(self, claims: Sequence[Claim]) -> None:
        """A claim was answered with these."""
        if claims:
            self.meter.observe("pgsched_claim_batch_size", [len(claims)])

    def lost(self, reason: str, count: int = 1) -> None:
        """So many claims were lost."""
        self.meter.count("pgsched_leases_lost_total", (reason,), count)

    def gone(self, claim: Claim) -> None:
        """An attempt was stopped because its claim was lost."""
        self.meter.count("pgsched_attempts_total", (*self._labels(WAY(claim)), "lost"))

    async def watch_loop(self) -> None:
        """Measure how late the event loop comes to a timer, until cancelled."""
        stretch_ends = time.monotonic() + STRETCH_S
        while True:
            due = time.monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            now = time.monotonic()
            before, worst = self._lags
            self._lags = before, max(worst, now - due)
            if now >= stretch_ends:
                stretch_ends, self._lags = now + STRETCH_S, (self._lags[1], 0.0)

    def settled(self, told: Sequence[Settled]) -> None:
        """A batch of outcomes has been written."""
        self.meter.observe("pgsched_settle_batch_size", [len(told)])
        if {verdict for _, verdict in told} == {"succeeded"}:  # nearly always: then no outcome need be looked at
            for way, count in Counter(map(WAY, [settlement[0] for settlement, _ in told])).items():
                self._count(way, Result.SUCCEEDED.value, "succeeded", count)
        else:
            for (way, verdict, result), count in Counter(
                (WAY(s[0]), verdict, s[1].result.value) for s, verdict in told
            ).items():
                self._count(way, result, verdict, count)
        self._times()

    def _count(self, way: Way, outcome: str, verdict: str, count: int) -> None:
        labels = self._labels(way)
        self.meter.count("pgsched_attempts_total", (*labels, "lost" if verdict == "lost" else outcome), count)
        if verdict in FINAL:
            self.meter.count("pgsched_runs_finished_total", (*labels, verdict), count)
        elif verdict == "lost":
            self.lost("settled_late", count)

    def _times(self) -> None:
        """Put the attempts that were noted since the last time into the histograms."""
        ended, self.ended = self.ended, []
        self.note()
        noted: defaultdict[tuple[Labels, int], list[Noted]] = defaultdict(list)
        for one in ended:
            noted[self._labels(WAY(one[0].claim)), one[2]].append(one)
        for (labels, weight), attempts in noted.items():
            took = [end - one.started for one, end, _ in attempts]
            self.meter.observe("pgsched_attempt_duration_seconds", took, labels, weight)
            if self._offset_s is not None:
                self._waits(attempts, labels[:1], self._offset_s, weight)

    def _waits(self, attempts: Sequence[Noted], queue: tuple[str], offset_s: float, weight: int) -> None:
        """How long they had waited to be started."""
        waited, late = [], []
        for one, _, _ in attempts:
            claim, began = one.claim, one.started + offset_s
            if claim.available_at is None:
                continue
            waited.append(max(0.0, began - claim.available_at.timestamp()))
            slot = claim.scheduled_at
            if slot is not None and claim.attempt == 1 and claim.available_at - slot < BACKFILLED:
                late.append(max(0.0, began - slot.timestamp()))
        if waited:
            self.meter.observe("pgsched_pickup_latency_seconds", waited, queue, weight)
        if late:
            self.meter.observe("pgsched_lateness_seconds", late, queue, weight)

    def _labels(self, way: Way) -> Labels:
        """Queue, kind and task as labels: a program, statement or URL is no task."""
        labels = self._known.get(way)
        if labels is None:
            queue, kind, task = way
            labels = self._queue(queue), kind, self._task(task) if kind == Kind.PYTHON else OTHER
            if kind == Kind.PYTHON and len(self._known) < MOST_KNOWN:
                self._known[way] = labels
        return labels

    def samples(self) -> Iterator[Sample]:
        """A source: the loop's lag, and how often each connection was opened again."""
        yield "pgsched_event_loop_lag_seconds", (), max(self._lags)
        for purpose in PURPOSES:
            yield "pgsched_reconnects_total", (purpose,), max(0, TRIED[purpose] - 1)


class MeteredSlots(Slots):
    """Slots that tell a WorkerMeter what becomes of their claims."""

    def __init__(self, counted: WorkerMeter, *given: Any) -> None:
        super().__init__(*given)
        self.counted = counted
        counted.note = self._afresh
        self._stride = self._until = 1
        self._owed = 0

    def take(self, claims: list[Claim], sent_at: float) -> None:
        self.counted.claimed(claims)
        super().take(claims, sent_at)

    def end(self, key: Any, why: Ended) -> None:
        running = self._running.get(key) if why in (Ended.LOST, Ended.DEADLINE) else None
        if running is not None and running.ended is not why:
            self.counted.lost("denied" if why is Ended.LOST else "deadline")
            if why is Ended.LOST:  # there will be no outcome
                self.counted.gone(running.claim)
        super().end(key, why)

    def _afresh(self) -> None:
        """A batch was counted: note each of the next attempts. The first stands for those that were left out, too."""
        self._owed += self._stride - self._until
        self._stride = self._until = 1

    def _ended(self, running: Running, outcome: Outcome | None) -> None:
        Slots._ended(self, running, outcome)  # not super(): it is done for every run
        self._until -= 1
        if not self._until:
            self._note(running)

    def _note(self, running: Running) -> None:
        noted = self.counted.ended
        noted.append((running, self._moved_at, self._stride + self._owed))
        self._owed = 0
        self._stride = self._until = STEP ** min(2, len(noted) // SAMPLE)

    def _ended_gathered(self, running: Running, outcome: Outcome | None = None) -> None:
        if running.key in self._running:
            self.counted.ended.append((running, time.monotonic(), 1))
        super()._ended_gathered(running, outcome)

    def samples(self) -> Iterator[Sample]:
        """A source: how the slots are at the moment."""
        yield "pgsched_worker_slots", (), self.concurrency
        yield "pgsched_worker_slots_busy", (), self._busy
        yield "pgsched_worker_prefetched", (), len(self._buffer)
        yield "pgsched_worker_draining", (), int(self._stopped)
        yield "pgsched_worker_abandoned", (), self.abandoned + sum(e.abandoned for e in set(self.executors.values()))
