"""Would anybody hear of an alert? A test tells the sinks, and says what came of it."""

from __future__ import annotations

import time
from typing import Any

from pgsched.config import AlertSettings
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports.live import database_now
from pgsched.leader.alerting.sinks import sinks, tell

PATIENCE_S = 30.0
LOOK_S = 0.2
OTHERS_S = 1.5  # each sink's row is made by that sink's own thread


def rehearse(conn: Connection[Any], settings: AlertSettings) -> list[dict[str, Any]]:
    """Tell the sinks of `settings` from here, or, where there are none, have the leader tell its own. What each was
    told: (sink, event, delivered_at, error)."""
    if settings.webhooks or settings.commands:
        return from_here(conn, settings)
    return by_leader(conn)


def from_here(conn: Connection[Any], settings: AlertSettings) -> list[dict[str, Any]]:
    """Both events, without an incident in the database."""
    now = database_now(conn)
    told = []
    for sink in sinks(settings)[1:]:
        for event in ("opened", "closed"):
            given = {"alert_id": 0, "outside_name": None, "event": event, "kind": "test", "job": None, "run_id": None,
                     "details": "a test", "recovery": "it was only a test", "opened_at": now,
                     "closed_at": now}  # fmt: skip
            error = tell(sink, given)
            told.append({"sink": sink.name, "event": event, "error": error, "delivered_at": None if error else now})
    return told


def by_leader(conn: Connection[Any]) -> list[dict[str, Any]]:
    """An incident that is none; what the processes told of it until all was told, or for a while."""
    alert_id = alerts.test(conn, "a test")
    told = until_told(conn, alert_id, "opened")
    alerts.test(conn, "", close=True)
    if told:
        until_told(conn, alert_id, "closed")
    return sorted(told_of(conn, alert_id), key=lambda each: each["event"], reverse=True)


def told_of(conn: Connection[Any], alert_id: int | None) -> list[dict[str, Any]]:
    """What the sinks have been told of an incident."""
    return next((list(one["told"]) for one in alerts.listed(conn, everything=True) if one["id"] == alert_id), [])


def until_told(conn: Connection[Any], alert_id: int | None, event: str) -> bool:
    """Wait until one event has been told, and a little for sinks that are yet to note it; false: nobody tells it."""
    until, seen_at = time.monotonic() + PATIENCE_S, None
    while True:
        told = [each for each in told_of(conn, alert_id) if each["event"] == event]
        if told and all(each["delivered_at"] or each["error"] for each in told):
            seen_at = seen_at or time.monotonic()
        now = time.monotonic()
        if now > until or (seen_at is not None and now > seen_at + OTHERS_S):
            return bool(told)
        time.sleep(LOOK_S)
