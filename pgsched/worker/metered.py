"""What a worker counts where metrics are asked for; where they are not, none of this is there and nothing is paid.

The rule: the hot path only appends to a list; counting is done for a whole batch, when its outcomes have been written.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pgsched.db import metering
from pgsched.db.connect import Connection
from pgsched.db.tried import TRIED
from pgsched.model import Claim, Kind, Outcome
from pgsched.observe.catalogue import OTHER
from pgsched.observe.meter import Bounded, Meter, Sample
from pgsched.worker.running import Ended, Running
from pgsched.worker.settle import Settled
from pgsched.worker.slots import Slots

STRETCH_S, LAG_EVERY_S = 15.0, 0.25
BACKFILLED_S = 3600.0  # a slot whose run came so late was asked for later
FINAL = ("succeeded", "dead", "cancelled")
PURPOSES = ("claim", "settle", "heartbeat", "listen", "leader", "logs", "metrics")
Ended_ = tuple[Claim, float, float]  # when its attempt began and ended, in monotonic seconds


class WorkerMeter:
    """Counts one worker's work into `meter`."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.ended: list[Ended_] = []
        self._queue, self._task = Bounded(), Bounded()
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
        labels = self._queue(claim.queue), claim.kind, self._named(claim.kind, claim.task), "lost"
        self.meter.count("pgsched_attempts_total", labels)

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
        ways = Counter([(s[0].queue, s[0].kind, s[0].task, s[1].result, verdict) for s, verdict in told])
        for (queue, kind, task, result, verdict), count in ways.items():
            labels = self._queue(queue), kind, self._named(kind, task)
            outcome = "lost" if verdict == "lost" else result.value
            self.meter.count("pgsched_attempts_total", (*labels, outcome), count)
            if verdict in FINAL:
                self.meter.count("pgsched_runs_finished_total", (*labels, verdict), count)
            elif verdict == "lost":
                self.lost("settled_late", count)
        self.flush()

    def flush(self) -> None:
        """Count the attempts that have ended since the last time."""
        ended, self.ended = self.ended, []
        took: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for claim, began, end in ended:
            took[claim.queue, claim.kind, claim.task].append(end - began)
        for (queue, kind, task), values in took.items():
            labels = self._queue(queue), kind, self._named(kind, task)
            self.meter.observe("pgsched_attempt_duration_seconds", values, labels)
        if self._offset_s is not None:
            self._waits(ended, self._offset_s)

    def _waits(self, ended: Sequence[Ended_], offset_s: float) -> None:
        """How long they had waited to be started."""
        waited: defaultdict[str, list[float]] = defaultdict(list)
        late: defaultdict[str, list[float]] = defaultdict(list)
        for claim, began, _ in ended:
            available_at, slot = claim.available_at, claim.scheduled_at
            if available_at is None:
                continue
            due_s = available_at.timestamp()
            waited[claim.queue].append(began + offset_s - due_s)
            if slot is not None and claim.attempt == 1 and due_s - (slot_s := slot.timestamp()) < BACKFILLED_S:
                late[claim.queue].append(began + offset_s - slot_s)
        for name, found in (("pgsched_pickup_latency_seconds", waited), ("pgsched_lateness_seconds", late)):
            for queue, values in found.items():
                self.meter.observe(name, [max(0.0, value) for value in values], (self._queue(queue),))

    def _named(self, kind: str, task: str) -> str:
        """The label for a task: a program, statement or URL is none."""
        return self._task(task) if kind == Kind.PYTHON else OTHER

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

    def take(self, claims: list[Claim], sent_at: float) -> None:
        self.counted.claimed(claims)
        super().take(claims, sent_at)

    def end(self, key: Any, why: Ended) -> None:
        held = why in (Ended.LOST, Ended.DEADLINE) and (running := self._running.get(key)) is not None
        if held and running is not None and running.ended is None:
            self.counted.lost("denied" if why is Ended.LOST else "deadline")
        super().end(key, why)

    def _ended(self, running: Running, outcome: Outcome | None) -> None:
        self.counted.ended.append((running.claim, running.started, time.monotonic()))
        super()._ended(running, outcome)

    def _ended_gathered(self, running: Running, outcome: Outcome | None = None) -> None:
        if running.key in self._running:
            self.counted.ended.append((running.claim, running.started, time.monotonic()))
        super()._ended_gathered(running, outcome)

    def _settled(self, claim: Claim, outcome: Outcome | None) -> None:
        if outcome is None:
            self.counted.gone(claim)
        super()._settled(claim, outcome)

    def samples(self) -> Iterator[Sample]:
        """A source: how the slots are at the moment."""
        yield "pgsched_worker_slots", (), self.concurrency
        yield "pgsched_worker_slots_busy", (), self._busy
        yield "pgsched_worker_prefetched", (), len(self._buffer)
        yield "pgsched_worker_draining", (), int(self._stopped)
        yield "pgsched_worker_abandoned", (), self.abandoned + sum(e.abandoned for e in set(self.executors.values()))
