"""The claim cursor: a queue is scanned from the last claimed key on, and from its start only as often as that is cheap.

What was claimed leaves dead entries at the start of the index. They are removed soon, unless some session pins xmin (a
long report, a forgotten transaction); then each scan from the start would read all of them again. The cursor is a hint
and never a rule: a run may become claimable behind it (a transaction that commits late, a run handed back), so a full
scan follows whenever the cursor finds too little, as long as full scans take no more than a twentieth of the time,
and once a second otherwise. Where one takes next to nothing, there is no use in a cursor. Where one takes a tenth of a
second more than other claims, they do not wait for it: what the cursor has passed is claimed beside them
(worker/claiming/backlog_scan.py), a piece at a time (worker/claiming/backlog_pieces.py).

Where others have many runs that this worker does not know, any scan reads those, with a cursor or without: what is slow
and in vain twice in a row takes no more than that share of the time either. So a run behind them is claimed within
twenty times as long as the scan takes, and 15 seconds at most. What is quick is never put off, nor is once slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from pgsched.core.model import Claim
from pgsched.db.arrays import literal, plain
from pgsched.db.queries.runs.claims import FROM_THE_START
from pgsched.worker.claiming.backlog_pieces import SHARE, Passed, Place, Places

QUICK_S = 0.003
SLOW_S = 0.01
EVERY_S = 1.0
LONGEST_S = 15.0
ASIDE_S = 0.1
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

    def spent(self, seconds: float, now: float) -> None:
        """It took so long, until now."""
        self.pause_s = min(LONGEST_S, SHARE * seconds, max(EVERY_S, 2 * self.pause_s))
        self.next_at = now + self.pause_s


class Cursor:
    """The cursor of one queue. All times are monotonic seconds of this process."""

    def __init__(self) -> None:
        self._after: Places = {}
        self._passed: Passed | None = None  # once a scan from the start takes so long that claims must not wait for it
        self._beside = True  # can that be looked at beside other claims?
        self._full = Budget()
        self._overdue_at = 0.0
        self._quick = False
        self._least_s = math.inf  # what a claim takes at least: the way to the server and back
        self._way_is_known = False
        self._in_vain = Budget()
        self._again_in_vain = False

    @property
    def aside(self) -> bool:
        """Does a scan from the start take so long that claims must not wait for it, and can pieces take its place?"""
        return self._passed is not None and self._beside

    def reconnected(self) -> None:
        """The way to the server may be a longer one: it is measured anew, and what is known holds until then."""
        self._way_is_known = False

    def hinted(self) -> None:
        """There may be something, also where it has looked in this round."""
        if self._passed is not None:
            self._passed.asked = True

    def wait_s(self, now: float) -> float:
        """Seconds until the queue may be looked at, because looks were slow and in vain."""
        return max(0.0, self._in_vain.next_at - now) if self._again_in_vain else 0.0

    def full_in(self, now: float) -> float:
        """Seconds until a scan from the start may follow one that found too little, or the next piece of it."""
        return max(0.0, (self._passed if self._passed and self._beside else self._full).next_at - now)

    def after(self, now: float) -> Mapping[str, str]:
        """The span from the cursor on, as `claim` takes it; FROM_THE_START when it is time, or takes none."""
        if self._quick or not self._after or (now >= self._overdue_at and not self.aside):
            return FROM_THE_START
        ats, ids = arrays(self._after.get(priority, BEGINNING) for priority in PRIORITIES)
        return {**FROM_THE_START, "after_ats": ats, "after_ids": ids}

    def passed_is_due(self, now: float) -> bool:
        """Is it time to look at what it has passed, beside other claims?"""
        return self.aside and bool(self._after) and self.full_in(now) == 0.0

    def passed(self, now: float) -> Mapping[str, str] | None:
        """The next piece of what it has passed, to be claimed from beside other claims; None: it is not time, or no
        use."""
        if self._passed is None or not self.passed_is_due(now):
            return None
        begin, end = self._passed.next(self._after)
        priorities = sorted(end)
        after_ats, after_ids = arrays(begin.get(priority, BEGINNING) for priority in priorities)
        until_ats, until_ids = arrays(end[priority] for priority in priorities)
        return {
            "priorities": plain(priorities),
            "after_ats": after_ats,
            "after_ids": after_ids,
            "until_ats": until_ats,
            "until_ids": until_ids,
        }

    def looked_aside(self, claims: Sequence[Claim], asked: int, sent_at: float, now: float) -> bool:
        """That piece was claimed from: sent at `sent_at`, answered now. True when more is to be looked at."""
        if self._passed is None:
            return False
        took_s = max(0.0, now - sent_at - self._least_s)  # what the way takes is not the scan's
        if len(claims) == asked:
            self._passed.stopped(ends(claims), took_s, now)
            return True
        if not self._passed.ended(took_s, now):
            return True
        again = self._passed.asked
        self._paced(self._passed.whole_s + self._least_s, now)
        return again

    def not_looked(self, took_s: float, now: float) -> None:
        """There was no answer after so long: the next one is asked later, or a claim begins at the start."""
        if took_s > ASIDE_S and self._passed is not None:
            self._passed.failed(took_s, now)
        else:
            self._beside, self._overdue_at = False, 0.0

    def not_scanned(self, now: float) -> None:
        """There was no answer to a scan from the start: pieces take less."""
        self._resume(ASIDE_S, now)

    def _resume(self, took_s: float, now: float) -> None:
        """Pieces can be looked at beside other claims again, after a scan that took so long."""
        if self._passed is not None and not self._beside:
            self._passed.resumed(took_s, now)
        self._beside = True

    def _paced(self, took_s: float, now: float) -> None:
        self._resume(took_s, now)
        if took_s - self._least_s <= ASIDE_S:
            self._passed = None
        elif self._passed is None:
            self._passed = Passed(took_s, now)
        self._full.spent(took_s, now)
        self._quick = took_s <= QUICK_S
        self._overdue_at = now + max(EVERY_S, self._full.pause_s)

    def move(self, claims: Sequence[Claim], now: float) -> None:
        """Go on behind these claims, which are in the order of their keys."""
        self._after |= ends(claims)
        if self._passed is not None:
            self._passed.moved(self._after, now)

    def scanned(self, claims: Sequence[Claim], asked: int, sent_at: float, now: float) -> None:
        """A scan from the start, sent at `sent_at`, was answered now: what it took says when the next one may be."""
        if claims or not self._after:  # those that the cursor spares are paced by themselves
            self._looked(claims, now - sent_at, now)
        self._took(now - sent_at)
        self._paced(now - sent_at, now)
        if len(claims) < asked:  # nothing claimable is left behind the cursor: it stays where it is, if it is ahead
            claims = [claim for claim in claims if self._is_ahead(claim)]
        self.move(claims, now)

    def went_on(self, claims: Sequence[Claim], sent_at: float, now: float) -> None:
        """A scan from the cursor on, sent at `sent_at`, was answered now."""
        self._took(now - sent_at)
        self._looked(claims, now - sent_at, now)
        self.move(claims, now)

    def _took(self, seconds: float) -> None:
        self._least_s = min(self._least_s, seconds) if self._way_is_known else seconds
        self._way_is_known = True

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


def arrays(places: Iterable[Place]) -> tuple[str, str]:
    """The array literals of their instants and ids."""
    ats, ids = zip(*places, strict=True)
    return literal(ats), plain(ids)
