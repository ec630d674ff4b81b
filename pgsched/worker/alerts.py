"""What a process does for alerts: tells its sinks, and while it does not lead, sees whether somebody does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgsched.config import Settings
from pgsched.leader.alerting.delivery import Courier
from pgsched.leader.alerting.incidents import Unled
from pgsched.leader.alerting.sinks import sinks
from pgsched.leader.election import Leader


@contextmanager
def alerting(settings: Settings, leader: Leader, *, stands: bool) -> Iterator[None]:
    """For the time of the block. `stands`: the process is a candidate. Raises InputError for a sink that is none."""
    couriers = [Courier(settings.dsn, sink) for sink in sinks(settings.alerts)]

    def nudge() -> None:
        for courier in couriers:
            courier.nudge()

    leader.nudge = nudge
    unled = Unled(settings.dsn, nudge, stands, lambda: leader.term is not None, leader.unled)
    threads: list[Courier | Unled] = [*couriers, unled]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop()
