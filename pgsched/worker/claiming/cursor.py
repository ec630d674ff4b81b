"""The claim cursor of a queue: scans start at the last claimed key, and only now and then at the queue's start.

Claimed runs leave dead entries at the start of the index. Vacuum removes them soon, unless a session pins xmin (a long
report, a forgotten transaction). Then each scan from the start reads all of them again.

Invariant: the cursor is only a hint. A run may become claimable behind it: a transaction commits late, or a run is
handed back. So a scan from the start follows whenever the cursor finds too little, and at least once a second. There
are two exceptions:

- Where these scans would take more than a twentieth of the time, they are further apart. The pause is at most
  `RESCAN_S`, or four times what the scans of all slow queues take together, if that is longer.
- Where a scan from the start takes almost no time, each claim is one.

A queue may hold many runs of tasks that this worker does not know, for other workers. Every scan reads those, with a
cursor or without. A scan that is slow and finds nothing twice in a row also takes at most a twentieth of the time. So a
run behind them is claimed within twenty times the time of a scan, and within 15 seconds. A quick scan is never delayed,
nor is a scan that was slow only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from pgsched.core.model import Claim
from pgsched.db.arrays import literal, plain
from pgsched.db.queries.runs.claims import FROM_THE_START

CursorKey = tuple[str, int]  # available_at and id: the position of a run among those of its priority
CursorKeys = dict[int, CursorKey]  # by priority

SHARE = 20  # a pause is 20 times as long as the scan before it: scans take a twentieth of the time
SHARE_AT_MOST = 4  # the factor where scans are too slow for that: they take a fifth of the time
QUICK_S = 0.003
SLOW_S = 0.01
EVERY_S = 1.0
LONGEST_S = 15.0
RESCAN_S = 30.0
PRIORITIES = range(10)
PRIORITY = attrgetter("priority")
BEGINNING: CursorKey = ("-infinity", 0)


class Budget:
    """The pauses between actions that cost time, so that the actions take a small share of the time.

    One slow answer (a busy server) causes a pause of at most EVERY_S. An action that stays slow gets longer and longer
    pauses. All times are monotonic seconds of this process.
    """

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.next_at = 0.0

    def spent(self, seconds: float, now: float, longest_s: float = LONGEST_S, least_s: float = 0.0) -> None:
        """Note that the action took `seconds` until `now`; the next pause is between `least_s` and `longest_s`."""
        self.pause_s = min(longest_s, max(least_s, min(SHARE * seconds, max(EVERY_S, 2 * self.pause_s))))
        self.next_at = now + self.pause_s


class Rescans:
    """The seconds that the last scan from the start of each slow queue took.

    The queues share one connection, so each of them waits for the scans of the others.
    """

    def __init__(self) -> None:
        self._took_s: dict[Cursor, float] = {}

    def took_s(self, cursor: Cursor) -> float:
        """Return the seconds that the last scan for this cursor took; 0 if it was quick."""
        return self._took_s.get(cursor, 0.0)

    def note(self, cursor: Cursor, took_s: float) -> float:
        """Note the time of a scan for this cursor; return the seconds that the other slow queues take together."""
        self._took_s.pop(cursor, None)
        if took_s <= SLOW_S:
            return 0.0
        others_s = sum(self._took_s.values())
        self._took_s[cursor] = took_s
        return others_s

    def forget(self, cursor: Cursor) -> None:
        """Remove a cursor that is not used any more."""
        self._took_s.pop(cursor, None)


class Cursor:
    """The cursor of one queue. All times are monotonic seconds of this process."""

    def __init__(self, rescans: Rescans | None = None) -> None:
        self._rescans = rescans or Rescans()
        self._after: CursorKeys = {}
        self._full = Budget()
        self._overdue_at = 0.0
        self._quick = False
        self._empty_scans = Budget()
        self._empty_twice = False

    def wait_s(self, now: float) -> float:
        """Return the seconds until the queue may be scanned again, because scans were slow and found nothing."""
        return max(0.0, self._empty_scans.next_at - now) if self._empty_twice else 0.0

    def is_plain(self, now: float) -> bool:
        """Check whether the queue may be scanned now, and from its start."""
        return not self.wait_s(now) and self.after(now) is FROM_THE_START

    def full_in(self, now: float) -> float:
        """Return the seconds until a scan from the start may follow a scan that found too little."""
        return max(0.0, self._full.next_at - now)

    def after(self, now: float) -> Mapping[str, str]:
        """Return the span for the next claim: from the cursor on, or FROM_THE_START where one is due or quick."""
        if self._quick or not self._after or now >= self._overdue_at:
            return FROM_THE_START
        ats, ids = zip(*(self._after.get(priority, BEGINNING) for priority in PRIORITIES), strict=True)
        return {**FROM_THE_START, "after_ats": literal(ats), "after_ids": plain(ids)}

    def move(self, claims: Sequence[Claim]) -> None:
        """Move the cursor behind these claims, which are in the order of their keys."""
        self._after |= last_keys(claims)

    def scanned(self, claims: Sequence[Claim], asked: int, sent_at: float, now: float) -> None:
        """Note the answer to a scan from the start; its duration decides when the next one may be."""
        if claims or not self._after:  # otherwise `_pace` alone decides on the next one
            self._looked(claims, now - sent_at, now)
        self._pace(now - sent_at, now)
        if len(claims) < asked:  # nothing claimable is left behind the cursor, so it never moves back
            claims = [claim for claim in claims if self._is_ahead(claim)]
        self.move(claims)

    def not_scanned(self, sent_at: float, now: float) -> None:
        """Note that a scan from the start got no answer: a failure does not show that a scan would be quick.

        The next scan waits as after the last slow scan, or longer if this one took longer.
        """
        self._pace(max(now - sent_at, self._rescans.took_s(self)), now)

    def went_on(self, claims: Sequence[Claim], sent_at: float, now: float) -> None:
        """Note the answer to a scan from the cursor on."""
        self._looked(claims, now - sent_at, now)
        self.move(claims)

    def _pace(self, took_s: float, now: float) -> None:
        others_s = self._rescans.note(self, took_s)
        longest_s = max(RESCAN_S, SHARE_AT_MOST * (others_s + took_s))
        self._full.spent(took_s, now, longest_s, SHARE_AT_MOST * others_s)
        self._quick = took_s <= QUICK_S
        self._overdue_at = now + max(EVERY_S, self._full.pause_s)

    def _looked(self, claims: Sequence[Claim], took_s: float, now: float) -> None:
        if claims or took_s <= SLOW_S:
            self._empty_scans, self._empty_twice = Budget(), False
        else:
            # a server that was busy once must not delay the next scan
            self._empty_twice = self._empty_scans.pause_s > 0 and now < self._empty_scans.next_at + LONGEST_S
            self._empty_scans.spent(took_s, now)

    def _is_ahead(self, claim: Claim) -> bool:
        return self._after.get(claim.priority, BEGINNING) < key_of(claim)


def key_of(claim: Claim) -> CursorKey:
    """Return the position of a claim's run; each claim in an answer of the database has an `available_at`."""
    return claim.available_at or BEGINNING[0], claim.id


def last_keys(claims: Sequence[Claim]) -> CursorKeys:
    """Return the last position in each priority of claims that are in the order of their keys."""
    if claims and claims[0].priority == claims[-1].priority:  # nearly always
        return {claims[-1].priority: key_of(claims[-1])}
    last = dict(zip(map(PRIORITY, claims), claims, strict=True))
    return {priority: key_of(claim) for priority, claim in last.items()}
