"""Who takes part in `recipes`, and the server and processes of each.

Invariant: all have the same machine and the same file system, and each write that is answered is on disk. Each
measurement has names of its own, in PostgreSQL a fresh database.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.adapter import Process, call
from bench.contestants import PGSCHED, Contestant
from bench.install import Unavailable
from bench.machine import Cpu
from bench.measures.recipes.zookeeper import ZooKeeper
from bench.peers.recipes.pgsched import ITEM_QUEUE
from bench.server import Server
from pgsched import App

SETTLE_S = 0.3  # from the moment in which all processes are ready to the common start


@dataclass(frozen=True)
class Coordinator(Contestant):
    """A contestant of `recipes`. `program`: its module below bench/peers/recipes. `locking`: Kazoo's LockingQueue."""

    program: str = ""
    locking: bool = False

    @property
    def module(self) -> str:
        return f"bench.peers.recipes.{self.program}"

    @property
    def needs_zookeeper(self) -> bool:
        """Whether its server is ZooKeeper."""
        return self.program == "kazoo"


def coordinator(name: str, label: str, program: str, locking: bool = False) -> Coordinator:
    """Return a contestant, which has no tables of jobs."""
    return Coordinator(name, label, "", None, "", "", program=program, locking=locking)


OURS = coordinator(PGSCHED.name, "pgsched", "pgsched")
KAZOO = coordinator("kazoo", "Kazoo, ZooKeeper", "kazoo")
KAZOO_LOCKING = coordinator("kazoo-locking", "Kazoo (LockingQueue), ZooKeeper", "kazoo", locking=True)
ADVISORY = coordinator("advisory", "pg_advisory_lock of a session", "advisory")
COMMITS = coordinator("commits", "two commits of one row", "commits")
LOCKS = (OURS, KAZOO, ADVISORY)
QUEUES = (*([OURS] if hasattr(App, ITEM_QUEUE) else []), KAZOO, KAZOO_LOCKING)
COORDINATORS = (OURS, KAZOO, KAZOO_LOCKING, ADVISORY, COMMITS)


@dataclass(frozen=True)
class Field:
    """The servers of all contestants. `absent`: why there is no ZooKeeper, if there is none."""

    postgresql: Server
    zookeeper: ZooKeeper | None
    absent: str = ""

    @contextmanager
    def place(self, one: Coordinator) -> Iterator[str]:
        """Yield the address of the contestant's server, with nothing in it; raise Unavailable where it has none."""
        if one.needs_zookeeper:
            if self.zookeeper is None:
                raise Unavailable(self.absent)
            yield self.zookeeper.address
            return
        with self.postgresql.database(one.name) as dsn:
            if one.program == OURS.program:
                call(PGSCHED, "setup", dsn)
            yield dsn

    def cpu(self, one: Coordinator) -> Cpu | None:
        """Return what the contestant's server has used so far; None where that is unknown."""
        if one.needs_zookeeper:
            return None if self.zookeeper is None else self.zookeeper.cpu()
        return self.postgresql.cpu()

    def durability(self) -> str:
        """Return the note on what an answer means."""
        about = self.postgresql.about()
        server = self.zookeeper
        return (
            f"durable answers: PostgreSQL {about['postgresql']} with fsync {about['fsync']} and synchronous_commit"
            f" {about['synchronous_commit']}"
            + ("" if server is None else f"; one ZooKeeper {server.version} server with forceSync yes")
        )


def fresh_name() -> str:
    """Return a name that nobody has used."""
    return f"bench-{uuid.uuid4().hex[:12]}"


@contextmanager
def programs(one: Coordinator, dsn: str, verbs: Sequence[tuple[str, dict[str, object]]]) -> Iterator[list[Process]]:
    """Run processes for the block, each with a verb and its settings; they have got ready."""
    with ExitStack() as ends:
        started = []
        for verb, settings in verbs:
            process = Process(one, verb, dsn, locking=int(one.locking), **settings)
            ends.callback(process.end)
            started.append(process)
        for process in started:
            process.answer()
        yield started


def begin(processes: Sequence[Process]) -> int:
    """Let all begin at one instant; return it, in monotonic ns."""
    at = time.monotonic_ns() + int(SETTLE_S * 1e9)
    for process in processes:
        process.ask(str(at))
    return at


def reports(processes: Sequence[Process]) -> list[dict[str, Any]]:
    """Let all begin at one instant, and return what they report in the end."""
    begin(processes)
    return [process.answer() for process in processes]
