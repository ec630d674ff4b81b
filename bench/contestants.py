"""The contestants: pgsched, the raw ceiling, and the peers at pinned versions (peers/locks).

Invariant: a contestant's own tables tell whether its work is finished. Three statements read them:

- `unfinished`: a cheap statement that checks for unfinished work
- `finished`: at the end, exactly how many runs the database keeps as done; None for contestants that delete these
- `queued`: after an enqueue, how many runs wait

`table` is the table into which an enqueue inserts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar


@dataclass(frozen=True)
class Contestant:
    """One queue.

    `lock`: the file or folder below peers/locks that pins its packages; None: it runs in this interpreter.
    `share`: how many jobs it gets, as a share of what the others get. A slow contestant gets fewer, and the tables say
      so.
    `sql`: a statement that enqueues job %s, from any client.
    `asked_late`: its tables show only seconds later that nothing is left. So its clock stops at the last run, which
      favours it.
    """

    name: str
    label: str
    unfinished: str
    finished: str | None
    queued: str
    table: str
    lock: str | None = None
    least_python: tuple[int, int] = (3, 11)
    share: float = 1.0
    sql: str | None = None
    asked_late: bool = False

    @property
    def module(self) -> str:
        return "bench.peers." + self.name.replace("-", "_")


PGSCHED = Contestant(
    "pgsched",
    "pgsched",
    # each phase by itself: each has an index of its own, and there is none for all
    "SELECT EXISTS (SELECT FROM pgsched.runs WHERE phase = 2) OR EXISTS (SELECT FROM pgsched.runs WHERE phase = 1)"
    " OR EXISTS (SELECT FROM pgsched.runs WHERE phase = 0)",
    "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded' AND attempt = 1",
    "SELECT count(*) FROM pgsched.runs WHERE state = 'queued'",
    "pgsched.runs",
    sql="SELECT pgsched.enqueue('noop', jsonb_build_object('i', %s::int))",
)
RAW = Contestant(
    "raw",
    "raw SQL ceiling",
    "SELECT EXISTS (SELECT FROM raw WHERE finished_at IS NULL)",
    "SELECT count(*) FROM raw WHERE state = 2",
    "SELECT count(*) FROM raw WHERE state = 0",
    "raw",
)
RAW_500 = replace(RAW, name="raw-500", label="the same loop, untuned: batches of 500")
STATEMENTS = replace(PGSCHED, name="statements", label="pgsched's statements, bare loop")
THREADED = replace(PGSCHED, name="threaded", label="pgsched, a plain function")
PEERS = (
    Contestant(
        "pgqueuer",
        "pgqueuer 1.6",
        "SELECT EXISTS (SELECT FROM pgqueuer)",
        "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
        "SELECT count(*) FROM pgqueuer WHERE status = 'queued'",
        "pgqueuer",
        "pgqueuer.txt",
    ),
    Contestant(
        "graphile-worker",
        "graphile-worker 0.18",
        "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)",
        None,
        "SELECT count(*) FROM graphile_worker._private_jobs",
        "graphile_worker._private_jobs",
        "graphile-worker",
        sql="SELECT graphile_worker.add_job('noop', json_build_object('i', %s::int))",
    ),
    Contestant(
        "oban",
        "oban (Python) 0.7",
        "SELECT EXISTS (SELECT FROM oban_jobs WHERE state IN ('available', 'scheduled', 'executing', 'retryable'))",
        "SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
        "SELECT count(*) FROM oban_jobs WHERE state = 'available'",
        "oban_jobs",
        "oban.txt",
        least_python=(3, 12),
    ),
    Contestant(
        "awa-pg",
        "awa-pg 0.6.9",
        # not from its view awa.jobs, which takes minutes with 100,000 jobs
        "SELECT EXISTS (SELECT FROM awa.ready_entries) OR EXISTS (SELECT FROM awa.leases)"
        " OR EXISTS (SELECT FROM awa.deferred_jobs)",
        None,  # finished jobs disappear within seconds, when segments rotate (docs.rs/awa-model, QueueStorage)
        "SELECT count(*) FROM awa.jobs WHERE state = 'available'",
        "awa.ready_entries",
        "awa-pg.txt",
        asked_late=True,
    ),
    Contestant(
        "chancy",
        "chancy 0.26",
        "SELECT EXISTS (SELECT FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying'))",
        "SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'",
        "SELECT count(*) FROM chancy_jobs WHERE state = 'pending'",
        "chancy_jobs",
        "chancy.txt",
    ),
    Contestant(
        "procrastinate",
        "procrastinate 3.10",
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
        "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
        "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'",
        "procrastinate_jobs",
        "procrastinate.txt",
        share=0.1,
    ),
)
PLAIN = tuple(
    replace(one, name=f"{one.name}-plain", label=f"{one.label}, a plain function")
    for one in PEERS
    if one.name in ("pgqueuer", "chancy")
)
ALL = (RAW, RAW_500, STATEMENTS, PGSCHED, THREADED, *PEERS, *PLAIN)
ENDURING = tuple(one for one in PEERS if one.name in ("graphile-worker", "awa-pg"))  # the best after a minute of load


C = TypeVar("C", bound=Contestant)


def named(names: list[str], among: Sequence[C]) -> list[C]:
    """Return the contestants of these names. Raises ValueError for an unknown one."""
    known = {one.name: one for one in among}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{', '.join(unknown)}: no such contestant; known are {', '.join(known)}")
    return [known[name] for name in names]
