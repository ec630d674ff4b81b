"""Telling of alerts: what one sink or one incident does to the others, and how long it is tried."""

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
    return alerts.has_alert_work(db)[1]


def grow_old(db: psycopg.Connection, hours: int) -> None:
    """As if everything had happened so long ago."""
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


def test_an_incident_that_a_sink_refuses_keeps_no_other_from_it(db: psycopg.Connection, dsn: str) -> None:
    incidents(db, 3)
    first, heard = min(one["id"] for one in alerts.list_alerts(db)), set()

    def tell(message: dict[str, Any]) -> None:
        if message["id"].split("-")[-2] == str(first):  # of uuid, number and instant
            raise NotDelivered("it answered 400")
        heard.add(message["id"])

    with connect_to(dsn) as conn:
        for _ in range(3):
            AlertDelivery(dsn, AlertSink(NAME, tell)).deliver_once(conn)
            due_again(db)
    assert len(heard) == 2


def test_a_slow_sink_leaves_what_it_is_not_told_yet_to_others(db: psycopg.Connection, dsn: str) -> None:
    """Taken all at once, the last would be taken again by others before its turn has come, and told twice."""
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


def test_an_incident_that_is_open_is_told_however_long_the_sink_was_away(db: psycopg.Connection, dsn: str) -> None:
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


def test_the_end_is_told_after_hours_in_which_nothing_ran(db: psycopg.Connection, dsn: str) -> None:
    """The leader closed it and died before anybody was told; so did all the others."""
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


def test_what_nobody_can_tell_any_more_nudges_nobody(db: psycopg.Connection, dsn: str) -> None:
    """The webhook was taken out of the configuration; another is left."""
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
        alerts.add_deliveries(conn, ["webhook gone 1"])  # it is back
        assert alerts.take_delivery(conn, ["webhook gone 1"]) is not None
        slot(db, mine, 0.5, "succeeded")
        check(db)
        AlertDelivery(dsn, quiet).deliver_once(conn)
        grow_old(db, 50)
        AlertDelivery(dsn, quiet).deliver_once(conn)
        assert not pending(db)
        alerts.add_deliveries(conn, ["webhook gone 1"])
        assert alerts.take_delivery(conn, ["webhook gone 1"]) is None, "it was over days ago"


def test_a_new_leader_nudges_its_sinks_once(db: psycopg.Connection) -> None:
    """Whether they were told is not seen from outside."""
    nudged: list[bool] = []
    watch = IncidentWatch(lambda: nudged.append(True))
    for _ in range(3):
        watch.look(db, begin(db), leads=True)
    assert nudged == [True]


def test_a_candidate_that_cannot_lead_says_that_nobody_does(
    db: psycopg.Connection, dsn: str, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the lock does nothing with it: no process would have told of it, as all were candidates."""
    monkeypatch.setattr(incident_duty, "UNLED_S", 0.1)
    monkeypatch.setattr(incident_duty, "CANDIDATE_S", 0.1)
    monkeypatch.setattr(incident_duty, "EVERY_S", 0.1)
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


def test_a_look_that_takes_long_is_at_fewer_jobs(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs whose newest slots were all skipped take long to look at; the leader has slots to decide meanwhile."""
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
