"""The pieces of each duty: how to do it a few rows at a time after it has failed as a whole.

Invariant: each piece is a fenced transaction of its own, so that finished pieces stay when another piece fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.leader import ticks
from pgsched.db.queries.leader.retention import LockedRuns
from pgsched.db.queries.runs import dependencies
from pgsched.leader import admission, passed_over
from pgsched.leader.dependents import (
    ENDED,
    FRESH,
    JUDGED,
    SLOTS,
    attach_slot_parents,
    judge_bisecting,
    watch_new_runs_whole,
)
from pgsched.leader.isolation.duty_guard import Pieces
from pgsched.leader.pruner import Pruner
from pgsched.leader.rollups import RunCounter
from pgsched.leader.term import Term

JOBS, BACKFILLS, STRETCHES, GROUPS = "jobs", "backfills", "passed over slots", "limited runs"
PRUNING, FIGURES, CLAIMS, SESSIONS = "pruning", "figures", "expired claims", "expired sessions"


def job_pieces(term: Term, work: Callable[[int], int], most: int) -> list[Pieces]:
    """Return the pieces of the tick. `work(n)` decides up to `n` jobs."""

    def first() -> str | None:
        due = ticks.due_jobs(term.conn, 1, 0.0, term.set_aside.skipped_ids(JOBS))
        return str(due[0].id) if due else None

    def some(n: int) -> tuple[int, bool]:
        done = work(n)
        return done, done > 0

    return [Pieces(JOBS, most, some, first)]


def admitting(term: Term, most: int) -> list[Pieces]:
    """Return the pieces of admitting runs that only time, or other runs of their job, held."""
    return [admitting_step(term, step, name, most) for step, name in ticks.ADMITTING.items()]


def admitting_step(term: Term, step: str, name: str, most: int) -> Pieces:
    """Return the pieces of one statement of that admission."""

    def work(n: int) -> tuple[int, bool]:
        with term.leading() as conn:
            done = ticks.admit_step(conn, step, n, term.set_aside.skipped_ids(name))
        return done, done > 0

    def first() -> str | None:
        return row_id(ticks.first_to_admit(term.conn, step, term.set_aside.skipped_ids(name)))

    return Pieces(name, most, work, first)


def dependents(term: Term, most: int) -> list[Pieces]:
    """Return the pieces of deciding runs that wait for others.

    Runs that cannot be released are set aside one by one, once their edges are decided.
    """

    def judge(conn: Connection[Any], run_ids: Sequence[int]) -> tuple[int, Mapping[int, Exception]]:
        done, failed = judge_bisecting(conn, run_ids)
        if failed and not done:
            raise next(iter(failed.values()))
        return done, failed

    def fresh(n: int) -> tuple[int, bool]:
        with term.leading() as conn:
            dependencies.begin_again(conn)
        with term.leading() as conn:
            watched, more, loose = watch_new_runs_whole(conn, n, term.set_aside.skipped_ids(FRESH))
            done, failed = judge(conn, loose)
        set_aside_failed(term, JUDGED, failed, done)
        return watched, more

    def ended(n: int) -> tuple[int, bool]:
        with term.leading() as conn:
            more, free, _ = dependencies.decide_ended_parents(conn, 0, n, term.set_aside.skipped_ids(ENDED))
            done, failed = judge(conn, free)
        set_aside_failed(term, JUDGED, failed, done)
        return len(free), more

    slots_after = 0

    def slots(n: int) -> tuple[int, bool]:
        nonlocal slots_after
        with term.leading() as conn:
            found, after = attach_slot_parents(conn, slots_after, n, term.set_aside.skipped_ids(SLOTS))
        slots_after = after  # only once it is committed
        return found, after > 0

    def first_slot() -> str | None:
        found = dependencies.slots(term.conn, slots_after, 1, term.set_aside.skipped_ids(SLOTS))
        return str(found[0].run_id) if found else None

    def again(_: int) -> tuple[int, bool]:
        with term.leading() as conn:
            done, failed = judge(conn, [int(row) for row in term.set_aside.rows_to_retry(JUDGED)])
        set_aside_failed(term, JUDGED, failed, done)
        return done, False

    def first_fresh() -> str | None:
        return row_id(next(iter(dependencies.lock_new_edges(term.conn, 0, 1, term.set_aside.skipped_ids(FRESH))), None))

    def first_ended() -> str | None:
        return row_id(
            dependencies.decide_ended_parents(term.conn, 0, 1, term.set_aside.skipped_ids(ENDED), act=False)[2]
        )

    return [
        Pieces(SLOTS, most, slots, first_slot, lambda: slots_after == 0),
        Pieces(FRESH, most, fresh, first_fresh),
        Pieces(ENDED, most, ended, first_ended),
        Pieces(JUDGED, 1, again, no_row),
    ]


def limited(term: Term, admission_state: admission.AdmissionState) -> list[Pieces]:
    """Return the pieces of admitting runs that only limits hold: groups, by queue and key."""

    def work(n: int) -> tuple[int, bool]:
        return run_admission_pass(term, admission_state, n), admission_state.more and not at_start()

    def at_start() -> bool:
        return admission_state.last_group == ("", "")

    return [
        Pieces(
            GROUPS,
            admission.MAX_GROUPS,
            work,
            lambda: admission.first_group(term.conn, admission_state.last_group),
            at_start,
        )
    ]


def run_admission_pass(term: Term, admission_state: admission.AdmissionState, n: int = admission.MAX_GROUPS) -> int:
    """Do a pass over at most `n` groups that only limits hold; return how many runs were admitted or taken back."""
    # Not in a pipeline: between its statements the server applies no timeout. A leader that is cut off or frozen
    # there would hold the locks until TCP gives up.
    before = admission_state.last_group
    try:
        with term.leading() as conn:
            return admission.admit_limited_runs(conn, admission_state, n, term.set_aside.skipped_rows(GROUPS))
    except Exception:
        admission_state.last_group = before
        raise


def stretches(term: Term) -> list[Pieces]:
    """Return the pieces of recording slots that an edit or a resume passed over."""

    def work(n: int) -> tuple[int, bool]:
        with term.leading() as conn:
            done = passed_over.record_stretches(conn, n, term.set_aside.skipped_ids(STRETCHES))
        return done, done >= n

    def first() -> str | None:
        return row_id(passed_over.first_stretch(term.conn, term.set_aside.skipped_ids(STRETCHES)))

    return [Pieces(STRETCHES, passed_over.BATCH, work, first)]


def pruning(term: Term, pruner: Pruner, most: int) -> list[Pieces]:
    """Return the pieces of deleting ended runs that no setting keeps any longer."""

    def work(n: int) -> tuple[int, bool]:
        return prune_batch(term, pruner, n), pruner.more

    def first() -> str | None:
        picked: LockedRuns | None = pruner.picked
        return None if picked is None or picked.locked != 1 else str(picked.numbers[0])

    return [Pieces(PRUNING, most, work, first)]


def prune_batch(term: Term, pruner: Pruner, n: int) -> int:
    """Delete one batch of `n` ended runs; return how many were deleted."""
    try:
        with term.leading() as conn:
            return pruner.prune_batch(conn, n, term.set_aside.skipped_ids(PRUNING))
    except Exception:
        pruner.restore_position()
        raise


def figures(term: Term, counting: RunCounter, most: int) -> list[Pieces]:
    """Return the pieces of counting ended runs. A run that is set aside is never counted."""

    def work(n: int) -> tuple[int, bool]:
        counted = counting.count_batch(term.conn, term.leading, n, term.set_aside.skipped_ids(FIGURES))
        return counted, counting.is_incomplete and counted > 0

    def first() -> str | None:
        with term.conn.transaction():
            return row_id(counting.first_run(term.conn, term.set_aside.skipped_ids(FIGURES)))

    return [Pieces(FIGURES, most, work, first)]


def rows_of_batch(term: Term, name: str, ids: Sequence[int], do: Callable[[list[int]], int]) -> list[Pieces]:
    """Return the pieces of a batch of known rows, such as claims whose lease has ended. `do`: do some of them."""
    left = list(ids)

    def work(n: int) -> tuple[int, bool]:
        set_aside_ids = set(term.set_aside.skipped_ids(name))
        some = [row for row in left if row not in set_aside_ids][:n]
        done = do(some) if some else 0
        left[:] = [row for row in left if row not in set(some)]
        return done, bool(some)

    def first() -> str | None:
        set_aside_ids = set(term.set_aside.skipped_ids(name))
        return next((str(row) for row in left if row not in set_aside_ids), None)

    return [Pieces(name, max(1, len(left)), work, first)]


def no_pieces(name: str) -> list[Pieces]:
    """Return the pieces of a duty that sets its rows aside by itself.

    Nothing is done in pieces, but under this name the rows are tried again when their time has come.
    """
    return [Pieces(name, 1, fail, no_row)]


def set_aside_failed(term: Term, name: str, failed: Mapping[int, Exception], went: int) -> None:
    """Set aside the rows that failed alone, while `went` others did not."""
    if failed:
        rows = ((str(row), first_line(error)) for row, error in failed.items())
        term.guard.set_aside(name, rows, proven=went > 0)


def row_id(row: int | None) -> str | None:
    """Return a row's number as the text under which it is set aside."""
    return None if row is None else str(row)


def no_row() -> None:
    """Return None: no row is known to be at fault."""


def fail(_: int) -> tuple[int, bool]:
    """Raise an error: the duty cannot be done in pieces."""
    raise RuntimeError("this duty has no pieces")
