"""Check that expired claims are taken back in time, that marks and terms rise, and that terms do not overlap."""

from __future__ import annotations

from collections.abc import Iterator

from pgsched.chaos.checks.owners import changes_by_run, ownerships
from pgsched.chaos.history import History, Term

LATE_S = 0.1
IN_FLIGHT_S = 1.0


def check_expired_claims_reaped(history: History) -> Iterator[str]:
    """Check that no claim stands longer than `stuck_s` after its lease has ended.

    `stuck_s` is the reap period plus an allowance for a busy machine. The times that `idle_times` returns do not count.
    """
    allowed, ended = history.settings.get("stuck_s"), history.settings.get("ended")
    if allowed is None or ended is None:
        return
    away = idle_times(history)
    for run_id, changes in changes_by_run(history).items():
        for one in ownerships(changes):
            until = ended if one.released is None else one.released.at
            expired = one.last.lease_until
            if expired is not None and until - expired - overlap(away, expired, until) > allowed:
                yield f"run {run_id}: its lease ended, and nothing happened for {until - expired:.1f} s"


def idle_times(history: History) -> list[tuple[float, float]]:
    """Return the times in which no leader could take back an expired claim; they do not overlap.

    These times are:

    - outages
    - from a leader's last sign of life until the next leader has led for a lease: a new leader does not reap before
      that
    - from a sign of life until a lease after the next one, if that one came late because the database kept the leader
      waiting. A leader writes a sign of life about once a second.
    """
    lease_s = float(history.settings.get("lease_s", 0))
    found = [(one.start, one.end) for one in history.outages]
    last = float("-inf")
    for term in sorted(history.terms, key=lambda term: term.seq):
        if term.op == "insert" or term.at - last > lease_s / 2 + LATE_S:
            found.append((last, term.at + lease_s))
        last = term.at
    merged: list[tuple[float, float]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def overlap(times: list[tuple[float, float]], start: float, end: float) -> float:
    """Return how many seconds of these times lie between `start` and `end`."""
    return sum(max(0.0, min(end, until) - max(start, since)) for since, until in times)


def marks_rise(history: History) -> Iterator[str]:
    """Check that a job's high-water mark only rises."""
    newest: dict[int, float] = {}
    for mark in sorted(history.marks, key=lambda mark: mark.seq):
        before = newest.get(mark.job_id)
        if before is not None and mark.mark < before:
            yield f"job {mark.job_id}: its high-water mark fell from {before:.6f} to {mark.mark:.6f}"
        newest[mark.job_id] = mark.mark


def terms_rise(history: History) -> Iterator[str]:
    """Check that each term has a higher number than the one before."""
    begun = [term for term in sorted(history.terms, key=lambda term: term.seq) if term.op == "insert"]
    newest: Term | None = None
    for term in begun:
        if newest is not None and term.term <= newest.term:
            yield f"term {term.term} began after term {newest.term}"
        newest = term


def terms_overlap(history: History) -> Iterator[str]:
    """Check that no high-water mark and no leader's row is written in an older term once a newer term has begun.

    A leader's sign of life decides nothing and is not fenced. One that was on its way when the new term began is
    allowed for 1 s.
    """
    writes = [(term.seq, term.at, term.term, term.backend, term.op) for term in history.terms]
    writes += [(mark.seq, mark.at, 0, mark.backend, "mark") for mark in history.marks]
    term_of: dict[int, int] = {}
    newest, begun = 0, 0.0
    for _, at, term, backend, op in sorted(writes):
        if op == "insert":
            newest, begun, term_of[backend] = max(newest, term), at, term
            continue
        by = term_of.get(backend, 0) if op == "mark" else term
        if 0 < by < newest and (op == "mark" or at - begun > IN_FLIGHT_S):
            what = "a high-water mark" if op == "mark" else "the leader's row"
            yield f"{what} was written in term {by} when term {newest} had begun"
