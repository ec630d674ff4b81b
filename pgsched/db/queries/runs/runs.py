"""Runs as an operator reads and corrects them: show one with its attempts; retry and cancel one or many.

Invariant: a change of many runs goes in batches, each in its own transaction. It waits for no lock, undoes nothing that
another session changed meanwhile, and says why a run was left alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import psycopg

from pgsched.core.model import Row, State
from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import explain_error
from pgsched.db.queries.runs.run_filter import Filter, hide_marker_time, list_runs
from pgsched.db.rows import fetch, first_row, rows
from pgsched.errors import InputError, NotFound

__all__ = ["Filter", "cancel", "cancel_many", "list_runs", "retry", "retry_many", "show_run", "update"]

LARGEST_ID = 2**63 - 1
BATCH = 500
PASSES, PAUSE_S = 5, 0.2  # a claim, a heartbeat or a settlement locks a row only for moments
RETRIED: tuple[State, ...] = (State.DEAD, State.CANCELLED, State.MISSED, State.SKIPPED)
CANCELLED: tuple[State, ...] = (State.WAITING, State.SCHEDULED, State.QUEUED, State.RUNNING)


def show_run(conn: Connection[Any], run_id: int) -> Row:
    """Return one run with all its columns, and its unsuccessful attempts as `attempts`. Raises NotFound."""
    found = known(run_id, first_row(conn, "run_show", {"id": checked(run_id)}))
    return hide_marker_time(found) | {"attempts": rows(conn, "run_attempts", {"id": run_id})}


def retry(conn: Connection[Any], run_id: int, now: bool = False) -> str:
    """Revive a dead, cancelled, missed or skipped run; return its new state. A run that is queued stays queued.

    A run that never started waits again for the runs that it waited for, unless it is to start `now`. Raises NotFound,
    and InputError for a run in another state.
    """
    done = known(run_id, first_row(conn, "run_retry", {"id": checked(run_id), "now": now}))
    before, after = done["before"], known(run_id, done if done["after"] else None)["after"]
    if after != State.QUEUED and not (after == State.WAITING and before in RETRIED):
        raise InputError(f"run {run_id} is {before}: only dead, cancelled, missed and skipped runs can be retried")
    return str(after)


def update(
    conn: Connection[Any],
    run_id: int,
    *,
    priority: int | None = None,
    at: datetime | None = None,
    queue: str | None = None,
) -> str:
    """Change a run that has not started; return its state after that. What is None stays as it is.

    Raises NotFound, and InputError for a wrong value and for a run that is running or has ended.
    """
    if priority is None and at is None and queue is None:
        raise InputError("nothing to change: give priority, at or queue")
    values = {"id": checked(run_id), "priority": priority, "at": at, "queue": queue}
    done = first_row(conn, "run_update", values)
    return str(known(run_id, done if done and done["state"] else None)["state"])


def cancel(conn: Connection[Any], run_id: int, reason: str | None = None) -> str:
    """Cancel a run; return `cancelled`, `requested` (its worker was asked), or the terminal state it had already.

    Raises NotFound.
    """
    done = known(run_id, first_row(conn, "run_cancel", {"id": checked(run_id), "reason": reason}))
    return str(known(run_id, done if done["what"] else None)["what"])


def retry_many(
    conn: Connection[Any], ids: Iterable[int], states: Sequence[str] = RETRIED, now: bool = False
) -> list[Row]:
    """Revive the runs that are still in one of these states; return (id, before, after, skipped) of each.

    `skipped`: why the run was left alone, or null.
    """
    return change_in_batches(conn, "run_retry_many", ids, {"states": plain(states), "now": now})


def cancel_many(
    conn: Connection[Any], ids: Iterable[int], reason: str | None = None, states: Sequence[str] = CANCELLED
) -> list[Row]:
    """Cancel the runs that are still in one of these states; return (id, before, after, skipped) of each.

    `after`: `requested` where a worker was asked; `skipped`: why the run was left alone, or null.
    """
    return change_in_batches(conn, "run_cancel_many", ids, {"states": plain(states), "reason": reason})


def change_in_batches(conn: Connection[Any], statement: str, ids: Iterable[int], values: dict[str, Any]) -> list[Row]:
    """Send a statement about runs, in batches; try locked rows again for about a second."""
    left = list(dict.fromkeys(ids))
    done: dict[int, Row] = {}
    for turn in range(PASSES):
        time.sleep(PAUSE_S if turn else 0)
        for start in range(0, len(left), BATCH):
            for row in batch(conn, statement, left[start : start + BATCH], values):
                done[row["id"]] = row
        left = [run_id for run_id in left if run_id not in done]
        if turn == 0 and left:
            present = {row["id"] for row in rows(conn, "run_present", {"ids": plain(valid_ids(left))})}
            done |= {run_id: skipped(run_id, "there is no such run") for run_id in left if run_id not in present}
            left = [run_id for run_id in left if run_id in present]
        if not left:
            break
    done |= {run_id: skipped(run_id, "another session holds it") for run_id in left}
    return [done[run_id] for run_id in sorted(done)]


def batch(conn: Connection[Any], statement: str, ids: list[int], values: dict[str, Any]) -> list[Row]:
    """Change the runs of a batch that no other session has locked.

    A key that another run takes at that very moment fails the whole statement. Then the runs are changed one by one.
    """
    try:
        return fetch(conn, statement, {"ids": plain(valid_ids(ids)), **values})
    except (psycopg.errors.CheckViolation, psycopg.errors.UniqueViolation) as error:
        if len(ids) == 1:
            return [skipped(ids[0], str(explain_error(error)))]
    except psycopg.Error as error:
        raise explain_error(error) from error
    return [row for run_id in ids for row in batch(conn, statement, [run_id], values)]


def skipped(run_id: int, why: str) -> Row:
    """Make the row of a run that was left alone."""
    return {"id": run_id, "before": None, "after": None, "skipped": why}


def valid_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids that a run can have."""
    return [run_id for run_id in ids if 0 < run_id <= LARGEST_ID]


def checked(run_id: int) -> int:
    """Return the id. Raises NotFound where no run can have it."""
    if not 0 < run_id <= LARGEST_ID:
        raise unknown(run_id)
    return run_id


def known(run_id: int, row: Row | None) -> Row:
    """Return the row. Raises NotFound where it is None."""
    if row is None:
        raise unknown(run_id)
    return row


def unknown(run_id: int) -> NotFound:
    """Make the error for an unknown run."""
    return NotFound(f"there is no run {run_id}, or none that this login may see: `pgsched run list` shows the newest")
