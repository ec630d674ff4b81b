"""Delivery of alerts: one sink or incident does not hold up others, and a delivery is tried for as long as it helps."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings, Settings
from pgsched.db.connection.connect import connect as connect_to
from pgsched.db.queries.leader import alerts, leadership
from pgsched.leader.alerting import delivery
from pgsched.leader.alerting import incidents as incident_duty
from pgsched.leader.alerting.delivery import AlertDelivery
from pgsched.leader.alerting.incidents import IncidentWatch
from pgsched.leader.alerting.sinks import AlertSink, NotDelivered
from pgsched.leader.election import Leader
from pgsched.worker.alerts import alerting
from tests.support.db.alerting import check, due_again, incident, job, open_kinds, slot
from tests.support.db.rolling import begin
from tests.support.db.setting import Aside, Open
from tests.support.waiting import wait_until

NAME = "webhook here 1"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FAILED_S", 0.0)


def incidents(db: psycopg.Connection, n: int) -> None:
    for number in range(n):
        slot(db, job(db, f"j{number}", alert_after_failures=1), 1, "dead")
    check(db)


def pending(db: psycopg.Connection) -> bool:
    return alerts.look_for_work(db).pending


def grow_old(db: psycopg.Connection, hours: int) -> None:
    """Move all alerts and deliveries this many hours into the past."""
    db.execute(
        "UPDATE pgsched.alerts SET opened_at = opened_at - make_interval(hours => %(h)s),"
        " closed_at = closed_at - make_interval(hours => %(h)s)",
        {"h": hours},
    )
    db.execute(
        "UPDATE pgsched.alert_deliveries SET next_at = next_at - make_interval(hours => %(h)s),"
        " delivered_at = delivered_at - make_interval(hours => %(h)s)",
        {"h": hours},
    )


def test_an_incident_that_a_sink_refuses_does_not_block_the_others(db: psycopg.Connection, dsn: str) -> None:
    incidents(db, 3)
    first, heard = min(one["id"] for one in alerts.list_alerts(db)), set()

    def tell(message: dict[str, Any]) -> None:
        if message["id"].split("-")[-2] == str(first):  # the id is made of a uuid, the number and an instant
            raise NotDelivered("it answered 400")
        heard.add(message["id"])

    with connect_to(dsn) as conn:
        for _ in range(3):
            AlertDelivery(dsn, AlertSink(NAME, tell)).deliver_once(conn)
            due_again(db)
    assert len(heard) == 2


def test_a_slow_sink_leaves_its_next_deliveries_to_other_processes(db: psycopg.Connection, dsn: str) -> None:
    """If a process took all deliveries at once, others would take the last before its turn, and deliver it twice."""
    incidents(db, 2)
    goes_on, heard = threading.Event(), []

    def slow(message: dict[str, Any]) -> None:
        heard.append(message["job"])
        assert goes_on.wait(30)

    with connect_to(dsn) as one, connect_to(dsn) as two:
        mine = Aside(lambda: AlertDelivery(dsn, AlertSink(NAME, slow)).deliver_once(one))
        wait_until(lambda: heard, what="the slow one to begin")
        assert AlertDelivery(dsn, AlertSink(NAME, lambda message: heard.append(message["job"]))).deliver_once(two) == 1
        goes_on.set()
        assert mine.result() == 1
    assert sorted(heard) == ["j0", "j1"]


def test_an_open_incident_is_delivered_however_long_the_sink_was_away(db: psycopg.Connection, dsn: str) -> None:
    mine, heard = incident(db), []

    def tell(message: dict[str, Any]) -> None:
        heard.append(message["event"])
        if len(heard) == 1:
            raise NotDelivered("not today")

    with connect_to(dsn) as conn:
        assert AlertDelivery(dsn, AlertSink(NAME, tell)).deliver_once(conn) == 1
        grow_old(db, 48)
        assert AlertDelivery(dsn, AlertSink(NAME, tell)).deliver_once(conn) == 1
        slot(db, mine, 0.5, "succeeded")
        check(db)
        assert AlertDelivery(dsn, AlertSink(NAME, tell)).deliver_once(conn) == 1
    assert heard == ["opened", "opened", "closed"]


def test_the_end_is_delivered_after_hours_without_any_process(db: psycopg.Connection, dsn: str) -> None:
    """The leader closed the incident and died before a sink was informed, and so did all other processes."""
    mine, heard = incident(db), []
    both = [AlertSink(NAME, lambda message: heard.append(message["event"])), AlertSink("log", lambda _: None)]
    with connect_to(dsn) as conn:
        for sink in both:
            AlertDelivery(dsn, sink).deliver_once(conn)
        slot(db, mine, 0.5, "succeeded")
        check(db)
        grow_old(db, 3)
        assert pending(db)
        AlertDelivery(dsn, both[0]).deliver_once(conn)
        AlertDelivery(dsn, AlertSink("webhook new 2", heard.append)).deliver_once(conn)
    assert heard == ["opened", "closed"], "who was not told of the beginning hears nothing of the end of long ago"


def test_deliveries_of_a_removed_sink_wake_no_sink(db: psycopg.Connection, dsn: str) -> None:
    """The webhook was taken out of the configuration; another sink is left."""
    mine = incident(db)
    quiet = AlertSink("log", lambda _: None)
    with connect_to(dsn) as conn:
        alerts.add_deliveries(conn, ["webhook gone 1"])
        AlertDelivery(dsn, quiet).deliver_once(conn)
        assert pending(db)
        grow_old(db, 2)
        AlertDelivery(dsn, quiet).deliver_once(conn)
        assert not pending(db)
        assert alerts.take_delivery(conn, ["webhook gone 1"]) is None
        alerts.add_deliveries(conn, ["webhook gone 1"])  # the webhook is back
        assert alerts.take_delivery(conn, ["webhook gone 1"]) is not None
        slot(db, mine, 0.5, "succeeded")
        check(db)
        AlertDelivery(dsn, quiet).deliver_once(conn)
        grow_old(db, 50)
        AlertDelivery(dsn, quiet).deliver_once(conn)
        assert not pending(db)
        alerts.add_deliveries(conn, ["webhook gone 1"])
        assert alerts.take_delivery(conn, ["webhook gone 1"]) is None, "it was over days ago"


def test_a_new_leader_wakes_its_sinks_once(db: psycopg.Connection) -> None:
    """The database does not show which alerts the sinks of this process have missed."""
    nudged: list[bool] = []
    watch = IncidentWatch(lambda: nudged.append(True))
    for _ in range(3):
        watch.look(db, begin(db), leads=True)
    assert nudged == [True]


def test_a_candidate_that_cannot_lead_reports_that_there_is_no_leader(
    db: psycopg.Connection, dsn: str, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session has the lock and does not lead. All processes are candidates, so one must report this."""
    monkeypatch.setattr(incident_duty, "UNLED_S", 0.1)
    monkeypatch.setattr(incident_duty, "CANDIDATE_S", 0.1)
    monkeypatch.setattr(incident_duty, "EVERY_S", 0.1)
    monkeypatch.setattr(leadership, "is_lock_contested", lambda *_: False)  # or it leads in spite of that session
    holder = connect()
    assert leadership.try_lead(holder)
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1), "test")
    slot(db, job(db, alert_after_failures=1), 1, "dead")
    with alerting(Settings(dsn), leader, stands=True):
        thread = threading.Thread(target=leader.run, daemon=True)
        thread.start()
        wait_until(lambda: open_kinds(db) == ["failures", "no_leader"], timeout=30, what="both incidents")
        holder.close()
        wait_until(lambda: open_kinds(db) == ["failures"], timeout=30, what="the candidate to lead, and to say so")
        leader.stop()
        thread.join(20)


def test_after_a_slow_look_the_next_looks_check_fewer_jobs(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs whose newest slots were all skipped take long to check, and the leader has slots to decide meanwhile."""
    for n in range(30):
        job(db, f"j{n}", alert_after_failures=1)
    monkeypatch.setattr(alerts, "JOBS", 20)
    now, asked = [0.0], []
    before = alerts.check_watched_jobs

    def check_slowly(conn: Any, after: int, n: int) -> alerts.CheckResult:
        now[0] += 0.1 * n
        asked.append(n)
        return before(conn, after, n)

    monkeypatch.setattr(alerts, "check_watched_jobs", check_slowly)
    monkeypatch.setattr(incident_duty, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = IncidentWatch()
    while watch.look(db, begin(db), leads=True) == 0.0:
        pass
    assert (asked[0], max(asked[1:])) == (20, 2), "after one that took two seconds each takes a fifth of one"
    assert sum(asked) >= 30
    monkeypatch.setattr(alerts, "check_watched_jobs", lambda conn, after, n: asked.append(n) or before(conn, after, n))
    for _ in range(40):
        watch.look(db, begin(db), leads=True)
    assert asked[-1] == 20, "and more again when it is quick"
