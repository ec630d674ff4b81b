"""Things move: an expired claim is taken back in time, high-water marks and terms rise, terms do not overlap."""

from __future__ import annotations

from collections.abc import Iterator

from pgsched.chaos.checks.owners import of_runs, spells
from pgsched.chaos.history import History, Term

LATE_S = 0.1
ON_ITS_WAY_S = 1.0


def stuck(history: History) -> Iterator[str]:
    """No claim stands longer than `stuck_s` (the reap period, and what a busy machine adds) after its lease has ended.

    Outages do not count, nor does the time from a leader's last sign of life until the next one has led for a lease:
    before that it reaps nothing. Nor does a leader that had to wait for the database.
    """
    allowed, ended = history.settings.get("stuck_s"), history.settings.get("ended")
    if allowed is None or ended is None:
        return
    away = idle_times(history)
    for run_id, changes in of_runs(history).items():
        for one in spells(changes):
            until = ended if one.released is None else one.released.at
            expired = one.last.lease_until
            if expired is not None and until - expired - overlap(away, expired, until) > allowed:
                yield f"run {run_id}: its lease ended, and nothing happened for {until - expired:.1f} s"


def idle_times(history: History) -> list[tuple[float, float]]:
    """When nobody could take an expired claim back; these do not overlap.

    Besides outages: until a new leader has led for a lease, and for a lease after the database has kept a leader
    waiting (it says that it lives about once a second).
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
    """Seconds of these times between two instants."""
    return sum(max(0.0, min(end, until) - max(start, since)) for since, until in times)


def marks_rise(history: History) -> Iterator[str]:
    """A job's high-water mark only rises."""
    newest: dict[int, float] = {}
    for mark in sorted(history.marks, key=lambda mark: mark.seq):
        before = newest.get(mark.job_id)
        if before is not None and mark.mark < before:
            yield f"job {mark.job_id}: its high-water mark fell from {before:.6f} to {mark.mark:.6f}"
        newest[mark.job_id] = mark.mark


def terms_rise(history: History) -> Iterator[str]:
    """Each term has the next number, and begins after the one before."""
    begun = [term for term in sorted(history.terms, key=lambda term: term.seq) if term.op == "insert"]
    newest: Term | None = None
    for term in begun:
        if newest is not None and term.term <= newest.term:
            yield f"term {term.term} began after term {newest.term}"
        newest = term


def terms_overlap(history: History) -> Iterator[str]:
    """Once a term has begun, nothing is written in the name of an older one: neither its row, nor a high-water mark.

    A sign of life is no decision and not fenced: one that was on its way when the term began is let pass.
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
        if 0 < by < newest and (op == "mark" or at - begun > ON_ITS_WAY_S):
            what = "a high-water mark" if op == "mark" else "the leader's row"
            yield f"{what} was written in term {by} when term {newest} had begun"
