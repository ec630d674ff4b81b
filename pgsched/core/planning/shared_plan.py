"""Decide jobs that share schedule and policies once for all of them, instead of once for each job.

Invariant: jobs that differ only in id, mark and unfinished runs share one plan. Two marks between the same two slots
leave the same slots to decide. So the plan for one mark holds for the other, and gives the same new mark: that of the
last decision, or none.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from pgsched.core.planning.intervals import CoveredSlots
from pgsched.core.planning.job_schedule import job_schedule, with_read_times
from pgsched.core.planning.plan import Decided, Job, Plan, decide_job, is_shadow, plan
from pgsched.core.schedule.base import After, Every

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
NOTHING: dict[str, Any] = {"open": 0, "held": 0, "in_turn": 0, "newest": None,
                           "last_finished_at": None}  # fmt: skip


class Shape:
    """The schedule and policies that jobs share, and the newest decisions for them.

    `terms`: a row of `tick_terms` in sql/ticks.sql with the instant (`now`).
    `needs_open_runs`: whether unfinished runs matter.
    `is_fixed_delay`: whether the end of the last run matters (`@after`).
    `has_own_anchor`: whether slots count from each job's own beginning (`@every`).

    Raises ScheduleError where the schedule cannot be parsed.
    """

    def __init__(self, terms: Job) -> None:
        self.terms = with_read_times(terms)
        schedule = None if terms["schedule"] is None else job_schedule(self.terms)
        self.is_fixed_delay, self.has_own_anchor = isinstance(schedule, After), isinstance(schedule, Every)
        if not self.has_own_anchor:
            self.terms["known_schedule"] = schedule
        self.needs_open_runs = self.is_fixed_delay or (terms["overlap"] != "allow" and not is_shadow(terms))
        self._since, self._before = LAST, FIRST
        self._plan: Plan | None = None
        self._shared_decision: Decided | None = None

    def decide(
        self,
        job_id: int,
        mark: datetime | None,
        anchor: datetime | None = None,
        found: dict[str, Any] | None = None,
        known: Collection[CoveredSlots] = (),
    ) -> Decided:
        """Decide one job.

        `found`: the job's row of `tick_open` or `tick_finished`; None: it has none.
        `known`: the rows that the job has already.
        """
        alike = not (found or known) and self._since <= (mark or FIRST) < self._before
        if alike and self._shared_decision is not None:
            return self._shared_decision
        job = {**self.terms, **NOTHING, "id": job_id, "decided_until": mark, **(found or {})}
        if anchor is not None:
            job["anchor_at"] = anchor
        if self.is_fixed_delay or self.has_own_anchor:
            return decide_job(job, None, known)
        if not self._since <= (mark or FIRST) < self._before:
            self._remember(job)
        decided = decide_job(job, self._plan, known)
        if not (found or known or job["jitter"]):  # the jitter is a hash of the job's id
            self._shared_decision = decided
        return decided

    def _remember(self, job: Job) -> None:
        """Plan this job's slots, and store the range of marks that have the same plan."""
        self._plan, self._shared_decision = plan(job), None
        decisions, _, next_at = self._plan
        first = (decisions[0].covers_from or decisions[0].scheduled_at) if decisions else next_at
        self._since, self._before = job["decided_until"] or FIRST, first or LAST
