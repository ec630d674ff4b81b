"""The polling policy of a claimer: how long it waits, and when it asks to be woken by a notification.

A worker polls at short intervals after work. It asks to be woken only when a poll finds nothing. The reason: a commit
that notifies waits for every other commit that does. Many enqueuers would slow each other down for workers that are
awake anyway.

- A worker announces until when it may be asleep, and no transaction notifies after that.
- A transaction that had started before may not have seen the announcement. So the worker looks again soon, then at
  growing intervals.
- While many runs a second come in, one poll without a run is no reason to be woken: the worker goes on polling.
- An idle worker that notifications reach looks by itself once in one to two poll periods, at random. So a fleet costs
  the server little and does not look at the same time.
- An idle worker that no notification reaches looks once a poll period.
"""

from __future__ import annotations

BUSY_POLL_S = 0.0015
FIRST_LOOK_S = 0.02
GROWTH = 5.0
BUSY_COUNT, WINDOW_S = 50, 0.1
IDLE_BACKOFF = 2.0  # factor on the poll period where notifications arrive
JITTER, SPREAD = 0.1, 0.5  # the share by which a wait may be shorter: of up to a poll period, and of more


class PollingPolicy:
    """The results of one claimer, and the next wait that follows from them. All times are monotonic seconds.

    - `idle`: the claimer found nothing and is to be woken.
    - `period_s`: the longest time between two looks while nothing comes.
    """

    def __init__(self, poll_s: float) -> None:
        self.poll_s = poll_s
        self.period_s = IDLE_BACKOFF * poll_s
        self._asleep_until = 0.0
        self.idle = False
        self._look_s = FIRST_LOOK_S
        self._since, self._count, self._busy_until = 0.0, 0, 0.0

    def jitter(self, wait_s: float) -> float:
        """Return the share by which this wait may be shorter, so that a fleet does not look at the same time."""
        return SPREAD if wait_s > self.poll_s else JITTER

    @property
    def asleep_s(self) -> float:
        """The seconds for which the worker announces its sleep."""
        return 2 * self.period_s + 0.5

    def found(self, count: int, now: float) -> None:
        """Note that a round brought `count` runs."""
        if now >= self._since + WINDOW_S:
            self._since, self._count = now, 0
        self._count += count
        if count and self._count >= BUSY_COUNT:
            self._busy_until = now + WINDOW_S
        if count:  # runs of overlapping transactions may not have been notified (pgsched.tell_workers)
            self._look_s = BUSY_POLL_S
        self.idle = not count and now >= self._busy_until

    def must_ask(self, now: float) -> bool:
        """Check whether it is time to announce sleep; only a worker that found nothing does."""
        return self.idle and now + self.period_s > self._asleep_until

    def asked(self, sent_at: float, sure_s: float) -> None:
        """Note an announcement sent at `sent_at`: for `sure_s` seconds from then each new run is notified."""
        if sent_at > self._asleep_until:
            self._look_s = FIRST_LOOK_S
        self._asleep_until = sent_at + sure_s

    def forget(self) -> None:
        """Note that a connection or the server was lost: the announcement may be lost too."""
        self._asleep_until = 0.0

    def wait_s(self, now: float, look_at: float = 0.0) -> float:
        """Return the seconds to wait for a notification before the next look; 0: announce sleep first.

        `look_at`: when the next look is affordable for a worker that found nothing.
        """
        sure_s = self._asleep_until - now
        if sure_s <= BUSY_POLL_S:
            return 0.0 if self.idle else BUSY_POLL_S
        return min(max(self._look_s, look_at - now) if self.idle else self._look_s, self.period_s, sure_s)

    def waited(self) -> None:
        """Note that nothing woke the worker: the next wait is longer."""
        self._look_s = min(self._look_s * GROWTH, self.period_s)


class UnnotifiedPolling(PollingPolicy):
    """The policy of a worker that no notification reaches.

    It announces no sleep, polls often after work, and looks at growing intervals.
    """

    def __init__(self, poll_s: float) -> None:
        super().__init__(poll_s)
        self.period_s = poll_s

    def must_ask(self, now: float) -> bool:
        """Return False: this worker announces no sleep."""
        return False

    def wait_s(self, now: float, look_at: float = 0.0) -> float:
        """Return the seconds until the next look."""
        return min(max(self._look_s, look_at - now), self.poll_s) if self.idle else BUSY_POLL_S
