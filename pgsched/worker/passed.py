"""What a claim cursor has passed, looked at in pieces while its dead entries stay: no look takes long by itself.

The rule: the places that the cursor has had are a chain from the beginning to where it is, so each key that it has
passed lies in one of its links, wherever the cursor has jumped. A round goes through all of them. As many links are
looked at together as take about a tenth of a second; then there is a pause, so that a round takes a twentieth of the
time, but ends within half a minute, as long as that is no more than a fifth of it.
"""

from __future__ import annotations

Place = tuple[str, int]  # available_at and id: where a run stands among those of its priority
Places = dict[int, Place]  # by priority

SHARE, SHARE_AT_MOST = 20, 4  # times what a look takes
ROUND_S = 30.0
LOOK_S = 0.1
FIRST_PAUSE_S = 1.0
LINK = 50_000  # claims
LINKS = 1000


class Passed:
    """The rounds of one cursor, from when a scan of all took `took_s`, until `now`. All times are monotonic seconds of
    this process. `next_at`: when the next look may begin; `round_s`: what the last round took; `asked`: has somebody
    said, since the round began, that there is something?"""

    def __init__(self, took_s: float, now: float) -> None:
        self.round_s = took_s
        self.asked = False
        self._pause_s = 0.0
        self._places: list[Places] = []
        self._claimed = 0
        self._link, self._links = 0, 1  # the first of those that are next, and how many
        self._reached: Places = {}  # in them
        self._spent_s = 0.0  # since the round began
        self._ends_round = True
        self._pause(took_s, now)

    def moved(self, claims: int, cursor: Places) -> None:
        """The cursor has gone on by so many claims."""
        self._claimed += claims
        if self._claimed < LINK:
            return
        self._claimed = 0
        self._places.append(dict(cursor))
        if len(self._places) > LINKS:  # two links become one
            del self._places[::2]
            self._link, self._links = self._link // 2, self._links // 2

    def next(self, cursor: Places) -> tuple[Places, Places]:
        """The places from which, and up to which, the next look goes, now that the cursor is there."""
        if not (self._link or self._reached):
            self.asked = False
        self._links = max(1, self._links)
        end = self._link + self._links
        self._ends_round = end > len(self._places)
        begin = self._places[self._link - 1] if self._link else {}
        return begin | self._reached, cursor if self._ends_round else self._places[end - 1]

    def stopped(self, reached: Places, took_s: float, now: float) -> None:
        """The look had to stop there: the next one goes on after a turn of the other claims."""
        self._reached |= reached
        self._spent_s += took_s
        self.next_at = now + took_s

    def ended(self, took_s: float, now: float) -> bool:
        """The look went through to its end; True when a round has ended with it."""
        self._spent_s += took_s
        self._reached = {}
        self._pause(took_s, now)
        if self._ends_round:
            self.round_s, self._spent_s = self._spent_s, 0.0
            self._link, self._links = 0, 1
            return True
        self._link += self._links
        if took_s < LOOK_S / 2:
            self._links *= 2
        elif took_s > LOOK_S * 2:
            self._links //= 2
        return False

    def failed(self, took_s: float, now: float) -> None:
        """The look had no answer after so long."""
        self._links = 1
        self.next_at = now + self._times(took_s) * took_s

    def _pause(self, took_s: float, now: float) -> None:
        # one slow answer is no reason to look much less often
        self._pause_s = min(self._times(took_s) * took_s, max(FIRST_PAUSE_S, 2 * self._pause_s))
        self.next_at = now + self._pause_s

    def _times(self, took_s: float) -> float:
        """How many times as long as a look the pause after it is."""
        return min(SHARE, max(SHARE_AT_MOST, ROUND_S / max(self.round_s, took_s, LOOK_S)))
