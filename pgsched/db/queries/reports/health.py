"""The facts that health is judged by, read at one moment. Every question has an index that fits it, or is bounded:
asking does not hurt a system in trouble.

A role that may not read something (a producer: alerts, errors of duties, settings of retention) judges without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from pgsched.core.facts import (
    AwaitedRelease,
    Binding,
    Facts,
    Failing,
    FullQueue,
    JobCounts,
    JobError,
    Leader,
    LiveWorker,
    LostWorker,
    MarkedAhead,
    OpenAlert,
    Paused,
    Queue,
    Running,
    Shut,
    Unpruned,
    Unroutable,
)
from pgsched.core.health import AHEAD_S, LISTED
from pgsched.core.model import Row
from pgsched.core.waiting_reasons import NEWEST_RELEASE
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports import name_hints
from pgsched.db.rows import one, rows
from pgsched.errors import NotPermitted

LEADER_SEEN_S = 5.0
LOOKED_AT = 50  # ended runs, for one that should have gone
ERRORS = 20
MOST_TASKS = 100  # a look checks the newest release of at most so many tasks
MOST_OPEN = 200_000
T = TypeVar("T")


def facts(conn: Connection[Any], most_open: int = MOST_OPEN) -> Facts:
    """Read them, in a transaction of the caller's that forbids sequential scans; of the open runs at most `most_open`
    of each phase."""
    open_runs = rows(conn, "runs_open_by_state", {"n": most_open, "misfit": NEWEST_RELEASE})
    limits, full = binding(conn)
    return Facts(
        leader=newest_leader(conn),
        workers=[build(LiveWorker, row) for row in rows(conn, "workers_alive")],
        jobs=build(JobCounts, one(conn, "jobs_counted")),
        queues=by_queue(open_runs),
        running=[running(row) for row in open_runs if row["state"] == "running"],
        unroutable=unroutable(conn, [row for row in open_runs if not row["offered"]]),
        releases=permitted(conn, lambda conn: releases(conn, open_runs), []),
        errors=[build(JobError, row) for row in rows(conn, "jobs_in_error", {"n": ERRORS})],
        paused=pauses(conn),
        shut=[Shut(row["queue"], row["since_s"], tuple(row["waits_for"])) for row in rows(conn, "health_queues_shut")],
        limits=limits,
        full=full,
        alerts=permitted(conn, open_alerts, []),
        lost=[build(LostWorker, row) for row in rows(conn, "health_workers_lost", {"n": ERRORS})],
        ahead=[build(MarkedAhead, row) for row in rows(conn, "health_jobs_ahead", {"ahead_s": AHEAD_S, "n": ERRORS})],
        unpruned=permitted(conn, unpruned, None),
        notify_usage=(one(conn, "health_notify") or {"usage": 0.0})["usage"],
        counted_all=sum(row["n"] for row in open_runs) < most_open,
    )


def unroutable(conn: Connection[Any], open_runs: list[Row]) -> list[Unroutable]:
    """The most first. Of those that are listed: what is offered that may have been meant."""
    found = [
        Unroutable(row["queue"], row["kind"], row["task"], row["n"], row["oldest_s"])
        for row in sorted(open_runs, key=lambda row: -row["n"])
    ]
    tasks = {one.task for one in found[:LISTED] if one.task}
    hints = {task: name_hints.not_offered(conn, task) for task in tasks}
    return [replace(one, hint=hints.get(one.task or "", "")) for one in found]


def releases(conn: Connection[Any], open_runs: list[Row]) -> list[AwaitedRelease]:
    """The releases that runs wait for and no live worker has, those for which most wait first."""
    counts: dict[str, int] = defaultdict(int)
    for row in open_runs:
        if row["misfit"] is not None:
            counts[row["misfit"]] += row["n"]
    most = sorted(counts, key=lambda task: -counts[task])[:MOST_TASKS]
    found = rows(conn, "health_releases_gone", {"tasks": most}) if counts else []
    awaited = [AwaitedRelease(row["task"], counts[row["task"]], row["gone_s"]) for row in found]
    return sorted(awaited, key=lambda one: (-one.count, one.task))


def build(kind: type[T], row: Row | None) -> T:
    """A value from the columns that bear its fields' names."""
    assert row is not None
    return kind(**{field.name: row[field.name] for field in fields(kind) if field.name in row})  # type: ignore[arg-type]


def permitted(conn: Connection[Any], ask: Callable[[Connection[Any]], T], otherwise: T) -> T:
    """What this asks; `otherwise` where this role may not."""
    try:
        with conn.transaction():
            return ask(conn)
    except NotPermitted:
        return otherwise


def newest_leader(conn: Connection[Any]) -> Leader | None:
    """The newest term, None if nobody ever led."""
    row = one(conn, "leader_newest_term")
    if row is None:
        return None
    alive = not row["resigned"] and row["seen_s"] <= LEADER_SEEN_S
    failed: list[Failing] = permitted(conn, failing, [])
    return build(Leader, row | {"alive": alive, "failing": failed})


def failing(conn: Connection[Any]) -> list[Failing]:
    """The duties that fail."""
    return [build(Failing, row) for row in rows(conn, "health_leader_failing")]


def running(row: Row) -> Running:
    """What runs in a queue, of one task."""
    task = row["task"] or f"({row['kind']})"
    return Running(row["queue"], task, row["n"], row["oldest_s"] or 0.0, row["newest_s"] or 0.0, row["untimed"])


def by_queue(open_runs: list[Row]) -> list[Queue]:
    """The open runs rolled up by queue."""
    counts: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    for row in open_runs:
        queue = counts[row["queue"]]
        queue[row["state"]] += row["n"]
        if row["state"] == "queued":
            oldest(queue, "oldest_queued_s", row)
            if row["offered"]:
                oldest(queue, "oldest_offered_s", row)
        elif row["limited"]:
            queue["limited"] += row["n"]
            oldest(queue, "oldest_limited_s", row)
    return [Queue(name, **counts[name]) for name in sorted(counts)]


def oldest(queue: dict[str, Any], name: str, row: Row) -> None:
    """The greatest age of what is rolled up."""
    queue[name] = max(queue.get(name) or 0.0, row["oldest_s"] or 0.0, 0.0)


def pauses(conn: Connection[Any]) -> list[Paused]:
    """What is paused now."""
    found = []
    for row in queues.list_pauses(conn):
        since_s = (row["now"] - row["paused_at"]).total_seconds()
        left_s = None if row["resume_at"] is None else (row["resume_at"] - row["now"]).total_seconds()
        when = (row["paused_at"], row["paused_by"], row["reason"], row["resume_at"])
        found.append(Paused(row["what"], row["name"], *when, since_s, left_s))
    return found


def binding(conn: Connection[Any]) -> tuple[list[Binding], list[FullQueue]]:
    """The limits that hold runs now, and the queues that are full."""
    found = [
        Binding(f"key {row['name']}", row["admitted"], row["waiting"], row["applied"], row["concurrency"])
        for row in queues.list_limits(conn)
        if row["waiting"]
    ]
    full = []
    for row in queues.list_queues(conn, bounded=True):
        limited = row["concurrency_limit"] is not None or row["rate"] is not None
        if limited and row["depth"]:
            counts = (row["running"], row["depth"], row["applied"], row["concurrency_limit"])
            found.append(Binding(f"queue {row['name']}", *counts))
        if row["max_depth"] is not None and row["depth"] >= row["max_depth"]:
            full.append(FullQueue(row["name"], row["depth"], row["max_depth"], row["on_full"]))
    return found, full


def open_alerts(conn: Connection[Any]) -> list[OpenAlert]:
    """The incidents that are not over; one that somebody opened to test who is told is none."""
    return [
        OpenAlert(row["id"], row["job"], row["kind"], row["details"], (row["now"] - row["opened_at"]).total_seconds())
        for row in alerts.listed(conn, n=100)
        if row["kind"] != "test"
    ]


def unpruned(conn: Connection[Any]) -> Unpruned | None:
    """A run that should have gone."""
    row = one(conn, "health_unpruned", {"n": LOOKED_AT})
    return None if row is None else Unpruned(row["id"], row["age_s"], row["keep_s"])


def finished_lately(conn: Connection[Any], n: int, most: int) -> Row:
    """Counts over the newest `n` finished runs; `most` are counted: runs_finished_lately in sql/status.sql."""
    found = one(conn, "runs_finished_lately", {"n": n, "most": most})
    assert found is not None
    return found


def needing_attention(conn: Connection[Any], n: int, older: int) -> Row | None:
    """Runs that ended badly: of the last day at most `n` are read, of those before `older`."""
    return one(conn, "runs_needing_attention", {"n": n, "older": older})
