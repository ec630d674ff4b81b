"""What admission reads and writes (sql/admission.sql); each call is a part of the leader's fenced transaction."""

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
    """A queue, or a limit (`queue` is None), as somebody has changed it; `version`: of its row."""

    queue: str | None
    name: str
    version: str


class Queues(dict[str, Row]):
    """What is set for queues, and how much of each is admitted. The row of the empty name stands for all others."""

    def __missing__(self, name: str) -> Row:
        row = self[name] = {**self[""], "queue": name}
        return row


def standing(conn: Connection[Any], after: tuple[str, str], n: int, most: int) -> tuple[list[Row], Queues]:
    """Up to `n` groups of runs that wait for limits alone (`most` in queues that are limited themselves), behind
    `after` (queue, key); and the queues."""
    values = {"after_queue": after[0], "after_key": after[1], "n": n, "most": most}
    return fetch(conn, "limit_groups", values), queues(conn)


def queues(conn: Connection[Any]) -> Queues:
    """What is set for queues, and how much of each is admitted."""
    return Queues({row["queue"]: row for row in fetch(conn, "limit_queues")})


def candidates(
    conn: Connection[Any],
    queues: Sequence[str],
    keys: Sequence[str],
    ns: Sequence[int],
    ordered: Sequence[bool],
    ageing_s: Sequence[float | None],
) -> list[Row]:
    """The first runs of these groups; `n` is the group's place, from 1."""
    values = {"queues": list(queues), "keys": list(keys), "ns": list(ns), "ordereds": list(ordered)}
    return fetch(conn, "limit_candidates", values | {"ageing_ss": list(ageing_s)}) if ns else []


def refunds(conn: Connection[Any], queues: Sequence[str], keys: Sequence[str]) -> list[Row]:
    """Claims of these queues and keys that were given back unstarted; each is told once."""
    return fetch(conn, "limit_refunds", {"queues": list(queues), "keys": list(keys)}) if queues or keys else []


def admit(conn: Connection[Any], runs: Sequence[tuple[int, str, str]]) -> set[int]:
    """Let these runs (id, queue, key) go; returns those that were."""
    if not runs:
        return set()
    ids, queues, keys = zip(*runs, strict=True)
    values = {"ids": plain(ids), "queues": list(queues), "keys": list(keys)}
    return {row["id"] for row in fetch(conn, "limit_admit", values)}


def raise_priorities(conn: Connection[Any], ids: Sequence[int], priorities: Sequence[int]) -> None:
    """Give runs the priority that they have risen to."""
    if ids:
        conn.execute(sql("limit_raise"), {"ids": plain(ids), "priorities": plain(priorities)})


def take_back(conn: Connection[Any], excess: Sequence[tuple[str | None, str | None, int]]) -> list[int]:
    """Let the last of the admitted, unstarted runs of these (queue, key, how many) wait again; how many of each did."""
    taken = [0] * len(excess)
    if excess:
        values = {"queues": [e[0] for e in excess], "keys": [e[1] for e in excess], "ns": [e[2] for e in excess]}
        for row in fetch(conn, "limit_take_back", values):
            taken[row["n"] - 1] += 1
    return taken


def save(conn: Connection[Any], buckets: Sequence[tuple[str, float, int]], at: datetime) -> None:
    """Write the tokens of these buckets (name, tokens, unstarted) as of `at`."""
    if buckets:
        names, tokens, unstarted = zip(*buckets, strict=True)
        values = {"names": list(names), "tokens": list(tokens), "unstarteds": list(unstarted), "at": at}
        conn.execute(sql("limit_save"), values)


def unapplied(conn: Connection[Any]) -> list[Changed]:
    """The queues and limits that were changed and are yet to be applied."""
    return fetch_as(conn, Changed, "limit_unapplied")


def writers(conn: Connection[Any]) -> dict[str, int]:
    """The transactions of others that have written runs and have not ended, and the process of each one's session."""
    return {row["virtualtransaction"]: row["pid"] for row in fetch(conn, "limit_writers")}


def shut(conn: Connection[Any], queues: dict[str, int]) -> None:
    """Note whom these queues wait for, which get their first limit."""
    if queues:
        conn.execute(sql("limit_shut"), {"queues": list(queues), "pids": list(queues.values())})


def open_keys(conn: Connection[Any]) -> list[Row]:
    """The keys with admitted runs whose limit was changed."""
    return fetch(conn, "limit_open_keys")


def applied(conn: Connection[Any], changes: Sequence[Changed]) -> int:
    """Nothing is admitted beyond these limits any more, and nothing can be; how many had not been changed again."""
    columns = {"queues": [c.queue for c in changes], "names": [c.name for c in changes]}
    return int(value(conn, "limit_applied", columns | {"versions": [c.version for c in changes]}))


def forget(conn: Connection[Any]) -> None:
    """Drop what no longer says anything: full buckets, pauses that have ended, bits of queues without settings."""
    conn.execute(sql("limit_forget"))
