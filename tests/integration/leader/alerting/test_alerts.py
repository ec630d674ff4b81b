"""Alerts: one for each incident and one for its end, each delivered at least once, even if a sink hangs."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest

from pgsched.config import AlertSettings
from pgsched.db.connection.connect import BY_INDEX
from pgsched.db.connection.connect import connect as connect_to
from pgsched.db.queries.leader import alerts
from pgsched.db.statements import sql
from pgsched.leader.alerting import incidents, sinks
from pgsched.leader.alerting.delivery import AlertDelivery
from pgsched.leader.alerting.incidents import IncidentWatch, LeaderlessWatch
from pgsched.leader.alerting.sinks import AlertSink, NotDelivered
from pgsched.leader.duties.housekeeping import AlertsDuty
from tests.support.db.alerting import check, due_again, incident, job, open_kinds, slot
from tests.support.db.leading import duty_of, lead
from tests.support.db.pruning import count
from tests.support.db.setting import Aside, Open, cut, wait_until_blocked
from tests.support.waiting import wait_until


def only(db: psycopg.Connection) -> dict[str, Any]:
    (one,) = alerts.list_alerts(db, everything=True)
    return one


def test_failures_in_a_row_are_one_incident_until_a_run_succeeds(db: psycopg.Connection) -> None:
    mine = job(db, alert_after_failures=2)
    slot(db, mine, 9, "succeeded")
    slot(db, mine, 8, "dead")
    slot(db, mine, 7, "skipped")
    assert check(db) == []
    last = slot(db, mine, 6, "dead")
    assert check(db) == [("opened", "failures")]
    assert (only(db)["run_id"], only(db)["details"]) == (last, "2 of its runs in a row failed, the last with: broke")
    slot(db, mine, 5, "dead")
    slot(db, mine, 4.5, "succeeded", origin="backfill")
    assert check(db) == [], "it is the same incident, and a backfill is none of the schedule's"
    slot(db, mine, 4, "succeeded")
    assert check(db) == [("closed", "failures")]
    assert (only(db)["recovery"], check(db)) == ("a run succeeded", [])
    slot(db, mine, 3, "dead")
    slot(db, mine, 2, "dead")
    assert check(db) == [("opened", "failures")], "the next incident is another one"


def in_error(db: psycopg.Connection, since: str) -> None:
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET next_run_at = NULL, error = 'schedule: no',"
            " error_at = clock_timestamp() - %s::interval",
            [since],
        )


@pytest.mark.parametrize("how", ["waits", "undecided", "in error", "started late", "missed"])
def test_a_late_slot_is_an_incident_until_a_slot_is_on_time(db: psycopg.Connection, how: str) -> None:
    mine = job(db, max_lateness="10 minutes", overlap="allow")
    slot(db, mine, 9, "succeeded")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() + %s * interval '1 hour'",
                   [-1 if how == "undecided" else 1])  # fmt: skip
    if how == "waits":
        slot(db, mine, 1, "queued")
    elif how == "started late":
        late = slot(db, mine, 1, "succeeded")
        db.execute("UPDATE pgsched.runs SET started_at = started_at + interval '20 minutes' WHERE id = %s", [late])
    elif how == "missed":
        slot(db, mine, 1, "missed", reason="nobody ran")
    elif how == "in error":
        in_error(db, "9 minutes")
        assert check(db) == []
        in_error(db, "11 minutes")
    assert check(db) == [("opened", "lateness")]
    in_error(db, "1 minute")
    assert check(db) == [], "that it cannot be planned any more is no recovery"
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() + interval '1 hour', error = NULL")
    db.execute("UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp() WHERE state = 'queued'")
    slot(db, mine, 0.5, "succeeded")
    assert check(db) == [("closed", "lateness")]


def test_a_long_attempt_is_an_incident_while_it_runs_and_after(db: psycopg.Connection) -> None:
    mine = job(db, max_duration="10 minutes")
    run = slot(db, mine, 1, "running")
    assert check(db) == [("opened", "duration")]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE id = %s", [run])
    assert check(db) == [], "it took too long"
    slot(db, mine, 0.5, "succeeded")
    assert check(db) == [("closed", "duration")]


@pytest.mark.parametrize("paused", [False, True])
def test_silence_of_a_paused_job_is_an_incident_too(db: psycopg.Connection, paused: bool) -> None:
    mine = job(db, expect_every="2 hours")
    if paused:
        db.execute("UPDATE pgsched.jobs SET paused = true, paused_by = 'eve'")
    assert check(db) == [], "it was made a moment ago"
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET created_at = created_at - interval '3 hours'")
    assert check(db) == [("opened", "silence")]
    assert "it has never succeeded" in only(db)["details"]
    assert ("by eve" in only(db)["details"]) is paused
    slot(db, mine, 1, "succeeded")
    assert check(db) == [("closed", "silence")]


def test_a_success_whose_row_is_deleted_counts(db: psycopg.Connection) -> None:
    mine = job(db, expect_every="2 hours")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET created_at = created_at - interval '3 hours'")
    slot(db, mine, 1, "succeeded")
    count(db)
    db.execute("DELETE FROM pgsched.runs")
    assert check(db) == []


def test_no_success_is_expected_of_a_job_that_has_had_its_last_slot(db: psycopg.Connection) -> None:
    job(db, expect_every="2 hours")
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET created_at = created_at - interval '3 hours', next_run_at = NULL")
    assert check(db) == []


def test_incidents_of_a_deleted_or_no_longer_watched_job_end(db: psycopg.Connection) -> None:
    one, two = job(db, "one", alert_after_failures=1), job(db, "two", alert_after_failures=1)
    slot(db, one, 1, "dead")
    slot(db, two, 1, "dead")
    assert check(db) == [("opened", "failures")] * 2
    db.execute("DELETE FROM pgsched.jobs WHERE id = %s", [one])
    db.execute("UPDATE pgsched.jobs SET alert_after_failures = NULL")
    assert check(db) == [("closed", "failures")] * 2
    assert {a["recovery"] for a in alerts.list_alerts(db, everything=True)} == {
        "the job was deleted", "it is watched no more"
    }  # fmt: skip


def test_many_jobs_are_checked_a_few_at_a_time(db: psycopg.Connection) -> None:
    for n in range(5):
        slot(db, job(db, f"j{n}", alert_after_failures=1), 1, "dead")
    after, opened = 0, 0
    for _ in range(3):
        found = alerts.check_watched_jobs(db, after, 2)
        after, opened = found.last_id or 0, opened + len(found.changes)
    assert (after, opened) == (0, 5)
    assert check(db) == []


@pytest.mark.parametrize("guarded", [True, False])
def test_two_processes_that_look_at_once_open_one_incident(
    db: psycopg.Connection, connect: Open, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two are a new leader and the former one. Without the index there are two incidents."""
    if not guarded:
        cut(monkeypatch, "alert_check", "ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING")
        db.execute("DROP INDEX pgsched.alerts_open")
    slot(db, job(db, alert_after_failures=1), 1, "dead")
    mine, yours = connect(autocommit=False), connect(autocommit=False)
    alerts.check_watched_jobs(mine, 0)
    second = Aside(lambda: alerts.check_watched_jobs(yours, 0))
    if guarded:
        wait_until_blocked(db, yours)
    else:
        assert len(second.result().changes) == 1
    mine.commit()
    assert len(second.result().changes) == (0 if guarded else 1)
    yours.commit()
    assert len(alerts.list_alerts(db)) == (1 if guarded else 2)


def test_listeners_are_notified_of_the_opening_and_the_end(db: psycopg.Connection, connect: Open) -> None:
    listener = connect()
    listener.execute("LISTEN pgsched_alerts")
    mine = job(db, alert_after_failures=1)
    slot(db, mine, 2, "dead")
    check(db)
    slot(db, mine, 1, "succeeded")
    check(db)
    heard = [json.loads(note.payload) for note in listener.notifies(timeout=5, stop_after=2)]
    assert [sorted(one) for one in heard] == [["event", "id"]] * 2, "no names: whoever may connect may listen"
    assert [one["event"] for one in heard] == ["opened", "closed"]
    assert heard[0]["id"] == heard[1]["id"]


def test_the_leader_opens_incidents_and_wakes_the_sinks(db: psycopg.Connection) -> None:
    slot(db, job(db, alert_after_failures=1), 1, "dead")
    nudged: list[bool] = []
    loop = lead(db)
    duty_of(loop, AlertsDuty).watch = IncidentWatch(lambda: nudged.append(True))
    loop.run_once()
    assert (open_kinds(db), bool(nudged)) == (["failures"], True)


def test_a_worker_watches_while_there_is_no_leader_and_reports_that(
    db: psycopg.Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "UNLED_S", 0.05)
    monkeypatch.setattr(incidents, "EVERY_S", 0.05)
    slot(db, job(db, alert_after_failures=1), 1, "dead")
    one, two = LeaderlessWatch(dsn, bool), LeaderlessWatch(dsn, bool)
    one.start()
    two.start()
    try:
        wait_until(lambda: open_kinds(db) == ["failures", "no_leader"], what="both incidents")
        loop = lead(db)
        loop.run_once()
        assert open_kinds(db) == ["failures"]
    finally:
        for thread in (one, two):
            thread.stop()
            thread.join(10)
    assert len(alerts.list_alerts(db, everything=True)) == 2


# ---- delivery


def listening(told: list[Any], fails: int = 0, name: str = "webhook here 1") -> AlertSink:
    def tell(message: dict[str, Any]) -> None:
        told.append((message["id"], message["event"]))
        if len(told) <= fails:
            raise NotDelivered("not today")

    return AlertSink(name, tell)


@pytest.mark.long
def test_a_failed_delivery_is_repeated_and_the_end_comes_after_the_opening(db: psycopg.Connection, dsn: str) -> None:
    mine, told = incident(db), []
    mine_too = AlertDelivery(dsn, listening(told, fails=2))
    with connect_to(dsn) as conn:
        assert mine_too.deliver_once(conn) == 1
        assert mine_too.deliver_once(conn) == 0, "not at once"
        slot(db, mine, 0.5, "succeeded")
        check(db)
        due_again(db)
        assert mine_too.deliver_once(conn) == 1
        due_again(db)
        assert (mine_too.deliver_once(conn), mine_too.deliver_once(conn)) == (2, 0)
    stable = told[0][0]
    assert told == [(stable, "opened")] * 3 + [(stable, "closed")]


def test_two_processes_with_the_same_sink_deliver_an_alert_once(db: psycopg.Connection, dsn: str) -> None:
    incident(db)
    told: list[Any] = []
    with connect_to(dsn) as one, connect_to(dsn) as two:
        couriers = [AlertDelivery(dsn, listening(told)), AlertDelivery(dsn, listening(told))]
        threads = [
            threading.Thread(target=c.deliver_once, args=(conn,)) for c, conn in zip(couriers, (one, two), strict=True)
        ]
        [thread.start() for thread in threads]
        [thread.join(20) for thread in threads]
    assert len(told) == 1


def test_a_delivery_of_a_process_that_dies_is_made_by_the_next(db: psycopg.Connection, dsn: str) -> None:
    incident(db)
    told: list[Any] = []
    with connect_to(dsn) as conn:
        alerts.add_deliveries(conn, ["webhook here 1"])
        alerts.take_delivery(conn, ["webhook here 1"])  # by a process that then dies
        assert AlertDelivery(dsn, listening(told)).deliver_once(conn) == 0
        due_again(db)
        assert AlertDelivery(dsn, listening(told)).deliver_once(conn) == 1


def test_a_sink_that_hangs_delays_neither_the_leader_nor_other_sinks(
    db: psycopg.Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "PATIENCE_S", 0.3)
    forever, told = threading.Event(), []
    hung = AlertDelivery(dsn, AlertSink("webhook hangs 1", lambda _: forever.wait() and None))
    well = AlertDelivery(dsn, listening(told))
    for one in (hung, well):
        one.start()
        one.nudge()
    loop = lead(db)
    duty_of(loop, AlertsDuty).watch = IncidentWatch(lambda: [one.nudge() for one in (hung, well)])
    slot(db, job(db, alert_after_failures=1), 1, "dead")
    loop.run_once()
    wait_until(lambda: told, what="the sink that is well")
    wait_until(
        lambda: (
            db.execute("SELECT error FROM pgsched.alert_deliveries WHERE sink = 'webhook hangs 1'").fetchone()
            == ("no answer within 0.3 s",)
        ),
        what="the sink that hangs to be given up for now",
    )
    forever.set()
    for one in (hung, well):
        one.stop()
        one.join(10)


def test_no_secret_is_in_a_sinks_name() -> None:
    found = sinks.configured_sinks(
        AlertSettings(("https://u:secret@hooks.example/T0/secret",), ("/opt/page --key secret",))
    )
    assert [sink.name.rsplit(" ", 1)[0] for sink in found] == ["log", "webhook hooks.example", "command page"]
    assert not any("secret" in sink.name for sink in found)


def test_checking_a_job_does_not_read_its_history(db: psycopg.Connection) -> None:
    mine = job(db, alert_after_failures=3, max_lateness="1 hour", max_duration="1 hour", expect_every="1 day")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, task, state, origin, attempt, scheduled_at, started_at, finished_at)"
        " SELECT %s, 't', 'succeeded', 'schedule', 1, t, t, t FROM generate_series(1, 3000) n,"
        " LATERAL (SELECT clock_timestamp() - n * interval '1 minute' AS t) x",
        [mine],
    )
    db.execute("ANALYZE pgsched.runs")
    for name, value in BY_INDEX.items():
        db.execute(f"SET {name} = {value}".encode())
    plan = db.execute(
        b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql("alert_check"), {"after": 0, "n": 10}
    ).fetchone()
    assert plan is not None
    assert plan[0][0]["Plan"]["Shared Hit Blocks"] + plan[0][0]["Plan"]["Shared Read Blocks"] < 200
