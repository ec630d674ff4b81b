"""What is known of changes: one feed for each root that somebody of an App watches, shared by all who do.

Invariant: who watches gets each change after its position, in the order of versions, or an item that says that it
skipped some. A feed keeps the last changes; who is behind it asks the database.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable

from pgsched.db.queries.recipes.store import Changes, StoredChange
from pgsched.errors import PgschedError

MOST_CHANGES, MOST_CHARACTERS = 1000, 4_000_000  # that a feed keeps
LOOK_AT_LEAST_S = 5.0  # if no notification comes
LOOK_LATER_S = 0.05  # more for each other feed
REST_S = 0.005  # between two looks, however many notifications come
FIRST_POLL_S, LONGEST_POLL_S = 0.1, 1.0  # where no notifications come


class Skip:
    """An item that says that changes were skipped, up to a version."""

    def __init__(self, version: int) -> None:
        self.version = version


class Behind:
    """The type of `BEHIND`."""


BEHIND = Behind()  # the feed does not have the next change: ask the database
Item = StoredChange | Skip


class Watcher:
    """One that watches a prefix. `position`: it has got all changes up to this version. `wake`: lets it go on."""

    def __init__(self, prefix: str, position: int | None) -> None:
        self.prefix = prefix
        self.position = position
        self.pending: deque[Item] = deque()  # read from the database for this one alone
        self.feed: Feed | None = None
        self.error: PgschedError | None = None
        self.closed = False
        self.wake: Callable[[], None] = _nobody

    @property
    def root(self) -> str:
        """The first element of the prefix."""
        return self.prefix.partition("/")[0]

    def read(self, changes: Changes) -> None:
        """Take what was read from the database since the position."""
        if changes.skipped:
            self.skip(changes.upto)
        self.pending += changes.changes
        self.position = changes.upto

    def skip(self, version: int) -> None:
        """Note that changes were skipped."""
        if self.pending and isinstance(self.pending[-1], Skip):
            self.pending.pop()
        self.pending.append(Skip(version))
        self.position = version


def _nobody() -> None:
    """Wake nobody: it does not wait."""


class Feed:
    """The changes under one root. All that is done with a feed is done while the lock of its owner is held.

    `upto`: the version up to which it was read. `start`: it has all changes with `prefix` after this version.
    `look_at`: when to look at the latest, on the monotonic clock; not before `rest_until`.
    """

    def __init__(self, watcher: Watcher, upto: int, channel: str) -> None:
        self.prefix = watcher.prefix
        self.channel = channel
        self.upto = self.start = upto
        self.changes: list[StoredChange] = []
        self.watchers: set[Watcher] = set()
        self.look_at = self.rest_until = 0.0
        self.poll_s = FIRST_POLL_S

    def add(self, watcher: Watcher) -> None:
        """Let somebody watch, too. What they all watch is what their prefixes have in common."""
        self.watchers.add(watcher)
        watcher.feed = self
        prefix = common_beginning(self.prefix, watcher.prefix)
        if prefix != self.prefix:
            self.prefix, self.start = prefix, self.upto
            self.changes.clear()

    def next_of(self, watcher: Watcher) -> Item | Behind | None:
        """Return the next item for this one: None where there is none yet."""
        if watcher.pending:
            return watcher.pending.popleft()
        position = watcher.position
        if position is None or position < self.start:
            return BEHIND
        for index in range(bisect_right(self.changes, position, key=version_of), len(self.changes)):
            change = self.changes[index]
            if change.key.startswith(watcher.prefix):
                watcher.position = change.version
                return change
        watcher.position = max(position, self.upto)
        return None

    def hear(self) -> None:
        """Look soon: there may be something new."""
        self.look_at = min(self.look_at, self.rest_until)

    def take(self, changes: Changes, listens: bool, feeds: int) -> None:
        """Take what was read since `upto`, wake those who watch it, and plan the next look."""
        news, full = changes.skipped or changes.upto != self.upto, changes.upto - self.upto >= MOST_CHANGES
        if changes.skipped:
            self._skip(changes.upto)
        else:
            self._append(changes)
        now = time.monotonic()
        self.rest_until = now + REST_S
        if listens:
            look_in_s = min(LOOK_AT_LEAST_S + LOOK_LATER_S * feeds, changes.look_in_s)
        else:
            self.poll_s = FIRST_POLL_S if news else min(LONGEST_POLL_S, 1.5 * self.poll_s)
            look_in_s = min(self.poll_s, changes.look_in_s)
        self.look_at = now if full else now + look_in_s

    def _skip(self, upto: int) -> None:
        self.upto = self.start = upto
        self.changes.clear()
        for watcher in list(self.watchers):
            watcher.skip(upto)
            watcher.wake()

    def _append(self, changes: Changes) -> None:
        before, self.upto = self.upto, changes.upto
        self.changes += changes.changes
        self._trim()
        concerned: dict[str, bool] = {}
        for watcher in list(self.watchers):
            prefix = watcher.prefix
            if prefix not in concerned:
                concerned[prefix] = any(change.key.startswith(prefix) for change in changes.changes)
            if concerned[prefix]:
                watcher.wake()
            elif watcher.position is not None and watcher.position >= before and not watcher.pending:
                watcher.position = max(watcher.position, changes.upto)  # else it would be behind the feed soon

    def _trim(self) -> None:
        """Keep the last changes only."""
        count, characters = 0, 0
        for change in reversed(self.changes):
            characters += len(change.key) + len(change.value or "")
            if count == MOST_CHANGES or characters > MOST_CHARACTERS:
                break
            count += 1
        if dropped := len(self.changes) - count:
            self.start = self.changes[dropped - 1].version
            del self.changes[:dropped]


def common_beginning(one: str, other: str) -> str:
    """Return the longest text with which both begin."""
    length = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def version_of(change: StoredChange) -> int:
    """Return the version of a change."""
    return change.version


def next_look(feeds: Iterable[Feed], idle_s: float) -> float:
    """Return in how many seconds to look at the first of these feeds; `idle_s` where there is none."""
    now = time.monotonic()
    return max(0.0, min((feed.look_at - now for feed in feeds), default=idle_s))
