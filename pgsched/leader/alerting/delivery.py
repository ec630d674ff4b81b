"""Deliver alerts, each sink in a thread of its own: one that hangs delays neither the leader nor other sinks.

Invariant: an alert stays in the database until a sink has taken it. If the process dies in between, the next process
with the same sink delivers it.
"""

from __future__ import annotations

import threading
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.queries.leader import alerts
from pgsched.errors import PgschedError
from pgsched.leader.alerting.sinks import AlertSink, deliver

logger = log.get("alerts")
IDLE_S = 30.0  # a connection is kept for this long after the last delivery
IDLE_AFTER_NUDGE_S = 6.0  # the same after a nudge in vain: longer than between two nudges while no process leads
LOOK_S = 2.0  # pause between two looks for alerts
FAILED_S = 1.0  # pause after an alert that the sink did not take


class AlertDelivery(threading.Thread):
    """A thread that delivers alerts to one sink when it is nudged, until there was nothing to deliver for a while."""

    def __init__(self, dsn: str, sink: AlertSink) -> None:
        super().__init__(name=f"pgsched-alerts-{sink.name.split()[0]}", daemon=True)
        self._dsn = dsn
        self._sink = sink
        self._nudge = threading.Event()
        self._ending = threading.Event()

    def nudge(self) -> None:
        """Wake the thread: there may be something to deliver."""
        self._nudge.set()

    def stop(self) -> None:
        """End soon; a delivery that is under way is left to the next process."""
        self._ending.set()
        self._nudge.set()

    def run(self) -> None:
        """Wait for nudges, and deliver."""
        while not self._ending.is_set():
            self._nudge.wait()
            self._nudge.clear()
            try:
                if not self._ending.is_set():
                    with connect(self._dsn, purpose="alerts") as conn:
                        self._deliver(conn)
            except (DatabaseError, PgschedError) as error:  # the next nudge tries again
                logger.warning("alerts could not be delivered", error=log.redact(str(error).strip()))
            except Exception:  # log it, and never end the process
                logger.error("alerts could not be delivered", exc_info=True)

    def _deliver(self, conn: Connection[Any]) -> None:
        """Deliver alerts until there was nothing to deliver for a while."""
        quiet = IDLE_S - IDLE_AFTER_NUDGE_S
        while not self._ending.is_set() and quiet < IDLE_S:
            if self.deliver_once(conn):
                quiet = 0.0
            elif self._nudge.wait(LOOK_S):
                self._nudge.clear()
                quiet = min(quiet, IDLE_S - IDLE_AFTER_NUDGE_S)
            else:
                quiet += LOOK_S

    def deliver_once(self, conn: Connection[Any]) -> int:
        """Deliver the alerts that are due, one after the other; return how many there were.

        Each is taken just before its delivery, so that a slow sink keeps no alert from other processes. After a
        failure, which may concern that alert alone, the next alert is tried soon.
        """
        alerts.add_deliveries(conn, [self._sink.name])
        count = 0
        while not self._ending.is_set() and (row := alerts.take_delivery(conn, [self._sink.name])) is not None:
            count += 1
            error = deliver(self._sink, row)
            alerts.record_delivery(conn, row, error)
            if error is not None:
                logger.warning("an alert was not delivered", sink=self._sink.name, alert=row["alert_id"],
                               attempt=row["attempts"], error=error)  # fmt: skip
                self._ending.wait(FAILED_S)
        return count
