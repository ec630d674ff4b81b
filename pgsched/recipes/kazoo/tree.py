"""The tree of nodes, as programs for ZooKeeper use it: create, read, set and delete nodes, and watch them once.

A node is a key of the store (`app.kv`): all see the same values. There are no access lists, no transactions, no chroot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from pgsched.db.queries.recipes import nodes
from pgsched.db.queries.recipes.nodes import NodeState
from pgsched.db.queries.recipes.store import json_value_of
from pgsched.errors import CHANGED
from pgsched.recipes.kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnimplementedError,
)
from pgsched.recipes.kazoo.paths import clean_path, json_text_of, name_of, to_bytes
from pgsched.recipes.kazoo.states import WatchedEvent, ZnodeStat

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.parts import Parts
    from pgsched.recipes.kazoo.watching import NodeWatches

WatchFunction = Callable[[WatchedEvent], Any]

PROBLEMS = {
    "no_node": (NoNodeError, "there is no such node, or no parent of it"),
    "exists": (NodeExistsError, "there is such a node already"),
    "no_children": (NoChildrenForEphemeralsError, "its parent is ephemeral, and has no children"),
    "bad_version": (BadVersionError, "the node has another version"),
    "not_empty": (NotEmptyError, "the node has children"),
}
NO_LISTS = "there are no access lists: roles of the database may use names"
IN_THREADS = "there are no asynchronous forms: call the other one in a thread (client.handler.spawn)"
ROOT_STAT = ZnodeStat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Absent:
    """A method that Kazoo's client has, and this one has not: a call says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __set_name__(self, owner: type, name: str) -> None:
        """Note the name of the method."""
        self._name = name

    def __get__(self, client: object, owner: type | None = None) -> Callable[..., NoReturn]:
        """Return the method."""

        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise UnimplementedError(f"{self._name}: {self._why}")

        return refuse


class Tree:
    """The part of the client that has the tree. Paths are as in ZooKeeper, with up to 200 characters."""

    transaction = Absent("there are no transactions of nodes: use one of the database, and assert_held of a lock")
    add_auth, get_acls, set_acls = (Absent(NO_LISTS) for _ in range(3))
    reconfig, reconfig_async, command, server_version = (Absent("there is no ensemble") for _ in range(4))
    set_hosts = Absent("the database stays: make another client with KazooClient(dsn=...)")
    create_async, ensure_path_async, exists_async, get_async, get_children_async = (
        Absent(IN_THREADS) for _ in range(5)
    )
    set_async, delete_async, sync_async = (Absent(IN_THREADS) for _ in range(3))
    add_auth_async, get_acls_async, set_acls_async = (Absent(NO_LISTS) for _ in range(3))
    NonBlockingLease = Absent("use a Lock, with blocking=False")
    MultiNonBlockingLease = Absent("use a Semaphore, with blocking=False")

    node_watches: NodeWatches

    if TYPE_CHECKING:

        @property
        def parts(self) -> Parts:
            """What the recipes stand on."""

        def perform(self, call: Callable[[], Any]) -> Any:
            """Make a call, and raise its errors under Kazoo's names."""

    def create(
        self, path: str, value: bytes | None = b"", acl: object = None, ephemeral: bool = False,
        sequence: bool = False, makepath: bool = False, include_data: bool = False,
    ) -> Any:  # fmt: skip
        """Make a node; return its path, with `include_data` (path, ZnodeStat).

        `value`: up to 64 KiB as JSON. `ephemeral`: it goes with the session. `sequence`: ten digits are added to the
        path, the number of children made below its parent before. `makepath`: make the parents that do not exist.

        Raises NodeExistsError, NoNodeError where the parent does not exist, NoChildrenForEphemeralsError where it is
        ephemeral, and BadArgumentsError where the value is too large.
        """
        if acl is not None:
            raise UnimplementedError("acl: there are no access lists")
        check_flags(ephemeral=ephemeral, sequence=sequence, makepath=makepath, include_data=include_data)
        clean = clean_path(path)
        above, _, last = clean.rpartition("/")
        if sequence and path.endswith("/"):
            above, last = clean.rstrip("/"), ""
        if sequence and not above:
            raise UnimplementedError("sequence: only below another node, such as /app/node-")
        if not (above or last):
            raise NodeExistsError("/: there is such a node already")
        if above or not sequence:
            name_of(clean)
        params = {
            "parent": above[1:] or None, "name": last, "value": json_text_of(value), "session": None,
            "sequence": sequence, "makepath": makepath,
        }  # fmt: skip

        def call() -> nodes.NewNode:
            if ephemeral:
                params["session"] = str(self.parts.session().token)
            return self.parts.database.call(None, lambda conn: nodes.make_node(conn, params), maybe=CHANGED)

        node = self.perform(call)
        raise_problem(node.problem, path)
        made_path = f"/{node.key}"
        return (made_path, self.exists(made_path)) if include_data else made_path

    def ensure_path(self, path: str, acl: object = None) -> bool:
        """Make a node and its parents, where they do not exist; return True."""
        with contextlib.suppress(NodeExistsError):
            self.create(path, acl=acl, makepath=True)
        return True

    def exists(self, path: str, watch: WatchFunction | None = None) -> ZnodeStat | None:
        """Return the figures of a node; None where there is none.

        `watch`: called once, when the node is made, set or deleted.
        """
        check_watch(watch)
        if clean_path(path) == "/":
            refuse_root_watch(watch)
            return ROOT_STAT
        state = self._read(path)
        if watch is not None:
            self.node_watches.add_data_watch(clean_path(path), state, watch)
        return stat_of(state) if state.found else None

    def get(self, path: str, watch: WatchFunction | None = None) -> tuple[bytes | None, ZnodeStat]:
        """Return the data and the figures of a node. Raises NoNodeError.

        `watch`: called once, when the node is set or deleted.
        """
        check_watch(watch)
        if clean_path(path) == "/":
            refuse_root_watch(watch)
            return b"", ROOT_STAT
        state = self._read(path)
        if not state.found:
            raise_problem("no_node", path)
        if watch is not None:
            self.node_watches.add_data_watch(clean_path(path), state, watch)
        return data_of(state), stat_of(state)

    def get_children(self, path: str, watch: WatchFunction | None = None, include_data: bool = False) -> Any:
        """Return the names of the children of a node, in no particular order; with `include_data` (names, ZnodeStat).

        `watch`: called once, when a child is made or deleted, or the node is deleted. Raises NoNodeError.
        """
        check_watch(watch)
        check_flags(include_data=include_data)
        if clean_path(path) == "/":
            refuse_root_watch(watch)
            roots = self.perform(lambda: self.parts.database.call(None, nodes.list_roots))
            return (roots, ROOT_STAT._replace(numChildren=len(roots))) if include_data else roots
        state = self._read(path, listed=True)
        if not state.found:
            raise_problem("no_node", path)
        if watch is not None:
            self.node_watches.add_child_watch(clean_path(path), state, watch)
        names = list(state.children)
        return (names, stat_of(state)) if include_data else names

    def set(self, path: str, value: bytes | None, version: int = -1) -> ZnodeStat:
        """Set the data of a node; return its figures.

        `version`: the version that it must have; -1: any. Raises NoNodeError, BadVersionError, and BadArgumentsError
        where the value is too large.
        """
        key, text, expected = name_of(path), json_text_of(value), check_version(version)
        state = self.perform(
            lambda: self.parts.database.call(
                None, lambda conn: nodes.set_node(conn, key, text, expected), maybe=CHANGED
            )
        )
        if isinstance(state, str):
            raise_problem(state, path)
        return stat_of(state)

    def delete(self, path: str, version: int = -1, recursive: bool = False) -> bool:
        """Delete a node; `recursive`: and all below it, whatever its version is, or none of them where there is none.

        `version`: the version that it must have; -1: any. Raises NoNodeError, BadVersionError and NotEmptyError.
        """
        check_flags(recursive=recursive)
        key, expected = name_of(path), check_version(version)
        if recursive:
            while self.perform(
                lambda: self.parts.database.call(None, lambda conn: nodes.prune_nodes(conn, key), maybe=CHANGED)
            ):
                pass
            return True
        problem = self.perform(
            lambda: self.parts.database.call(None, lambda conn: nodes.delete_node(conn, key, expected), maybe=CHANGED)
        )
        raise_problem(problem, path)
        return True

    def unchroot(self, path: str) -> str:
        """Return the path as it is: there is no chroot."""
        return path

    def sync(self, path: str) -> str:
        """Return the path: there is one database, which has all that was written."""
        return clean_path(path)

    def read_state(self, key: str, *, listed: bool) -> NodeState:
        """Return a node with its state; `key`: its path without the first slash."""
        state: NodeState = self.perform(
            lambda: self.parts.database.call(None, lambda conn: nodes.read_node(conn, key, listed=listed))
        )
        return state

    def _read(self, path: str, *, listed: bool = False) -> NodeState:
        return self.read_state(name_of(path), listed=listed)


def check_flags(**flags: Any) -> None:
    """Raise TypeError for one that is neither True nor False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name}: expected a bool, got {type(flag).__name__}")


def check_watch(watch: object) -> None:
    """Raise TypeError for a watch that cannot be called."""
    if watch is not None and not callable(watch):
        raise TypeError("watch: expected a function")


def check_version(version: int) -> int | None:
    """Return the version that a node must have; None: any. Raises TypeError."""
    if not isinstance(version, int):
        raise TypeError(f"version: expected an int, got {type(version).__name__}")
    return None if version == -1 else version


def refuse_root_watch(watch: object) -> None:
    """Raise UnimplementedError for a watch of the root."""
    if watch is not None:
        raise UnimplementedError("watch: / cannot be watched: watch a node below it")


def raise_problem(problem: str | None, path: str) -> None:
    """Raise the exception that stands for an answer of the database."""
    if problem is not None:
        kind, text = PROBLEMS[problem]
        raise kind(f"{path}: {text}")


def data_of(state: NodeState) -> bytes | None:
    """Return the data of a node that exists; empty where it has no key of its own."""
    return b"" if state.value is None else to_bytes(json_value_of(state.value))


def stat_of(state: NodeState) -> ZnodeStat:
    """Return the figures of a node that exists."""
    return ZnodeStat(
        czxid=state.made_at,
        mzxid=state.changed_in,
        ctime=state.created_ms or 0,
        mtime=state.changed_ms or 0,
        version=state.version,
        cversion=max(0, 2 * state.children_made - state.child_count),
        aversion=0,
        ephemeralOwner=state.session or 0,
        dataLength=len(data_of(state) or b""),
        numChildren=state.child_count,
        pzxid=state.changed_in,
    )
