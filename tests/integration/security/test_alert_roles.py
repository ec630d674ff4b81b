"""Alerts: each role can do its part and no more. A role that can only connect learns no text of an error."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.leader import alerts
from tests.support.db.alerting import check, job, slot
from tests.support.logins import Logins


def test_a_role_that_can_only_connect_learns_only_that_an_alert_exists(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    """LISTEN needs no grant."""
    nobody = logins.connect("nobody")
    nobody.execute("LISTEN pgsched_alerts")
    slot(db, job(db, alert_after_failures=1), 1, "dead", error="ValueError: no account 4711 of Eve's")
    check(db)
    (heard,) = nobody.notifies(timeout=10, stop_after=1)
    told = json.loads(heard.payload)
    assert "Eve" not in heard.payload
    assert told == {"id": told["id"], "event": "opened"}
    assert logins.connect("eye").execute(
        "SELECT details FROM pgsched.alerts WHERE id = %s", [told["id"]]
    ).fetchone() == ("1 of its runs in a row failed, the last with: ValueError: no account 4711 of Eve's",)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        nobody.execute("SELECT FROM pgsched.alerts")


@pytest.mark.parametrize("who", ["worker", "leader"])
def test_workers_and_leaders_can_check_jobs_and_deliver_alerts(
    logins: Logins, db: psycopg.Connection[Any], who: str
) -> None:
    mine = job(db, alert_after_failures=1, max_lateness="1 minute", max_duration="1 minute", expect_every="1 minute")
    slot(db, mine, 1, "dead")
    slot(db, mine, 0.5, "running")
    conn = logins.connect(who)
    assert alerts.look_for_work(conn).watched
    assert alerts.open_no_leader(conn, 15)
    assert {row["kind"] for row in alerts.check_watched_jobs(conn, 0).changes} == {"failures", "duration"}
    alerts.add_deliveries(conn, ["log"])
    row = alerts.take_delivery(conn, ["log"])
    assert row is not None
    alerts.record_delivery(conn, row, None)
    db.execute("DELETE FROM pgsched.jobs")
    assert {row["what"] for row in alerts.check_watched_jobs(conn, 0).changes} == {"closed"}
    if who == "leader":
        alerts.close_no_leader(conn)
    assert len(alerts.list_alerts(conn)) == (0 if who == "leader" else 1)


def test_no_other_role_can_change_alerts_or_deliveries(logins: Logins) -> None:
    for who in ("alice", "ops", "eye"):
        conn = logins.connect(who)
        for statement in ("UPDATE pgsched.alert_deliveries SET delivered_at = now()", "DELETE FROM pgsched.alerts",
                          "UPDATE pgsched.alerts SET details = ''"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())
    ops = logins.connect("ops")
    assert alerts.set_test_alert(ops, "a test") == alerts.set_test_alert(ops, "", close=True)
