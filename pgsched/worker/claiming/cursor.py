"""The claim cursor: a queue is scanned from the last claimed key on, and from its start only as often as that is cheap.

Claimed runs leave dead entries at the start of the index. Vacuum removes them soon, unless some session pins xmin (a
long report, a forgotten transaction); then each scan from the start reads all of them again.

Invariant: the cursor is a hint. A run may become claimable behind it (a transaction that commits late, a run handed
back), so a scan from the start follows whenever the cursor finds too little, and in any case once a second. Where that
would take more than a twentieth of the time, the scans are further apart: RESCAN_S at most, or four times as long as
those of all slow queues of this worker take together if that is longer. Where a scan from the start takes next to
nothing, each claim is one.

Where others have many runs that this worker does not know, any scan reads those, with a cursor or without: what is slow
and in vain twice in a row takes no more than a twentieth of the time either. So a run behind them is claimed within
twenty times as long as the scan takes, and 15 seconds at most. What is quick is never put off, nor is once slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from pgsched.core.model import Claim
from pgsched.db.arrays import literal, plain
from pgsched.db.queries.runs.claims import FROM_THE_START

Place = tuple[str, int]  # available_at and id: where a run stands among those of its priority
Places = dict[int, Place]  # by priority

SHARE = 20  # a pause is so many times as long as the scan before it: scans take a twentieth of the time
SHARE_AT_MOST = 4  # where scans are so slow that such a pause would be too long: they take a fifth
QUICK_S = 0.003
SLOW_S = 0.01
EVERY_S = 1.0
LONGEST_S = 15.0
RESCAN_S = 30.0
PRIORITIES = range(10)
PRIORITY = attrgetter("priority")
BEGINNING: Place = ("-infinity", 0)


class Budget:
    """When something that costs time may be done again, so that it takes a small share of the time.

    One slow answer (the server was busy with something else) pauses it for EVERY_S at most; what stays slow is done
    ever less often. All times are monotonic seconds of this process.
    """

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.next_at = 0.0

    def spent(self, seconds: float, now: float, longest_s: float = LONGEST_S, least_s: float = 0.0) -> None:
        """It took so long, until now; the pause is at most `longest_s`, and not less than `least_s`."""
        self.pause_s = min(longest_s, max(least_s, min(SHARE * seconds, max(EVERY_S, 2 * self.pause_s))))
        self.next_at = now + self.pause_s


class Rescans:
    """What the last scan from the start of each slow queue took, in seconds: they share one connection, so each waits
    for the others, too."""

    def __init__(self) -> None:
        self._took_s: dict[Cursor, float] = {}

    def took_s(self, cursor: Cursor) -> float:
        """What the last scan for this cursor took; 0 if it was quick."""
        return self._took_s.get(cursor, 0.0)

    def note(self, cursor: Cursor, took_s: float) -> float:
        """A scan for this cursor took so long; returns what those of the other slow queues took."""
        self._took_s.pop(cursor, None)
        if took_s <= SLOW_S:
            return 0.0
        others_s = sum(self._took_s.values())
        self._took_s[cursor] = took_s
        return others_s

    def forget(self, cursor: Cursor) -> None:
        """This cursor is not used any more."""
        self._took_s.pop(cursor, None)


class Cursor:
    """The cursor of one queue. All times are monotonic seconds of this process."""

    def __init__(self, rescans: Rescans | None = None) -> None:
        self._rescans = rescans or Rescans()
        self._after: Places = {}
        self._full = Budget()
        self._overdue_at = 0.0
        self._quick = False
        self._in_vain = Budget()
        self._again_in_vain = False

    def wait_s(self, now: float) -> float:
        """Seconds until the queue may be looked at, because looks were slow and in vain."""
        return max(0.0, self._in_vain.next_at - now) if self._again_in_vain else 0.0

    def is_plain(self, now: float) -> bool:
        """May it be scanned from the start, and at once?"""
        return not self.wait_s(now) and self.after(now) is FROM_THE_START

    def full_in(self, now: float) -> float:
        """Seconds until a scan from the start may follow one that found too little."""
        return max(0.0, self._full.next_at - now)

    def after(self, now: float) -> Mapping[str, str]:
        """The span from the cursor on, as `claim` takes it; FROM_THE_START when it is time, or takes none."""
        if self._quick or not self._after or now >= self._overdue_at:
            return FROM_THE_START
        ats, ids = zip(*(self._after.get(priority, BEGINNING) for priority in PRIORITIES), strict=True)
        return {**FROM_THE_START, "after_ats": literal(ats), "after_ids": plain(ids)}

    def move(self, claims: Sequence[Claim]) -> None:
        """Go on behind these claims, which are in the order of their keys."""
        self._after |= ends(claims)

    def scanned(self, claims: Sequence[Claim], asked: int, sent_at: float, now: float) -> None:
        """A scan from the start, sent at `sent_at`, was answered now: what it took says when the next one may be."""
        if claims or not self._after:  # those that the cursor spares are paced by themselves
            self._looked(claims, now - sent_at, now)
        self._pace(now - sent_at, now)
        if len(claims) < asked:  # nothing claimable is left behind the cursor: it stays where it is, if it is ahead
            claims = [claim for claim in claims if self._is_ahead(claim)]
        self.move(claims)

    def not_scanned(self, sent_at: float, now: float) -> None:
        """A scan from the start had no answer. The next one waits as if it had taken as long as the last slow scan, or
        longer if it did: a failure does not say that a scan would be quick."""
        self._pace(max(now - sent_at, self._rescans.took_s(self)), now)

    def went_on(self, claims: Sequence[Claim], sent_at: float, now: float) -> None:
        """A scan from the cursor on, sent at `sent_at`, was answered now."""
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
            self._in_vain, self._again_in_vain = Budget(), False
        else:
            # a server that was busy once must not delay what comes
            self._again_in_vain = self._in_vain.pause_s > 0 and now < self._in_vain.next_at + LONGEST_S
            self._in_vain.spent(took_s, now)

    def _is_ahead(self, claim: Claim) -> bool:
        return self._after.get(claim.priority, BEGINNING) < place(claim)


def place(claim: Claim) -> Place:
    """Where its run stands; each claim that the database answers with has an instant."""
    return claim.available_at or BEGINNING[0], claim.id


def ends(claims: Sequence[Claim]) -> Places:
    """The last place in each priority of claims that are in the order of their keys."""
    if claims and claims[0].priority == claims[-1].priority:  # nearly always
        return {claims[-1].priority: place(claims[-1])}
    last = dict(zip(map(PRIORITY, claims), claims, strict=True))
    return {priority: place(claim) for priority, claim in last.items()}
