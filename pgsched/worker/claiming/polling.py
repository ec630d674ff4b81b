"""How a claimer waits: after work it polls at short intervals; only when that finds nothing is it to be woken.

A commit that notifies waits for every other commit that does, so that many enqueuers would slow each other down for
the sake of workers that are awake anyway. A worker therefore says until when it may be asleep, and nobody notifies
after that. A transaction that was under way then may not have seen it: the worker looks again soon, and ever later.
While many runs a second come in, one poll that brings nothing is no reason to be woken: it goes on polling.

An idle worker that notifications reach looks by itself once in one to two poll periods, at random, so that a fleet
costs the server little and does not look in step. One that none reaches looks once a poll period.
"""

from __future__ import annotations

BUSY_POLL_S = 0.0015
FIRST_LOOK_S = 0.02
LATER = 5.0
MANY, WINDOW_S = 50, 0.1
IDLE_BACKOFF = 2.0  # times the poll period, where a notification comes before
JITTER, SPREAD = 0.1, 0.5  # by what part a wait may be shorter: one of a poll period at most, and a longer one


class PollingPolicy:
    """What one claimer found, and what follows for its next wait. All times are monotonic seconds of this process.

    `idle`: it found nothing, and is to be woken. `period_s`: seconds between two looks while nothing comes, at most.
    """

    def __init__(self, poll_s: float) -> None:
        self.poll_s = poll_s
        self.period_s = IDLE_BACKOFF * poll_s
        self._asleep_until = 0.0
        self.idle = False
        self._look_s = FIRST_LOOK_S
        self._since, self._count, self._busy_until = 0.0, 0, 0.0

    def jitter(self, wait_s: float) -> float:
        """By what part this wait may be shorter, so that a fleet does not look in step."""
        return SPREAD if wait_s > self.poll_s else JITTER

    @property
    def asleep_s(self) -> float:
        """Seconds for which it says that it sleeps."""
        return 2 * self.period_s + 0.5

    def found(self, count: int, now: float) -> None:
        """A round that is over brought so many runs."""
        if now >= self._since + WINDOW_S:
            self._since, self._count = now, 0
        self._count += count
        if count and self._count >= MANY:
            self._busy_until = now + WINDOW_S
        if count:  # others, whose transactions overlapped, may not have been announced (pgsched.tell_workers)
            self._look_s = BUSY_POLL_S
        self.idle = not count and now >= self._busy_until

    def must_ask(self, now: float) -> bool:
        """Is it time to say that this worker sleeps? Only one that found nothing says so."""
        return self.idle and now + self.period_s > self._asleep_until

    def asked(self, sent_at: float, sure_s: float) -> None:
        """Asked at `sent_at`: for `sure_s` seconds from then, whoever makes a run notifies."""
        if sent_at > self._asleep_until:
            self._look_s = FIRST_LOOK_S
        self._asleep_until = sent_at + sure_s

    def forget(self) -> None:
        """A connection was lost, or the server: nobody may know that this worker sleeps."""
        self._asleep_until = 0.0

    def wait_s(self, now: float, look_at: float = 0.0) -> float:
        """Seconds to wait for a notification before the next look, which one that found nothing cannot afford before
        `look_at`; 0: the worker must say first that it sleeps."""
        sure_s = self._asleep_until - now
        if sure_s <= BUSY_POLL_S:
            return 0.0 if self.idle else BUSY_POLL_S
        return min(max(self._look_s, look_at - now) if self.idle else self._look_s, self.period_s, sure_s)

    def waited(self) -> None:
        """Nothing woke it: the next wait is longer."""
        self._look_s = min(self._look_s * LATER, self.period_s)


class UnnotifiedPolling(PollingPolicy):
    """How one waits that no notification reaches: it says nothing, polls often after work, and looks ever later."""

    def __init__(self, poll_s: float) -> None:
        super().__init__(poll_s)
        self.period_s = poll_s

    def must_ask(self, now: float) -> bool:
        return False

    def wait_s(self, now: float, look_at: float = 0.0) -> float:
        return min(max(self._look_s, look_at - now), self.poll_s) if self.idle else BUSY_POLL_S
