"""Watches that are called once, as ZooKeeper has them: one thread for each root of paths that is watched.

Invariant: a watch compares with what its reader has read. Whatever changes after that, it is called; also over a
reconnect. If changes were skipped, the node is read again, and the watch is called if it differs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pgsched import log
from pgsched.db.queries.recipes.nodes import NodeState
from pgsched.errors import PgschedError
from pgsched.recipes.kazoo.handler import Handler
from pgsched.recipes.kazoo.states import EventType, KeeperState, WatchedEvent
from pgsched.recipes.sessions.session import now
from pgsched.recipes.watch import Change, Watch
from pgsched.recipes.watches import Watches

logger = log.get("kazoo")

IDLE_S = 60.0  # a thread ends after this time without watches
PAUSE_S = 1.0  # before the database is asked again after an error

Read = Callable[..., NodeState]
Function = Callable[[WatchedEvent], Any]


class OneTime:
    """A watch of a node. `state`: the node when it was last looked at; `listed`: the watch is for its children."""

    def __init__(self, path: str, state: NodeState, function: Function, *, listed: bool) -> None:
        self.key = path[1:]
        self.state = state
        self.function = function
        self.listed = listed
        self._exists = state.found
        self._children = set(state.children)

    def event(self, kind: str) -> WatchedEvent:
        """Return the event to call the function with."""
        return WatchedEvent(kind, KeeperState.CONNECTED, f"/{self.key}")

    def judge(self, change: Change) -> str | None:
        """Return what a change means for this watch: a type of event, "look" for a read, None for nothing."""
        if change.version <= self.state.upto:
            return None
        if change.key == self.key:
            return self._judge_node(change)
        if self.listed and change.key.startswith(f"{self.key}/"):
            name, _, below = change.key[len(self.key) + 1 :].partition("/")
            if change.kind == "put":
                return None if name in self._children else EventType.CHILD
            if name in self._children:
                return "look" if below else EventType.CHILD
        return None

    def compare(self, state: NodeState) -> str | None:
        """Return what differs in a newer state of the node: a type of event, or None."""
        before, self.state = self.state, state
        if before.found != state.found:
            return EventType.CREATED if state.found else EventType.DELETED
        if self.listed:
            return EventType.CHILD if self._children != {*state.children} else None
        return EventType.CHANGED if before.changed_in != state.changed_in else None

    def _judge_node(self, change: Change) -> str | None:
        if change.kind == "deleted":
            return EventType.DELETED if self._exists else None
        if self.listed:
            return None
        return EventType.CHANGED if self._exists else EventType.CREATED


class NodeWatches:
    """The one-time watches of a client."""

    def __init__(self, watches: Watches, read: Read, handler: Handler) -> None:
        self.watches = watches
        self.read = read
        self._handler = handler
        self.forget_parent()

    def forget_parent(self) -> None:
        """Begin anew: in a new object, and in a child process, which has no threads."""
        self._lock = threading.RLock()
        self._followers: dict[str, RootFollower] = {}

    def add_data_watch(self, path: str, state: NodeState, function: Function) -> None:
        """Call a function once, when the node is made, set or deleted after this state was read."""
        self._add(OneTime(path, state, function, listed=False))

    def add_child_watch(self, path: str, state: NodeState, function: Function) -> None:
        """Call a function once, when a child is made or deleted, or the node is, after this state was read."""
        self._add(OneTime(path, state, function, listed=True))

    def fire(self, one: OneTime, kind: str) -> None:
        """Let the handler's thread call the function of a watch."""
        self._handler.dispatch(partial(one.function, one.event(kind)))

    def close(self) -> None:
        """Forget all watches. Called after the watches of the store were closed, so that the threads end."""
        with self._lock:
            self._followers = {}

    def retire(self, follower: RootFollower) -> bool:
        """Let a thread end that has nothing to do; return False where it got something meanwhile."""
        with self._lock:
            if follower.has_work() and self._followers.get(follower.root) is follower:
                return False
            if self._followers.get(follower.root) is follower:
                del self._followers[follower.root]
            return True

    def _add(self, one: OneTime) -> None:
        root = one.key.partition("/")[0]
        with self._lock:
            follower = self._followers.get(root)
            if follower is None:
                follower = self._followers[root] = RootFollower(self, root, one.state.upto)
                follower.start()
            follower.add(one)


class RootFollower:
    """The thread that reads the changes under one root for its watches."""

    def __init__(self, owner: NodeWatches, root: str, since: int) -> None:
        self.root = root
        self._owner = owner
        self._watch = Watch(owner.watches, root, since=since)
        self._position = since  # all changes up to this version were judged
        self._lock = threading.Lock()
        self._new: list[OneTime] = []
        self._waiting: list[OneTime] = []
        self._thread = threading.Thread(target=self._run, name="pgsched-kazoo-nodes", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, one: OneTime) -> None:
        """Take care of a watch."""
        with self._lock:
            self._new.append(one)
        self._watch.wake()

    def has_work(self) -> bool:
        """Whether there are watches."""
        with self._lock:
            return bool(self._new or self._waiting)

    def _run(self) -> None:
        with_pause = False
        while True:
            if with_pause:
                time.sleep(PAUSE_S)
            try:
                if with_pause:
                    self._look_at(self._waiting)
                self._watch.begin()
                if not self._step():
                    return
                with_pause = False
            except TimeoutError:
                if self._owner.retire(self):
                    self._watch.close()
                    return
            except PgschedError as error:
                if self._owner.retire(self):  # the client was stopped
                    return
                logger.warning("watching nodes again", root=self.root, error=str(error))
                with_pause = True

    def _step(self) -> bool:
        """Wait for a change, or for new watches, and judge it; return False when the client was stopped."""
        change = self._watch.next_item(now() + IDLE_S, lambda: self._new)
        with self._lock:
            new, self._new = self._new, []
        self._waiting += new
        self._look_at([one for one in new if one.state.upto < self._position])
        if change is None:
            if not new:
                self._owner.retire(self)
                return False
        elif change.kind == "skipped":
            self._position = max(self._position, change.version)
            self._look_at(self._waiting)
        else:
            self._position = max(self._position, change.version)
            self._judge(change)
        return True

    def _judge(self, change: Change) -> None:
        looks = []
        for one in list(self._waiting):
            kind = one.judge(change)
            if kind == "look":
                looks.append(one)
            elif kind is not None:
                self._fire(one, kind)
        self._look_at(looks)

    def _look_at(self, watches: list[OneTime]) -> None:
        """Read nodes again, and call the watches of those that differ from what was read before."""
        for one in list(watches):
            if (kind := one.compare(self._owner.read(one.key, listed=one.listed))) is not None:
                self._fire(one, kind)

    def _fire(self, one: OneTime, kind: str) -> None:
        self._waiting.remove(one)
        self._owner.fire(one, kind)
