"""The states, events and figures of nodes that Kazoo hands to callers, under its names."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class KazooState:
    """How it stands with the session of a client.

    CONNECTED: the session lives. SUSPENDED: the database does not answer; the session may have ended. LOST: the session
    has ended, and with it all that hung on it; or the client is not started.
    """

    SUSPENDED: Final = "SUSPENDED"
    CONNECTED: Final = "CONNECTED"
    LOST: Final = "LOST"


class KeeperState:
    """The finer states that Kazoo has beside KazooState; events carry one. The last two never occur here."""

    CONNECTED: Final = "CONNECTED"
    CONNECTING: Final = "CONNECTING"
    CLOSED: Final = "CLOSED"
    EXPIRED_SESSION: Final = "EXPIRED_SESSION"
    AUTH_FAILED: Final = "AUTH_FAILED"
    CONNECTED_RO: Final = "CONNECTED_RO"


class EventType:
    """What has happened to a node. NONE never occurs here: states of the session go to listeners only."""

    CREATED: Final = "CREATED"
    DELETED: Final = "DELETED"
    CHANGED: Final = "CHANGED"
    CHILD: Final = "CHILD"
    NONE: Final = "NONE"


class WatchedEvent(NamedTuple):
    """What a watch function is called with. `type`: of EventType; `state`: of KeeperState; `path`: the node's."""

    type: str
    state: str
    path: str


class ZnodeStat(NamedTuple):
    """The figures of a node.

    `czxid`, `mzxid`: the version of the tree when it was made, and when it was last set; versions are those of the
    first element of the path. `ctime`, `mtime`: milliseconds since 1970. `version`: how often it was set, from 0.
    `cversion`: how often children were made or deleted. `ephemeralOwner`: the id of its session; 0: it stays.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeralOwner: int  # noqa: N815
    dataLength: int  # noqa: N815
    numChildren: int  # noqa: N815
    pzxid: int

    @property
    def created(self) -> float:
        """When it was made, in seconds since 1970."""
        return self.ctime / 1000

    @property
    def last_modified(self) -> float:
        """When it was last set, in seconds since 1970."""
        return self.mtime / 1000

    @property
    def owner_session_id(self) -> int | None:
        """The session of an ephemeral node; None for others."""
        return self.ephemeralOwner or None

    @property
    def creation_transaction_id(self) -> int:
        """The same as `czxid`."""
        return self.czxid

    @property
    def last_modified_transaction_id(self) -> int:
        """The same as `mzxid`."""
        return self.mzxid

    @property
    def data_length(self) -> int:
        """The number of bytes of its data."""
        return self.dataLength

    @property
    def children_count(self) -> int:
        """The number of its children."""
        return self.numChildren

    @property
    def children_version(self) -> int:
        """The same as `cversion`."""
        return self.cversion

    @property
    def acl_version(self) -> int:
        """Always 0: there are no access lists."""
        return self.aversion


Listener = Any  # a function of one state, which may return True to be removed
