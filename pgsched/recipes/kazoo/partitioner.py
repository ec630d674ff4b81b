"""Kazoo's SetPartitioner: divide a set among the members of a party.

Invariant: each item is used by one member at a time, because a member holds a lock for each item that it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pgsched import log
from pgsched.errors import PgschedError
from pgsched.recipes.kazoo.barriers import own_identifier
from pgsched.recipes.kazoo.exceptions import LockTimeout
from pgsched.recipes.kazoo.locks import Lock
from pgsched.recipes.kazoo.paths import clean_path
from pgsched.recipes.kazoo.states import KazooState
from pgsched.recipes.party import Party as SharedParty
from pgsched.recipes.sessions.session import now
from pgsched.recipes.watch import Watch

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.client import KazooClient

logger = log.get("kazoo")

Divide = Callable[[str, list[str], Sequence[Any]], Sequence[Any]]


class PartitionState:
    """How it stands with the part of a member.

    ALLOCATING: it waits until the party is stable, and then gets its part. ACQUIRED: it has its part. RELEASE: the
    party has changed: call `release_set` soon, because others wait for it. FAILURE: it has no part and gets none any
    more: make another SetPartitioner.
    """

    ALLOCATING = "ALLOCATING"
    ACQUIRED = "ACQUIRED"
    RELEASE = "RELEASE"
    FAILURE = "FAILURE"


class Share:
    """The items that a member has, with their locks."""

    def __init__(self, client: KazooClient, path: str, reaction_s: float) -> None:
        self._client = client
        self._path = path
        self._reaction_s = reaction_s
        self._locks: list[Lock] = []
        self.items: list[Any] = []

    def acquire(self, items: Iterable[Any], is_over: Callable[[], bool]) -> bool:
        """Acquire the locks of these items; give up and return False as soon as `is_over` returns True."""
        wanted = list(items)
        for item in wanted:
            lock = self._client.Lock(f"{self._path}/locks/{item}")
            while not lock.is_acquired:
                if is_over():
                    self.release()
                    return False
                try:
                    lock.acquire(timeout=self._reaction_s)
                except LockTimeout:
                    continue
                self._locks.append(lock)
        self.items = wanted
        return True

    def is_complete(self) -> bool:
        """Whether no lock was lost."""
        return all(lock.is_acquired for lock in self._locks)

    def release(self) -> None:
        """Give all locks back."""
        self.items = []
        locks, self._locks = self._locks, []
        for lock in locks:
            try:
                lock.release()
            except PgschedError as error:
                logger.warning("the lock of an item was not given back", path=lock.path, error=str(error))


class SetPartitioner:
    """Divides a set among the members of a party: each item goes to one member, a member may get several or none.

    `set`: the items; all members give the same. `partition_func`: called with the own identifier, those of all members
    and the set; returns the items of this member. `identifier`: of this member, another one for each; left out: host
    and process. `time_boundary`: seconds for which the party must not change before the set is divided.
    `max_reaction_time`: seconds after which a change is noticed while others hold an item. `state_change_event`: set at
    each change of `state`.
    """

    def __init__(
        self, client: KazooClient, path: str,
        set: Sequence[Any],  # noqa: A002  as in Kazoo
        partition_func: Divide | None = None,
        identifier: Any = None, time_boundary: float = 30, max_reaction_time: float = 1,
        state_change_event: threading.Event | None = None,
    ) -> None:  # fmt: skip
        self.state = PartitionState.ALLOCATING
        self.state_change_event = state_change_event or threading.Event()
        self._client = client
        self._items = set
        self._divide = partition_func or divide_evenly
        self._identifier = str(identifier or own_identifier())
        self._boundary_s = time_boundary
        self._share = Share(client, clean_path(path), max_reaction_time)
        self._changed = threading.Condition()
        parts = client.parts
        self._party = SharedParty(parts.keeper, parts.store, f"{clean_path(path)[1:]}/party", ttl=parts.ttl_s)
        self._watch = Watch(parts.watches, self._party.prefix)
        client.perform(lambda: self._party.join(self._identifier))
        client.perform(self._watch.begin)
        client.add_listener(self._hear)
        client.handler.spawn(self._run)

    # ---- for the caller

    @property
    def failed(self) -> bool:
        """Whether the state is FAILURE."""
        return self.state == PartitionState.FAILURE

    @property
    def release(self) -> bool:
        """Whether the state is RELEASE."""
        return self.state == PartitionState.RELEASE

    @property
    def allocating(self) -> bool:
        """Whether the state is ALLOCATING."""
        return self.state == PartitionState.ALLOCATING

    @property
    def acquired(self) -> bool:
        """Whether the state is ACQUIRED."""
        return self.state == PartitionState.ACQUIRED

    def __iter__(self) -> Iterator[Any]:
        """Return the items of this member."""
        return iter(list(self._share.items))

    def wait_for_acquire(self, timeout: float = 30) -> None:
        """Wait until this member has its part, for up to `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.acquired or self.failed, timeout)

    def release_set(self) -> None:
        """Give the part back, and wait for another one: the state is ALLOCATING then."""
        if self.acquired or self.release:
            self._share.release()
            self._change(PartitionState.ALLOCATING)

    def finish(self) -> None:
        """Give the part back, and leave the party: the state is FAILURE then."""
        self._change(PartitionState.FAILURE)
        self._share.release()
        self._watch.close()
        try:
            if self._party.id is not None:
                self._client.perform(self._party.leave)
        except PgschedError as error:
            logger.info("left a party that had no such member", path=self._party.name, error=str(error))

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self.failed:
                with self._changed:
                    self._changed.wait_for(lambda: self.allocating or self.failed)
                if self._wait_stable() and self._allocate():
                    self._hold()
        except Exception as error:
            logger.warning("a set is not divided any more", path=self._party.name, error=str(error))
        finally:
            self.finish()

    def _wait_stable(self) -> bool:
        """Wait until the party has not changed for a while; return False where the state changes before."""
        while self.allocating:
            try:
                change = self._watch.next_item(now() + self._boundary_s, lambda: not self.allocating)
            except TimeoutError:
                return self.allocating
            if change is None and self.allocating:
                self._watch.check_open()
        return False

    def _allocate(self) -> bool:
        """Divide the set, and acquire the locks of the own part; return False where the party changes before."""
        return self._share.acquire(self._own_part(), self._is_changed) and not (
            self._is_changed() and self._give_up()
        ) and self._change(PartitionState.ACQUIRED, only_from=PartitionState.ALLOCATING)  # fmt: skip

    def _hold(self) -> None:
        """Wait until the party changes, or the state does. A lock that was taken away is noticed after a while."""
        while self.acquired:
            try:
                change = self._watch.next_item(now() + self._client.parts.ttl_s / 3, lambda: not self.acquired)
            except TimeoutError:
                if not self._share.is_complete():
                    raise PgschedError("the lock of an item was lost") from None
                continue
            if change is not None:
                self._change(PartitionState.RELEASE, only_from=PartitionState.ACQUIRED)
            elif self.acquired:
                self._watch.check_open()

    def _is_changed(self) -> bool:
        """Whether the party has changed, or the state has."""
        if not self.allocating:
            return True
        try:
            self._watch.next_item(now())
        except TimeoutError:
            return False
        return True

    def _give_up(self) -> bool:
        self._share.release()
        return True

    def _own_part(self) -> Sequence[Any]:
        members = self._client.perform(self._party.members)
        return self._divide(self._identifier, [str(member.data) for member in members], self._items)

    def _hear(self, state: str) -> bool:
        """End with the session."""
        if state == KazooState.LOST and not self.failed:
            self._change(PartitionState.FAILURE)
            self._watch.wake()
        return self.failed

    def _change(self, state: str, *, only_from: str | None = None) -> bool:
        """Change the state, unless it is FAILURE or another one than expected; return whether it was changed."""
        with self._changed:
            if self.failed or only_from not in (None, self.state):
                return False
            self.state = state
            self._changed.notify_all()
        self.state_change_event.set()
        self._watch.wake()
        return True


def divide_evenly(identifier: str, members: list[str], items: Sequence[Any]) -> Sequence[Any]:
    """Return each n-th item in their order, of n members, beginning with the place of this member among them."""
    ordered = sorted(members)
    return sorted(items)[ordered.index(identifier) :: len(ordered)]
