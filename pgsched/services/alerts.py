"""Alerts: what is watched by default; and a test, which delivers an alert to the sinks and reports the results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pgsched.config import AlertSettings
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports.live import database_now
from pgsched.errors import InputError
from pgsched.leader.alerting.sinks import configured_sinks, deliver

PATIENCE_S = 30.0
LOOK_S = 0.2
OTHERS_S = 1.5  # time for further sinks: each sink's own thread makes the row of its delivery


def send_test_alert(conn: Connection[Any], settings: AlertSettings) -> list[dict[str, Any]]:
    """Deliver a test alert to the sinks of `settings`, or let the leader deliver it to its own if there are none.

    Returns one row per delivery: (sink, event, delivered_at, error).
    """
    if settings.webhooks or settings.commands or settings.named:
        return deliver_test_from_here(conn, settings)
    return deliver_test_by_leader(conn)


def deliver_test_from_here(conn: Connection[Any], settings: AlertSettings) -> list[dict[str, Any]]:
    """Deliver both events from this process, without an incident in the database."""
    now = database_now(conn)
    deliveries = []
    for sink in configured_sinks(settings)[1:]:
        for event in ("opened", "closed"):
            given = {"alert_id": 0, "outside_name": None, "event": event, "kind": "test", "job": None, "run_id": None,
                     "details": "a test", "recovery": "it was only a test", "opened_at": now,
                     "closed_at": now}  # fmt: skip
            error = deliver(sink, given)
            deliveries.append(
                {"sink": sink.name, "event": event, "error": error, "delivered_at": None if error else now}
            )
    return deliveries


def deliver_test_by_leader(conn: Connection[Any]) -> list[dict[str, Any]]:
    """Open and close a test incident; return its deliveries, once all are done or PATIENCE_S is over."""
    alert_id = alerts.set_test_alert(conn, "a test")
    deliveries = wait_for_deliveries(conn, alert_id, "opened")
    alerts.set_test_alert(conn, "", close=True)
    if deliveries:
        wait_for_deliveries(conn, alert_id, "closed")
    return sorted(list_deliveries(conn, alert_id), key=lambda each: each["event"], reverse=True)


def list_deliveries(conn: Connection[Any], alert_id: int | None) -> list[dict[str, Any]]:
    """Return the deliveries of one incident."""
    return next((list(one["told"]) for one in alerts.list_alerts(conn, everything=True) if one["id"] == alert_id), [])


def wait_for_deliveries(conn: Connection[Any], alert_id: int | None, event: str) -> bool:
    """Wait until one event has been delivered by all sinks; return False if no process delivers it.

    Sinks that have not noted the event yet get a little more time.
    """
    until, seen_at = time.monotonic() + PATIENCE_S, None
    while True:
        deliveries = [each for each in list_deliveries(conn, alert_id) if each["event"] == event]
        if deliveries and all(each["delivered_at"] or each["error"] for each in deliveries):
            seen_at = seen_at or time.monotonic()
        now = time.monotonic()
        if now > until or (seen_at is not None and now > seen_at + OTHERS_S):
            return bool(deliveries)
        time.sleep(LOOK_S)


def defaults(conn: Connection[Any]) -> Row:
    """Return what is watched where a job does not say it itself."""
    return alerts.show_defaults(conn)


def change_defaults(conn: Connection[Any], values: Mapping[str, Any]) -> Row:
    """Change what is watched where a job does not say it itself; return all of it. Raises InputError.

    `values`: by column; None: not watched.
    """
    if not values:
        raise InputError("nothing to set: give at least one field")
    for name in values:
        if name not in alerts.DEFAULTS:
            raise InputError(f"{name}: is not one of {', '.join(alerts.DEFAULTS)}", name)
    return alerts.change_defaults(conn, values)
