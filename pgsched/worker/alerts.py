"""Alerts of a process: delivers them to sinks and, while the process does not lead, checks that another one does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgsched.config import Settings
from pgsched.leader.alerting.delivery import AlertDelivery
from pgsched.leader.alerting.incidents import LeaderlessWatch
from pgsched.leader.alerting.sinks import configured_sinks
from pgsched.leader.election import Leader


@contextmanager
def alerting(settings: Settings, leader: Leader, *, stands: bool) -> Iterator[None]:
    """Run the delivery of alerts in this block. Raises InputError for an invalid sink.

    `stands`: the process is a candidate for leader.
    """
    couriers = [AlertDelivery(settings.dsn, sink) for sink in configured_sinks(settings.alerts)]

    def nudge() -> None:
        for courier in couriers:
            courier.nudge()

    leader.on_alerts = nudge
    unled = LeaderlessWatch(settings.dsn, nudge, stands, lambda: leader.term is not None, leader.on_no_leader)
    threads: list[AlertDelivery | LeaderlessWatch] = [*couriers, unled]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop()
