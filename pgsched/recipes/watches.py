"""Watch the store: one thread and one connection for all watches of an App, and one query for a root that has changed.

Invariant: a notification only says that there may be something new. Changes are read by their versions: after each
connect, after each notification, and every few seconds without one. Behind a pooler that lends sessions for a
transaction there are no notifications, and changes are looked for more often.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain_error
from pgsched.db.connection.forks import open_unshared, tell_of_forks
from pgsched.db.connection.notifications import Bell, listen_to, stop_listening_to
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.enqueuer import Enqueuer
from pgsched.db.queries.recipes import store
from pgsched.db.queries.recipes.store import Changes
from pgsched.errors import PgschedError
from pgsched.recipes.feeds import BEHIND, Behind, Feed, Item, Watcher, next_look

logger = log.get("recipes")

IDLE_S = 60.0  # the thread and its connection end after this time without watches
FIRST_BACK_OFF_S = 0.05


class Watches:
    """The watches of an App. All methods can be called from any thread. `database`: the App's connections."""

    def __init__(self, database: Enqueuer) -> None:
        self.database = database
        self._thread: WatchThread | None = None
        self.forget_parent()
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Do nothing: the parent goes on watching."""

    def forget_parent(self) -> None:
        """Begin anew: in a new object, and in a child process, which has no thread, and a lock that may be held."""
        if self._thread is not None:
            self._thread.forget()
        # re-entrant: the end of a forgotten watch is noticed at any time, also while its own thread is inside
        self._lock = threading.RLock()
        self._feeds: dict[str, Feed] = {}
        self._thread = None

    def attach(self, watcher: Watcher, changes: Changes) -> None:
        """Take what was read for a watcher, and watch for it from there on."""
        dsn = self.database.dsn()
        with self._lock:
            watcher.read(changes)
            if watcher.closed:
                return
            feed = self._feeds.get(watcher.root)
            if feed is None:
                feed = self._feeds[watcher.root] = Feed(watcher, changes.upto, changes.channel)
            feed.add(watcher)
            if changes.upto < feed.upto:  # the database is older than it was
                feed.look_at = 0.0
            self._serve(dsn)

    def detach(self, watcher: Watcher) -> None:
        """Watch for it no more; its wait ends."""
        with self._lock:
            watcher.closed = True
            self._drop(watcher)
            watcher.wake()

    def next_of(self, watcher: Watcher) -> Item | Behind | None:
        """Return its next item; None where there is none yet, BEHIND where the database has to be asked.

        Raises the error because of which it is not watched any more.
        """
        with self._lock:
            if watcher.error is not None:
                error, watcher.error = watcher.error, None
                raise error
            feed = watcher.feed
            if feed is None or self._feeds.get(watcher.root) is not feed:
                return watcher.pending.popleft() if watcher.pending else BEHIND
            return feed.next_of(watcher)

    def close(self) -> None:
        """End all watches, the thread and its connection."""
        with self._lock:
            for feed in list(self._feeds.values()):
                for watcher in list(feed.watchers):
                    self.detach(watcher)
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.end()

    def feeds(self) -> dict[str, Feed]:
        """Return what is watched, by root."""
        with self._lock:
            return dict(self._feeds)

    def is_serving(self, thread: WatchThread, idle_s: float) -> bool:
        """Check whether this thread goes on; after a while without watches it ends."""
        with self._lock:
            if self._thread is thread and not self._feeds and idle_s > IDLE_S:
                self._thread = None
            return self._thread is thread

    def ended(self, thread: WatchThread) -> None:
        """Note that this thread has ended: the next watch starts another one."""
        with self._lock:
            if self._thread is thread:
                self._thread = None

    def take(self, feed: Feed, asked: tuple[str, int], changes: Changes, listens: bool) -> None:
        """Take what was read with this prefix since this version."""
        with self._lock:
            if (feed.prefix, feed.upto) == asked:
                feed.take(changes, listens, len(self._feeds))

    def fail(self, feeds: list[Feed], error: PgschedError) -> None:
        """Let those who watch these feeds go on with an error; to go on watching, they ask the database again."""
        with self._lock:
            for feed in feeds:
                for watcher in list(feed.watchers):
                    self._drop(watcher)
                    watcher.error = error
                    watcher.wake()

    def _drop(self, watcher: Watcher) -> None:
        feed, watcher.feed = watcher.feed, None
        if feed is not None:
            feed.watchers.discard(watcher)
            if not feed.watchers and self._feeds.get(watcher.root) is feed:
                del self._feeds[watcher.root]

    def _serve(self, dsn: str) -> None:
        """Let the thread look; start it where there is none. Called while the lock is held."""
        if self._thread is None:
            thread = WatchThread(dsn, self)
            thread.start()
            self._thread = thread
        self._thread.ring()


class WatchThread:
    """The thread that reads changes, with its connection."""

    def __init__(self, dsn: str, watches: Watches) -> None:
        self._dsn = dsn
        self._watches = watches
        self._bell = Bell()
        self._over = threading.Lock()  # held while the bell is rung or closed
        self._is_over = False
        self._failures = 0
        self._conn: Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="pgsched-watch", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises PgschedError where the system has none left."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._bell.close()
            raise PgschedError(f"a watch needs a thread, and the system has none left: {error}") from error

    def ring(self) -> None:
        """Let the thread look what there is to do."""
        with self._over:
            if not self._is_over:
                self._bell.ring()

    def end(self) -> None:
        """Let the thread end soon: it is not that of the watches any more."""
        self.ring()

    def forget(self) -> None:
        """Close what a child process has inherited from the parent's thread."""
        if not self._is_over:
            self._bell.abandon([self._conn] if self._conn is not None else [])

    def _run(self) -> None:
        try:
            while self._watches.is_serving(self, math.inf if self._failures else 0.0):
                try:
                    with open_unshared(lambda: connect(self._dsn, purpose="watch"), self._keep) as conn:
                        self._serve(conn)
                except (DatabaseError, PgschedError) as error:
                    self._pause_after(error)
        except BaseException as error:
            what = f"the thread that watches has ended: {type(error).__name__}: {error}"
            self._watches.fail(list(self._watches.feeds().values()), PgschedError(what))
            raise
        finally:
            self._watches.ended(self)
            with self._over:
                self._is_over = True
                self._bell.close()

    def _keep(self, conn: Connection[Any]) -> None:
        self._conn = conn

    def _pause_after(self, error: Exception) -> None:
        explained = error if isinstance(error, PgschedError) else explain_error(error)  # type: ignore[arg-type]
        if classify(error) in (Reaction.CONFIGURATION, Reaction.VALUE):
            self._watches.fail(list(self._watches.feeds().values()), explained)
        elif not self._failures:
            logger.warning("watching again", error=str(explained))
        self._failures += 1
        self._bell.wait(None, back_off_s(self._failures, FIRST_BACK_OFF_S))

    def _serve(self, conn: Connection[Any]) -> None:
        listens = not is_shared(conn)
        self._bell.attach(conn)
        listening: set[str] = set()
        used_at = time.monotonic()
        while self._watches.is_serving(self, time.monotonic() - used_at):
            feeds = list(self._watches.feeds().values())
            if listens:
                self._listen(conn, feeds, listening)
            self._look(conn, feeds, listens)
            self._failures = 0
            used_at = time.monotonic() if feeds else used_at
            self._bell.wait(conn, next_look(feeds, IDLE_S))

    def _listen(self, conn: Connection[Any], feeds: list[Feed], listening: set[str]) -> None:
        """Listen to the channels of these feeds and of no others, and look where something was heard."""
        notifications = set(self._bell.heard)
        self._bell.heard -= notifications
        heard = {one.channel for one in notifications}
        channels = {feed.channel for feed in feeds}
        for channel in listening - channels:
            stop_listening_to(conn, channel)
        for channel in channels - listening:
            listen_to(conn, channel)
        for feed in feeds:
            if feed.channel not in listening:
                feed.look_at = 0.0  # it may have changed before
            elif feed.channel in heard:
                feed.hear()
        listening.clear()
        listening |= channels

    def _look(self, conn: Connection[Any], feeds: list[Feed], listens: bool) -> None:
        """Read the changes of the feeds whose time has come."""
        for feed in feeds:
            if feed.look_at > time.monotonic():
                continue
            asked = feed.prefix, feed.upto
            try:
                changes = store.follow_changes(conn, *asked)
            except DatabaseError as error:
                if classify(error) not in (Reaction.CONFIGURATION, Reaction.VALUE):
                    raise
                self._watches.fail([feed], explain_error(error))
            else:
                self._watches.take(feed, asked, changes, listens)
