"""Admission of runs that limits hold: what the leader reads and writes for it (sql/admission.sql).

Each call is part of the leader's fenced transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, fetch_as, value
from pgsched.db.statements import sql


@dataclass(frozen=True, slots=True)
class Changed:
    """A queue or limit that was changed and is to be applied.

    `queue`: the queue's name; None: it is a limit. `version`: of its row, so that a further change can be told apart.
    """

    queue: str | None
    name: str
    version: str


class Queues(dict[str, Row]):
    """Settings of queues, and how many runs of each are admitted. The row of the empty name stands for all others."""

    def __missing__(self, name: str) -> Row:
        row = self[name] = {**self[""], "queue": name}
        return row


def list_waiting_groups(conn: Connection[Any], after: tuple[str, str], n: int, most: int) -> tuple[list[Row], Queues]:
    """Return up to `n` groups of runs that wait for limits alone, and the queues.

    A group is the runs of one queue and key. The first group returned is the one behind `after` (queue, key). Where a
    queue is limited itself, up to `most` groups are returned.
    """
    values = {"after_queue": after[0], "after_key": after[1], "n": n, "most": most}
    return fetch(conn, "limit_groups", values), read_queues(conn)


def read_queues(conn: Connection[Any]) -> Queues:
    """Return the settings of queues, and how many runs of each are admitted."""
    return Queues({row["queue"]: row for row in fetch(conn, "limit_queues")})


def first_waiting_runs(
    conn: Connection[Any],
    queues: Sequence[str],
    keys: Sequence[str],
    ns: Sequence[int],
    ordered: Sequence[bool],
    ageing_s: Sequence[float | None],
) -> list[Row]:
    """Return the first waiting runs of these groups, in the order in which they are to be admitted.

    The arguments are parallel. `ns`: how many runs at most; `ordered`: the key is ordered; `ageing_s`: None where
    priorities do not rise with age. In a row, `n` is the place of its group, from 1.
    """
    values = {"queues": list(queues), "keys": list(keys), "ns": list(ns), "ordereds": list(ordered)}
    return fetch(conn, "limit_candidates", values | {"ageing_ss": list(ageing_s)}) if ns else []


def take_refunds(conn: Connection[Any], queues: Sequence[str], keys: Sequence[str]) -> list[Row]:
    """Take out the records of claims of these queues and keys that were given back unstarted.

    Each is returned only once.
    """
    return fetch(conn, "limit_refunds", {"queues": list(queues), "keys": list(keys)}) if queues or keys else []


def admit(conn: Connection[Any], runs: Sequence[tuple[int, str, str]]) -> set[int]:
    """Make these waiting runs (id, queue, key) claimable; return the ids of those that were made so.

    The others are locked, have ended or got another key.
    """
    if not runs:
        return set()
    ids, queues, keys = zip(*runs, strict=True)
    values = {"ids": plain(ids), "queues": list(queues), "keys": list(keys)}
    return {row["id"] for row in fetch(conn, "limit_admit", values)}


def raise_priorities(conn: Connection[Any], ids: Sequence[int], priorities: Sequence[int]) -> None:
    """Write the priorities to which waiting runs have risen."""
    if ids:
        conn.execute(sql("limit_raise"), {"ids": plain(ids), "priorities": plain(priorities)})


def take_back(conn: Connection[Any], excess: Sequence[tuple[str | None, str | None, int]]) -> list[int]:
    """Let the last admitted, unstarted runs of these groups wait again; return how many of each do.

    A group is (queue, key, how many); its queue or its key is None.
    """
    taken = [0] * len(excess)
    if excess:
        values = {"queues": [e[0] for e in excess], "keys": [e[1] for e in excess], "ns": [e[2] for e in excess]}
        for row in fetch(conn, "limit_take_back", values):
            taken[row["n"] - 1] += 1
    return taken


def save_buckets(conn: Connection[Any], buckets: Sequence[tuple[str, float, int]], at: datetime) -> None:
    """Write the tokens of these buckets (name, tokens, unstarted) as of `at`."""
    if buckets:
        names, tokens, unstarted = zip(*buckets, strict=True)
        values = {"names": list(names), "tokens": list(tokens), "unstarteds": list(unstarted), "at": at}
        conn.execute(sql("limit_save"), values)


def list_unapplied(conn: Connection[Any]) -> list[Changed]:
    """Return the queues and limits that were changed and are to be applied."""
    return fetch_as(conn, Changed, "limit_unapplied")


def list_writers(conn: Connection[Any]) -> dict[str, int]:
    """Return the open transactions of other sessions that have written runs, each with its session's process id."""
    return {row["virtualtransaction"]: row["pid"] for row in fetch(conn, "limit_writers")}


def record_waits_for(conn: Connection[Any], queues: dict[str, int]) -> None:
    """Record, for queues that get their first limit, the process id of the session that each of them waits for."""
    if queues:
        conn.execute(sql("limit_shut"), {"queues": list(queues), "pids": list(queues.values())})


def open_keys(conn: Connection[Any]) -> list[Row]:
    """Return the keys whose limit was changed and that have admitted, unstarted runs."""
    return fetch(conn, "limit_open_keys")


def mark_applied(conn: Connection[Any], changes: Sequence[Changed]) -> int:
    """Mark these changes as applied; return how many were.

    Call this once nothing is admitted beyond these limits, and nothing can be. A row that was changed again is left for
    the next round.
    """
    columns = {"queues": [c.queue for c in changes], "names": [c.name for c in changes]}
    return int(value(conn, "limit_applied", columns | {"versions": [c.version for c in changes]}))


def delete_obsolete(conn: Connection[Any]) -> None:
    """Delete what has no effect any more: full buckets, ended pauses, flags of queues without settings."""
    conn.execute(sql("limit_forget"))
