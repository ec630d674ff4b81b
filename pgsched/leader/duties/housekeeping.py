"""Housekeeping duties, done once a period: counting, looking for incidents, deleting old rows, tidying up."""

from __future__ import annotations

import math
import time

from pgsched import log
from pgsched.db.queries.leader import leadership, limits
from pgsched.db.queries.leader.retention import WORKERS_KEPT_S
from pgsched.leader import rollups
from pgsched.leader.alerting.incidents import EVERY_S, IncidentWatch
from pgsched.leader.declarations import remove_undeclared_jobs as withdraw
from pgsched.leader.dependents import DeletedParentSweep
from pgsched.leader.duty import BATCH, PeriodicDuty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.pruner import PAUSE_FACTOR, Pruner
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import LONGEST_PAUSE_S, Periodic, next_batch_at

logger = log.get("leader")
UNCOUNTED_PAUSE_S = 1.0  # pause while transactions that may still end runs are under way
CLEAR_EVERY_S = 60.0
NOTIFICATIONS_FULL = 0.5  # share of the server's queue from which on pgsched sends no notification (pgsched.notify)


class FiguresDuty(PeriodicDuty):
    """The duty that counts ended runs, for charts."""

    name = "figures"

    def __init__(self, term: Term) -> None:
        self._counting = rollups.RunCounter()
        super().__init__(term, Periodic(0.0, term.settings.count_every_s), pieces.figures(term, self._counting, BATCH))

    def start(self, this_round: Round) -> bool:
        """Check whether the look asked for ended runs, and the period is over."""
        return this_round.asked_for_figures and super().start(this_round)

    def run(self, this_round: Round) -> int:
        """Count one batch of ended runs; return how many."""
        if not (this_round.look.ended or self._counting.is_due(this_round.began)):
            return 0
        began = time.monotonic()
        ids = self.term.set_aside.skipped_ids(pieces.FIGURES)
        counted = self._counting.count_batch(self.term.conn, self.term.leading, set_aside_ids=ids)
        if self._counting.is_incomplete:
            self.period.set_due_at(next_batch_at(began) if counted else this_round.began + UNCOUNTED_PAUSE_S)
        return counted


class AlertsDuty(PeriodicDuty):
    """The duty that looks for incidents of watched jobs."""

    name = "alerts"
    needs_clock = True

    def __init__(self, term: Term, watch: IncidentWatch) -> None:
        super().__init__(term, Periodic(0.0, EVERY_S))
        self.watch = watch

    def run(self, this_round: Round) -> int:
        """Look at the next watched jobs; return 0."""
        began = time.monotonic()
        again_s = self.watch.look(self.term.conn, self.term.leading, leads=True)
        rest_s = next_batch_at(began) - began
        self.period.set_due_within(began, max(rest_s, again_s), LONGEST_PAUSE_S if again_s else 0.0)
        return 0


class PruningDuty(PeriodicDuty):
    """The duty that deletes ended runs which no setting keeps any longer. `pruner`: knows whether there are more."""

    name = "pruning"
    needs_clock = True

    def __init__(self, term: Term) -> None:
        self.pruner = Pruner()
        every_s, batch = term.settings.prune_every_s, term.settings.prune_batch
        super().__init__(term, Periodic(time.monotonic() + every_s, every_s), pieces.pruning(term, self.pruner, batch))

    def run(self, this_round: Round) -> int:
        """Delete one batch; return how many runs were deleted."""
        began = time.monotonic()
        if self.term.set_aside.rows_to_retry(pieces.PRUNING):
            self.pruner.restart()
        gone = pieces.prune_batch(self.term, self.pruner, self.term.settings.prune_batch)
        if self.term.meter is not None:
            self.term.meter.record_pruned(gone)
        if self.pruner.more:
            self.period.set_due_at(next_batch_at(began, PAUSE_FACTOR))
        return gone


class TidyingDuty(PeriodicDuty):
    """The duty that deletes other expired rows, once there are no more runs to delete."""

    name = "tidying"
    needs_clock = True

    def __init__(self, term: Term, pruner: Pruner) -> None:
        every_s = term.settings.prune_every_s
        super().__init__(term, Periodic(time.monotonic() + every_s, every_s))
        self._pruner = pruner
        self._sweep = DeletedParentSweep()

    def start(self, this_round: Round) -> bool:
        """Check whether pruning has nothing left and the period is over."""
        return not self._pruner.more and super().start(this_round)

    def run(self, this_round: Round) -> int:
        """Delete one batch of other rows that have expired; return 0."""
        began = time.monotonic()
        keep_workers_s = max(WORKERS_KEPT_S, 2 * self.term.settings.withdraw_after_s)
        with self.term.leading() as conn:
            if self._pruner.tidy(conn, BATCH, keep_workers_s) >= BATCH:
                self.period.set_due_at(next_batch_at(began))
            self._sweep.work(conn, BATCH)
            limits.delete_obsolete(conn)
            self.term.set_aside.sweep(conn)
        return 0

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until the period is over; infinite while pruning has more to do."""
        return math.inf if self._pruner.more else super().pause_s(this_round)


class DeclarationsDuty(PeriodicDuty):
    """The duty that deletes jobs which no process declares any more.

    It begins when claims are first taken back, or a period from now if that is later.
    """

    name = "declarations"

    def __init__(self, term: Term, reap_from: float) -> None:
        every_s = term.settings.prune_every_s
        super().__init__(term, Periodic(max(reap_from, time.monotonic() + every_s), every_s))

    def run(self, this_round: Round) -> int:
        """Delete these jobs; return how many."""
        return withdraw(self.term.conn, self.term.leading, self.term.settings.withdraw_after_s)

    def give_workers_time(self, seconds: float) -> None:
        """Delete nothing for `seconds`, and at least for a period."""
        self.period.set_due_at(time.monotonic() + max(seconds, self.period.every_s))


class NotificationsDuty(PeriodicDuty):
    """The duty that empties the server's queue of notifications.

    A queue that was full stays full, even if the cause is gone, until a session does this.
    """

    name = "notifications"

    def __init__(self, term: Term) -> None:
        super().__init__(term, Periodic(0.0, CLEAR_EVERY_S, CLEAR_EVERY_S))

    def run(self, this_round: Round) -> int:
        """Empty the queue, and warn if it fills up; return 0."""
        if (usage := leadership.clear_notifications(self.term.conn)) >= NOTIFICATIONS_FULL:
            logger.warning("the notification queue fills up; commits fail when it is full", usage=round(usage, 2))
        return 0
