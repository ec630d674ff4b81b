"""The facts by which health is judged, all read at one moment.

Invariant: each query has an index that fits it, or reads a bounded number of rows. So asking does no harm to a system
in trouble.

A role that may not read a table judges without its facts. A producer, for example, may not read alerts, errors of
duties or settings of retention.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from pgsched.core.facts import (
    AwaitedRelease,
    BindingLimit,
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
    OverdueRun,
    Paused,
    Queue,
    RunningTask,
    ShutQueue,
    Unroutable,
)
from pgsched.core.model import Row
from pgsched.core.problems import AHEAD_S, LISTED
from pgsched.core.waiting_reasons import NEWEST_RELEASE
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports import name_hints
from pgsched.db.rows import first_row, rows
from pgsched.errors import NotPermitted

LEADER_SEEN_S = 5.0  # a leader that was seen within this time is alive
RUNS_READ = 50  # ended runs that are read to find one that should have been deleted
ERRORS = 20  # listed of each kind
MOST_TASKS = 100  # whose newest release is checked
MOST_OPEN = 200_000
T = TypeVar("T")


def read_facts(conn: Connection[Any], most_open: int = MOST_OPEN) -> Facts:
    """Read all facts, in the caller's transaction, which must have switched sequential scans off.

    `most_open`: at most this many open runs of each phase are read.
    """
    open_runs = rows(conn, "runs_open_by_state", {"n": most_open, "misfit": NEWEST_RELEASE})
    limits, full = binding_limits(conn)
    return Facts(
        leader=newest_leader(conn),
        workers=[build(LiveWorker, row) for row in rows(conn, "workers_alive")],
        jobs=build(JobCounts, first_row(conn, "jobs_counted")),
        queues=by_queue(open_runs),
        running=[running_counts(row) for row in open_runs if row["state"] == "running"],
        unroutable=unroutable(conn, [row for row in open_runs if not row["offered"]]),
        releases=ask_if_permitted(conn, lambda conn: releases(conn, open_runs), []),
        errors=[build(JobError, row) for row in rows(conn, "jobs_in_error", {"n": ERRORS})],
        paused=pauses(conn),
        shut_queues=[
            ShutQueue(row["queue"], row["since_s"], tuple(row["waits_for"])) for row in rows(conn, "health_queues_shut")
        ],
        limits=limits,
        full_queues=full,
        alerts=ask_if_permitted(conn, open_alerts, []),
        lost_workers=[build(LostWorker, row) for row in rows(conn, "health_workers_lost", {"n": ERRORS})],
        marked_ahead=[
            build(MarkedAhead, row) for row in rows(conn, "health_jobs_ahead", {"ahead_s": AHEAD_S, "n": ERRORS})
        ],
        unpruned=ask_if_permitted(conn, unpruned, None),
        notify_usage=(first_row(conn, "health_notify") or {"usage": 0.0})["usage"],
        counted_all=counted_all(open_runs, most_open),
    )


def counted_all(open_runs: list[Row], most: int) -> bool:
    """Check whether each scan of `runs_open_by_state` ended before its bound of `most` runs."""
    counts: dict[tuple[bool, str | None], int] = defaultdict(int)
    for row in open_runs:
        claimable = row["state"] in ("queued", "running")  # one scan reads both
        counts[row["limited"], None if claimable else row["state"]] += row["n"]
    return max(counts.values(), default=0) < most


def unroutable(conn: Connection[Any], open_runs: list[Row]) -> list[Unroutable]:
    """Return the queued runs that no live worker offers to take, the largest groups first.

    The groups that are listed to people get a hint: names of offered tasks that may have been meant.
    """
    found = [
        Unroutable(row["queue"], row["kind"], row["task"], row["n"], row["oldest_s"])
        for row in sorted(open_runs, key=lambda row: -row["n"])
    ]
    tasks = {one.task for one in found[:LISTED] if one.task}
    hints = {task: name_hints.hint_offered_tasks(conn, task) for task in tasks}
    return [replace(one, hint=hints.get(one.task or "", "")) for one in found]


def releases(conn: Connection[Any], open_runs: list[Row]) -> list[AwaitedRelease]:
    """Return the releases that runs wait for and that no live worker has, those with the most runs first."""
    counts: dict[str, int] = defaultdict(int)
    for row in open_runs:
        if row["misfit"] is not None:
            counts[row["misfit"]] += row["n"]
    most = sorted(counts, key=lambda task: -counts[task])[:MOST_TASKS]
    found = rows(conn, "health_releases_gone", {"tasks": most}) if counts else []
    awaited = [AwaitedRelease(row["task"], counts[row["task"]], row["gone_s"]) for row in found]
    return sorted(awaited, key=lambda one: (-one.count, one.task))


def build(kind: type[T], row: Row | None) -> T:
    """Make a value of `kind` from the columns that have the names of its fields."""
    assert row is not None
    return kind(**{field.name: row[field.name] for field in fields(kind) if field.name in row})  # type: ignore[arg-type]


def ask_if_permitted(conn: Connection[Any], ask: Callable[[Connection[Any]], T], otherwise: T) -> T:
    """Return what `ask` returns, or `otherwise` where this role has no right to ask."""
    try:
        with conn.transaction():
            return ask(conn)
    except NotPermitted:
        return otherwise


def newest_leader(conn: Connection[Any]) -> Leader | None:
    """Return the newest term; None: no process has ever led."""
    row = first_row(conn, "leader_newest_term")
    if row is None:
        return None
    alive = not row["resigned"] and row["seen_s"] <= LEADER_SEEN_S
    failed: list[Failing] = ask_if_permitted(conn, failing, [])
    return build(Leader, row | {"alive": alive, "failing": failed})


def failing(conn: Connection[Any]) -> list[Failing]:
    """Return the leader's duties that fail."""
    return [build(Failing, row) for row in rows(conn, "health_leader_failing")]


def running_counts(row: Row) -> RunningTask:
    """Turn a row of open runs into the counts of running runs of one task in a queue."""
    task = row["task"] or f"({row['kind']})"
    return RunningTask(row["queue"], task, row["n"], row["oldest_s"] or 0.0, row["newest_s"] or 0.0, row["untimed"])


def by_queue(open_runs: list[Row]) -> list[Queue]:
    """Sum up the open runs by queue."""
    counts: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    for row in open_runs:
        queue = counts[row["queue"]]
        queue[row["state"]] += row["n"]
        if row["state"] == "queued":
            raise_oldest(queue, "oldest_queued_s", row)
            if row["offered"]:
                raise_oldest(queue, "oldest_offered_s", row)
        elif row["limited"]:
            queue["limited"] += row["n"]
            raise_oldest(queue, "oldest_limited_s", row)
    return [Queue(name, **counts[name]) for name in sorted(counts)]


def raise_oldest(queue: dict[str, Any], name: str, row: Row) -> None:
    """Raise the age `name` of a queue to that of the row, if that is greater."""
    queue[name] = max(queue.get(name) or 0.0, row["oldest_s"] or 0.0, 0.0)


def pauses(conn: Connection[Any]) -> list[Paused]:
    """Return the pauses in force now."""
    found = []
    for row in queues.list_pauses(conn):
        since_s = (row["now"] - row["paused_at"]).total_seconds()
        left_s = None if row["resume_at"] is None else (row["resume_at"] - row["now"]).total_seconds()
        when = (row["paused_at"], row["paused_by"], row["reason"], row["resume_at"])
        found.append(Paused(row["what"], row["name"], *when, since_s, left_s))
    return found


def binding_limits(conn: Connection[Any]) -> tuple[list[BindingLimit], list[FullQueue]]:
    """Return the limits that hold runs now, and the queues that are full."""
    found = [
        BindingLimit(f"key {row['name']}", row["admitted"], row["waiting"], row["applied"], row["concurrency"])
        for row in queues.list_limits(conn)
        if row["waiting"]
    ]
    full = []
    for row in queues.list_queues(conn, bounded=True):
        limited = row["concurrency_limit"] is not None or row["rate"] is not None
        if limited and row["depth"]:
            counts = (row["running"], row["depth"], row["applied"], row["concurrency_limit"])
            found.append(BindingLimit(f"queue {row['name']}", *counts))
        if row["max_depth"] is not None and row["depth"] >= row["max_depth"]:
            full.append(FullQueue(row["name"], row["depth"], row["max_depth"], row["on_full"]))
    return found, full


def open_alerts(conn: Connection[Any]) -> list[OpenAlert]:
    """Return the open incidents, without test incidents."""
    return [
        OpenAlert(row["id"], row["job"], row["kind"], row["details"], (row["now"] - row["opened_at"]).total_seconds())
        for row in alerts.list_alerts(conn, n=100)
        if row["kind"] != "test"
    ]


def unpruned(conn: Connection[Any]) -> OverdueRun | None:
    """Return a run that retention should have deleted, if there is one."""
    row = first_row(conn, "health_unpruned", {"n": RUNS_READ})
    return None if row is None else OverdueRun(row["id"], row["age_s"], row["keep_s"])


def finished_lately(conn: Connection[Any], n: int, most: int) -> Row:
    """Return counts of recent ended runs: `runs_finished_lately` in sql/status.sql.

    At most `most` runs are counted; `n` are read to find late starts.
    """
    found = first_row(conn, "runs_finished_lately", {"n": n, "most": most})
    assert found is not None
    return found


def needing_attention(conn: Connection[Any], n: int, older: int) -> Row | None:
    """Count the runs that ended badly: at most the newest `n` of the last day, and `older` before that."""
    return first_row(conn, "runs_needing_attention", {"n": n, "older": older})
