"""What a claim cursor has passed, looked at in pieces while its dead entries stay.

The rule: the places that the cursor has had are a chain from the beginning to where it is, so each key that it has
passed lies in one of its links, wherever the cursor has jumped. A round goes through all of them. As many links are
looked at together as take about a tenth of a second, and are one from then on; then there is a pause. The pauses make a
round take a twentieth of the time, but add up to half a minute at the most, as long as looks take no more than a fifth
of the time.

The first link is all that was passed before there were others, and may be too long to be looked at: then ever fewer
rounds begin with it.
"""

from __future__ import annotations

Place = tuple[str, int]  # available_at and id: where a run stands among those of its priority
Places = dict[int, Place]  # by priority

SHARE, SHARE_AT_MOST = 20, 4  # times what a look takes
ROUND_S = 30.0
LOOK_S = 0.1
FIRST_PAUSE_S = 1.0
LINK_S = 1.0  # by time and not by what was claimed: others claim too
LINKS = 1000
AT_ONCE = 32  # those that follow may take longer
SKIPS = 64


class Passed:
    """The rounds of one cursor, from when a scan of all took `took_s`, until `now`. All times are monotonic seconds of
    this process. `next_at`: when the next look may begin; `round_s`: what the last round took; `whole_s`: and
    what it did without would have; `asked`: has somebody said, since the round began, that there is something?"""

    def __init__(self, took_s: float, now: float) -> None:
        self.round_s = self.whole_s = took_s
        self.asked = False
        self._pause_s = min(FIRST_PAUSE_S, SHARE * took_s)
        self._places: list[Places] = []
        self._placed_at, self._link_s = now, LINK_S
        self._begins = True
        self._link, self._links = 0, 1  # the first of those that are next, and how many
        self._reached: Places = {}  # in them
        self._spent_s = self._left_out_s = 0.0  # since the round began
        self._ends_round = True
        self._unanswered_s = 0.0  # what the first link took in vain
        self._skips = self._to_skip = 0  # how many rounds do without it, and how many still
        self.next_at = now + self._pause_s

    def moved(self, cursor: Places, now: float) -> None:
        """The cursor has gone on, and is there."""
        if now - self._placed_at < self._link_s or (self._places and self._places[-1] == cursor):
            return
        self._placed_at = now
        self._places.append(dict(cursor))
        if len(self._places) > LINKS:
            self._thin()

    def _thin(self) -> None:
        """Two links become one, but for the first, and the one at whose beginning the round is: it must go on there.
        (Of a look only the ends count: a cursor that jumps back may have been further in between.)"""
        begin = self._link - 1
        kept = [n for n in range(len(self._places)) if n % 2 == 0 or n == begin]
        self._places = [self._places[n] for n in kept]
        self._link = kept.index(begin) + 1 if self._link else 0
        self._links = 0  # what is looked at just now is looked at once more
        self._link_s *= 2

    def next(self, cursor: Places) -> tuple[Places, Places]:
        """The places from which, and up to which, the next look goes, now that the cursor is there."""
        if self._begins:
            self._begins = self.asked = False
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
        self._pause(took_s, now)
        if self._link == 0:
            self._skips = self._to_skip = 0
        if self._ends_round:
            self.round_s, self.whole_s = self._spent_s, self._spent_s + self._left_out_s
            self._begin()
            return True
        slow = took_s > LOOK_S * 2
        if self._links > 1 and not (slow or self._reached):
            del self._places[self._link : self._link + self._links - 1]
            self._link += 1
        else:
            self._link += self._links
        self._reached = {}
        if slow:
            self._links //= 2
        elif took_s < LOOK_S / 2:
            self._links = min(AT_ONCE, 2 * self._links)
        return False

    def failed(self, took_s: float, now: float) -> None:
        """The look had no answer after so long. What is too long for one look must not keep the round from the rest."""
        self._spent_s += took_s
        is_single = self._links == 1
        if is_single and self._link == 0:
            self._unanswered_s = took_s
            self._skips = self._to_skip = min(SKIPS, max(1, 2 * self._skips))
        if is_single and self._ends_round:
            self._begin()
        elif is_single:
            self._link, self._reached = self._link + 1, {}
        self._links = 1
        self.asked = True
        self.next_at = now + self._times(took_s) * took_s

    def resumed(self, took_s: float, now: float) -> None:
        """It goes on with a new round, after what took so long instead of looks."""
        self._begin()
        self._pause(took_s, now)

    def _begin(self) -> None:
        """The next look is the first of a round."""
        self._begins, self._link, self._links, self._reached, self._spent_s, self._left_out_s = True, 0, 1, {}, 0.0, 0.0
        if self._to_skip and self._places:
            self._to_skip -= 1
            self._link, self._left_out_s = 1, self._unanswered_s

    def _pause(self, took_s: float, now: float) -> None:
        pause_s = self._times(took_s) * took_s
        if took_s > self.round_s:  # one slow answer is no reason to look much less often
            pause_s = min(pause_s, max(FIRST_PAUSE_S, 2 * self._pause_s))
        self._pause_s, self.next_at = pause_s, now + pause_s

    def _times(self, took_s: float) -> float:
        """How many times as long as a look the pause after it is."""
        return min(SHARE, max(SHARE_AT_MOST, ROUND_S / max(self.round_s, took_s, LOOK_S)))
