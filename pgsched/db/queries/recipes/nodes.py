"""The store as a tree of nodes: read, make, set and delete nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node at one moment.

    `upto`: the version of its root at that moment. `found`: False: there is none. `value`: JSON text; None: the node
    has no key of its own. `version`: how often it was set, from 0. `made_at`, `changed_in`: versions of its root.
    `created_ms`, `changed_ms`: milliseconds since 1970. `session`: the id of the one it goes with. `children_made`: how
    many were ever made below it. `children`: their names, if they were asked for.
    """

    upto: int
    found: bool
    value: str | None
    version: int
    made_at: int
    changed_in: int
    created_ms: int | None
    changed_ms: int | None
    session: int | None
    children_made: int
    children: list[str]
    child_count: int


class NewNode(NamedTuple):
    """`problem`: why no node was made: no_node, exists, no_children. `key`: of the node."""

    problem: str | None
    key: str


def read_node(conn: Connection[Any], key: str, *, listed: bool = False) -> NodeState:
    """Return a node; `listed`: with the names of its children. Raises NotPermitted."""
    return NodeState(**rows(conn, "node_read", {"key": key, "listed": listed})[0])


def list_roots(conn: Connection[Any]) -> list[str]:
    """Return the first elements of the keys that the caller may use."""
    return list(rows(conn, "node_roots", {})[0]["names"])


def make_node(conn: Connection[Any], params: Row) -> NewNode:
    """Make a node: `node_create` in sql says with what. Raises InputError, NotPermitted or LeaseLost."""
    return NewNode(**rows(conn, "node_create", params)[0])


def set_node(conn: Connection[Any], key: str, value: str, expected: int | None) -> NodeState | str:
    """Set the value of a node, a JSON text; return the node, or why it was not set: no_node or bad_version."""
    row = dict(rows(conn, "node_set", {"key": key, "value": value, "expected": expected})[0])
    problem = row.pop("problem")
    return problem or NodeState(**row)


def delete_node(conn: Connection[Any], key: str, expected: int | None) -> str | None:
    """Delete a node; return why it was not deleted: no_node, bad_version or not_empty."""
    problem: str | None = rows(conn, "node_delete", {"key": key, "expected": expected})[0]["problem"]
    return problem


def prune_nodes(conn: Connection[Any], key: str) -> int:
    """Delete a node and all below it, at most 1,000 of them; return how many."""
    return int(rows(conn, "node_prune", {"key": key})[0]["deleted"])
