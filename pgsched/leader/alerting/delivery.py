"""Telling of alerts, each sink in a thread of its own: one that hangs holds up neither the leader nor the other sinks.

The rule: what is to be told is in the database until a sink has taken it; a process that dies in between leaves it to
the next one that has the same sink.
"""

from __future__ import annotations

import threading
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.queries.leader import alerts
from pgsched.errors import PgschedError
from pgsched.leader.alerting.sinks import Sink, tell

logger = log.get("alerts")
IDLE_S = 30.0  # a connection is kept that long after the last thing to tell
NUDGED_S = 6.0  # and so long after a nudge for nothing: longer than from one to the next where nobody leads
LOOK_S = 2.0
FAILED_S = 1.0  # between two alerts of which the first was not taken


class Courier(threading.Thread):
    """Tells one sink what there is to tell when it is nudged, and goes on until there has been nothing for a while."""

    def __init__(self, dsn: str, sink: Sink) -> None:
        super().__init__(name=f"pgsched-alerts-{sink.name.split()[0]}", daemon=True)
        self._dsn = dsn
        self._sink = sink
        self._nudge = threading.Event()
        self._ending = threading.Event()

    def nudge(self) -> None:
        """There may be something to tell."""
        self._nudge.set()

    def stop(self) -> None:
        """End soon; what is being told is left to the next process."""
        self._ending.set()
        self._nudge.set()

    def run(self) -> None:
        while not self._ending.is_set():
            self._nudge.wait()
            self._nudge.clear()
            try:
                if not self._ending.is_set():
                    with connect(self._dsn, purpose="alerts") as conn:
                        self._deliver(conn)
            except (DatabaseError, PgschedError) as error:  # the next nudge tries again
                logger.warning("alerts could not be told", error=log.redact(str(error).strip()))
            except Exception:  # never silent, and never the end of the process
                logger.error("alerts could not be told", exc_info=True)

    def _deliver(self, conn: Connection[Any]) -> None:
        quiet = IDLE_S - NUDGED_S
        while not self._ending.is_set() and quiet < IDLE_S:
            if self.deliver_once(conn):
                quiet = 0.0
            elif self._nudge.wait(LOOK_S):
                self._nudge.clear()
                quiet = min(quiet, IDLE_S - NUDGED_S)
            else:
                quiet += LOOK_S

    def deliver_once(self, conn: Connection[Any]) -> int:
        """Tell what is due, one after the other; how many there were. Each is taken just before it is told, so that a
        slow sink keeps none from others; behind a failure, which may be that one's own, the next is tried soon."""
        alerts.owe(conn, [self._sink.name])
        count = 0
        while not self._ending.is_set() and (row := alerts.take(conn, [self._sink.name])) is not None:
            count += 1
            error = tell(self._sink, row)
            alerts.told(conn, row, error)
            if error is not None:
                logger.warning("an alert was not told", sink=self._sink.name, alert=row["alert_id"],
                               attempt=row["attempts"], error=error)  # fmt: skip
                self._ending.wait(FAILED_S)
        return count
