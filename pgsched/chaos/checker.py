"""Check a history: list every broken promise. `pgsched chaos --check FILE` does this for saved histories.

Invariant: a check is a pure function from a history to lines. A check does not know which fault was on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pgsched.chaos.checks import claims_and_terms, limits, owners, processes, promises, slots
from pgsched.chaos.history import History

Check = Callable[[History], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: the name of the check, and what the check saw."""

    check: str
    text: str


def check_troubles(history: History) -> Iterator[str]:
    """Check that the fault ran to its end without an exception."""
    yield from (trouble.text for trouble in history.troubles)


def check_figures(history: History) -> Iterator[str]:
    """Check that no figure is above its bound."""
    for one in history.figures:
        if one.bound is not None and one.value > one.bound:
            yield f"{one.name}: {one.value:.2f}, at most {one.bound:g} is allowed"


CHECKS: dict[str, Check] = {
    "fault": check_troubles,
    "figures": check_figures,
    "slots-lost": slots.check_none_lost,
    "slots-twice": slots.check_none_twice,
    "slots-invented": slots.check_none_invented,
    "one-owner": owners.check_one_at_a_time,
    "taken-early": owners.check_lease_respected,
    "ended-once": owners.check_ended_once,
    "events-by-owners": owners.check_events_by_owners,
    "settled-by-last": owners.check_settled_by_last_owner,
    "acknowledged": promises.acknowledged,
    "all-ended": promises.all_ended,
    "enqueued-once": promises.enqueued_once,
    "ran": promises.check_succeeded_runs_ran,
    "stuck": claims_and_terms.check_expired_claims_reaped,
    "marks-rise": claims_and_terms.marks_rise,
    "terms-rise": claims_and_terms.terms_rise,
    "terms-overlap": claims_and_terms.terms_overlap,
    "limits": limits.check_recorded_limits,
    "fates": processes.check_fates,
    "stops": processes.check_stops,
    "leaks": processes.check_leaks,
}


def find_violations(history: History) -> list[Violation]:
    """Return every violation; an empty list means that all promises were kept."""
    return [Violation(name, text) for name, one in CHECKS.items() for text in one(history)]
