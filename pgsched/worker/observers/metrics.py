"""The metrics of one worker. Without `--metrics` none of this is used, and it costs nothing.

Invariant: the cost for each attempt is close to zero.

- Counts are made for a whole batch, once its outcomes have been written.
- Times are measured for at most BURST attempts in each stretch of STRETCH_S. For KEPT_S they stand for other attempts
  with the same labels.
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
from pgsched.db.connection.connect import CONNECT_ATTEMPTS, Connection
from pgsched.db.queries.reports import metrics
from pgsched.telemetry.catalogue import OTHER
from pgsched.telemetry.metrics import BoundedLabels, Meter, Sample
from pgsched.worker.attempts.attempt import EndReason
from pgsched.worker.attempts.runner import AttemptRunner

LAG_STRETCH_S, LAG_EVERY_S = 15.0, 0.25
BURST, STRETCH_S = 32, 0.05
KEPT_S = 1.0  # outcomes of attempts that ended with the timed ones may come this much later
BACKFILLED = timedelta(hours=1)  # a run that is this much later than its slot was requested later (backfill)
FINAL = ("succeeded", "dead", "cancelled")
PURPOSES = ("claim", "settle", "heartbeat", "listen", "leader", "logs", "metrics")
MOST_KNOWN = 1000
TaskKey = tuple[str, str, str]
Labels = tuple[str, ...]
AttemptTimes = tuple[Claim, float, float]  # a claim, and when its attempt began and ended, in monotonic seconds
Durations = tuple[float, float | None, float | None]  # seconds: duration, wait before it, lateness
TASK_KEY_OF_CLAIM: Callable[[Claim], TaskKey] = itemgetter(
    *map(Claim._fields.index, ("queue", "kind", "task"))
)  # faster by index
TASK_KEY_OF_SETTLEMENT: Callable[[Settlement], TaskKey] = itemgetter(
    *map(Settlement._fields.index, ("queue", "kind", "task"))
)
PARTS = [itemgetter(Settlement._fields.index(name)) for name in ("task", "queue", "kind")]


class WorkerMeter:
    """The counts of one worker's work, in `meter`; an observer (WorkerEvents)."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.attempt_times: list[AttemptTimes] = []
        self.wants_times = True  # measure the times of the next attempts
        # the last measured times, and when collected
        self.recent_durations: dict[Labels, tuple[float, list[Durations]]] = {}
        self.uncounted: Counter[Labels] = Counter()  # ended attempts that are in no histogram yet
        self._stretch_ends = 0.0
        self._queue, self._task = BoundedLabels(), BoundedLabels()
        self._known: dict[TaskKey, Labels] = {}
        self.worst_lags_s = (0.0, 0.0)  # the longest lag in the last stretch, and in this one
        self._lag_stretch_ends = time.monotonic() + LAG_STRETCH_S
        self._offset_s: float | None = None  # the database's clock minus this process's monotonic clock

    def beat(self, conn: Connection[Any]) -> None:
        """Measure the offset of the database's clock, at each heartbeat."""
        self._offset_s = metrics.clock_offset(conn)

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Observe the size of a claim's answer."""
        if claims:
            self.meter.observe("pgsched_claim_batch_size", [len(claims)])

    def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
        """Keep the times of one attempt, as a sample for its stretch of time."""
        self.attempt_times.append((claim, started, now))
        self.wants_times = len(self.attempt_times) < BURST

    def ending(self, claim: Claim, why: EndReason) -> None:
        """Count a claim that is lost."""
        if why is EndReason.LOST:
            self.lost("denied")
            self.gone(claim)  # no outcome will come
        elif why is EndReason.DEADLINE:
            self.lost("deadline")

    def lost(self, reason: str, count: int = 1) -> None:
        """Count lost claims under this reason."""
        self.meter.count("pgsched_leases_lost_total", (reason,), count)

    def gone(self, claim: Claim) -> None:
        """Count an attempt that was stopped because its claim was lost."""
        labels = self._labels(TASK_KEY_OF_CLAIM(claim))
        self.meter.count("pgsched_attempts_total", (*labels, "lost"))
        self.uncounted[labels] += 1

    async def watch(self) -> None:
        """Measure the event loop's lag until cancelled, and collect times where nothing is settled.

        Each worker of a process does so, with the same meter.
        """
        while True:
            due = time.monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            now = time.monotonic()
            before, worst = self.worst_lags_s
            self.worst_lags_s = before, max(worst, now - due)
            self._look()
            if now >= self._lag_stretch_ends:
                self._lag_stretch_ends, self.worst_lags_s = now + LAG_STRETCH_S, (self.worst_lags_s[1], 0.0)

    def settled(self, batch: Sequence[Settlement], verdicts: Sequence[str]) -> None:
        """Count a batch of written outcomes; `verdicts`: the result for each."""
        self.meter.observe("pgsched_settle_batch_size", [len(batch)])
        if verdicts.count("succeeded") == len(verdicts):  # nearly always, and then no outcome is looked at
            for way, count in count_by_task(batch).items():
                self._count(way, Result.SUCCEEDED.value, "succeeded", count)
        else:
            for (way, verdict, result), count in Counter(
                (TASK_KEY_OF_SETTLEMENT(s), verdict, s.outcome.result.value)
                for s, verdict in zip(batch, verdicts, strict=True)
            ).items():
                self._count(way, result, verdict, count)
        self._look()

    def _count(self, way: TaskKey, outcome: str, verdict: str, count: int) -> None:
        labels = self._labels(way)
        self.meter.count("pgsched_attempts_total", (*labels, "lost" if verdict == "lost" else outcome), count)
        self.uncounted[labels] += 0 if outcome == Result.RELEASED else count
        # Repeated: the run's own transaction, or a settlement whose answer was lost, had settled the run before.
        state = outcome if verdict == "repeated" else verdict
        if state in FINAL:
            self.meter.count("pgsched_runs_finished_total", (*labels, state), count)
        elif verdict == "lost":
            self.lost("settled_late", count)

    def _look(self) -> None:
        """Put the times of a finished stretch into the histograms."""
        now = time.monotonic()
        if now < self._stretch_ends:
            return
        self._stretch_ends = now + STRETCH_S
        noted, self.attempt_times, self.wants_times = self.attempt_times, [], True
        fresh: defaultdict[Labels, list[Durations]] = defaultdict(list)
        for claim, started, ended in noted:
            fresh[self._labels(TASK_KEY_OF_CLAIM(claim))].append(self._time(claim, started, ended))
        kept = {labels: one for labels, one in self.recent_durations.items() if one[0] > now - KEPT_S}
        self.recent_durations = kept | {labels: (now, times) for labels, times in fresh.items()}
        for labels in {*fresh, *self.uncounted}.intersection(self.recent_durations):
            timed = self.recent_durations[labels][1]
            owed = max(self.uncounted[labels], len(fresh.get(labels, ())))
            self.uncounted[labels] -= owed
            each, more = divmod(owed, len(timed))
            self._observe(labels, timed[:more], each + 1)
            self._observe(labels, timed[more:], each)
        # for the rest no attempt with the same labels was measured lately: counted without a time
        self.uncounted = Counter({labels: owed for labels, owed in self.uncounted.items() if owed < 0})

    def _time(self, claim: Claim, started: float, ended: float) -> Durations:
        waited, late = None, None
        if self._offset_s is not None and claim.available_at is not None:
            began, available_at = started + self._offset_s, datetime.fromisoformat(claim.available_at)
            waited = max(0.0, began - available_at.timestamp())
            slot = claim.scheduled_at
            if slot is not None and claim.attempt == 1 and available_at - slot < BACKFILLED:
                late = max(0.0, began - slot.timestamp())
        return ended - started, waited, late

    def _observe(self, labels: Labels, timed: Sequence[Durations], weight: int) -> None:
        """Put these times into the histograms, each with this weight."""
        if not (timed and weight):
            return
        took, waited, late = (list(filter(is_known, values)) for values in zip(*timed, strict=True))
        self.meter.observe("pgsched_attempt_duration_seconds", took, labels, weight)
        for name, values in ("pgsched_pickup_latency_seconds", waited), ("pgsched_lateness_seconds", late):
            if values:
                self.meter.observe(name, values, labels[:1], weight)

    def _labels(self, way: TaskKey) -> Labels:
        """Return queue, kind and task as labels; the task only for kind `task`, not a program, statement or URL."""
        labels = self._known.get(way)
        if labels is None:
            queue, kind, task = way
            labels = self._queue(queue), kind, self._task(task) if kind == Kind.TASK else OTHER
            if kind == Kind.TASK and len(self._known) < MOST_KNOWN:
                self._known[way] = labels
        return labels

    def samples(self) -> Iterator[Sample]:
        """Yield the event loop's lag, and how often each connection was opened again."""
        yield "pgsched_event_loop_lag_seconds", (), max(self.worst_lags_s)
        for purpose in PURPOSES:
            yield "pgsched_reconnects_total", (purpose,), max(0, CONNECT_ATTEMPTS[purpose] - 1)


def is_known(taken: float | None) -> bool:
    """Check whether the value was measured."""
    return taken is not None


def count_by_task(batch: Sequence[Settlement]) -> Mapping[TaskKey, int]:
    """Count the settlements of each queue, kind and task.

    Nearly always all have the same, and to check that is faster than to count.
    """
    if batch and all(each.count(each[0]) == len(each) for each in (list(map(part, batch)) for part in PARTS)):
        return {TASK_KEY_OF_SETTLEMENT(batch[0]): len(batch)}
    return Counter(map(TASK_KEY_OF_SETTLEMENT, batch))


def samples_of(runner: AttemptRunner) -> Iterator[Sample]:
    """Yield how many places and claims a worker has now.

    Another thread calls this, so the values may belong to slightly different moments.
    """
    capacity, ahead = runner.capacity, len(runner.buffer.claims)
    ended = runner.leases.count - len(runner) - ahead
    yield "pgsched_worker_slots", (), capacity.concurrency
    yield "pgsched_worker_slots_busy", (), capacity.busy
    yield "pgsched_worker_prefetched", (), ahead
    yield "pgsched_worker_unsettled", (), max(0, ended)
    yield "pgsched_worker_draining", (), int(runner.buffer.stopped)
    yield "pgsched_worker_abandoned", (), capacity.abandoned + sum(e.abandoned for e in set(runner.executors.values()))
