"""Defaults of alerts, runs without a job that die, and to which named sinks an alert goes."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.leader import alerts
from pgsched.errors import InputError, PgschedError
from pgsched.services import alerts as services
from tests.support.db.alerting import check, job, open_kinds, slot


def default(db: psycopg.Connection, **values: Any) -> None:
    services.change_defaults(db, values)


def die(db: psycopg.Connection, count: int, minutes_ago: float = 1, **columns: Any) -> None:
    """Add runs without a job that ended dead."""
    given = {"task": "send", "queue": "mail", "error": "no route", **columns}
    names, marks = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    db.execute(
        f"INSERT INTO pgsched.runs (state, started_at, finished_at, {names}) SELECT 'dead', t.at, t.at, {marks}"
        " FROM (SELECT clock_timestamp() - %(ago)s * interval '1 minute' AS at) t, generate_series(1, %(n)s)".encode(),
        {**given, "ago": minutes_ago, "n": count},
    )


def test_a_default_holds_for_each_job_that_does_not_say_it_itself(db: psycopg.Connection) -> None:
    ids = {name: job(db, name, **columns) for name, columns in {
        "plain": {}, "own": {"alert_after_failures": 3}, "off": {"alert_after_failures": 0}}.items()}  # fmt: skip
    for mine in ids.values():
        slot(db, mine, 5, "dead")
        slot(db, mine, 4, "dead")
    assert check(db) == []
    default(db, alert_after_failures=2)
    assert check(db) == [("opened", "failures")]
    assert [one["job"] for one in alerts.list_alerts(db)] == ["plain"]
    slot(db, ids["own"], 3, "dead")
    assert check(db) == [("opened", "failures")]
    default(db, alert_after_failures=None)
    assert check(db) == [("closed", "failures")]
    assert [one["job"] for one in alerts.list_alerts(db)] == ["own"]


@pytest.mark.parametrize("column", ["max_lateness", "max_duration", "expect_every", "finish_by"])
def test_a_job_can_switch_each_of_them_off(db: psycopg.Connection, column: str) -> None:
    on, off = job(db, "on"), job(db, "off", **{column: "0"})
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET created_at = created_at - interval '1 day', next_run_at = now() + interval '1 h'"
        )
    for mine in (on, off):
        run = slot(db, mine, 3, "dead")
        db.execute("UPDATE pgsched.runs SET started_at = started_at + interval '1 h', finished_at = finished_at"
                   " + interval '2 h' WHERE id = %s", [run])  # fmt: skip
    default(db, **{column: "30 minutes"})
    assert [what for what, _ in check(db)] == ["opened"]
    assert [one["job"] for one in alerts.list_alerts(db)] == ["on"]


def test_jobs_are_looked_at_in_parts_by_a_default_too(db: psycopg.Connection) -> None:
    for name in "abc":
        slot(db, job(db, name), 5, "dead")
    default(db, alert_after_failures=1)
    first = alerts.check_watched_jobs(db, 0, 2)
    assert (len(first.changes), first.last_id is None) == (2, False)
    rest = alerts.check_watched_jobs(db, first.last_id or 0, 2)
    assert (len(rest.changes), rest.last_id) == (1, None)


def test_a_job_in_shadow_mode_is_not_watched(db: psycopg.Connection) -> None:
    slot(db, job(db, mode="shadow", alert_after_failures=1), 5, "dead")
    assert check(db) == []


def test_the_look_tells_whether_a_default_is_set(db: psycopg.Connection) -> None:
    job(db)
    assert not alerts.look_for_work(db).watched
    default(db, expect_every="1 day")
    assert alerts.look_for_work(db).watched
    default(db, expect_every=None, dead_runs=3)
    work = alerts.look_for_work(db)
    assert (work.watched, work.dead_runs) == (False, True)


def test_dead_runs_without_a_job_are_an_incident_while_there_are_so_many(db: psycopg.Connection) -> None:
    die(db, 9, minutes_ago=20)
    die(db, 3)
    die(db, 1, task="bill", queue="default", error="ValueError: no")
    slot(db, job(db), 0.01, "dead")
    assert alerts.watch_dead_runs(db) is None
    default(db, dead_runs=5, dead_runs_within="10 minutes")
    assert alerts.watch_dead_runs(db) is None
    die(db, 1, minutes_ago=0, task="bill", queue="default", error="ValueError: no")
    assert alerts.watch_dead_runs(db) == "opened"
    (one,) = alerts.list_alerts(db)
    assert (one["kind"], one["job"]) == ("dead_runs", None)
    assert one["details"].startswith(
        "5 runs without a job died within 00:10:00: 3 of send in queue mail, 2 of bill in queue default; the last, run "
    )
    assert one["details"].endswith(", with: ValueError: no")
    assert alerts.watch_dead_runs(db) is None
    db.execute("UPDATE pgsched.runs SET finished_at = finished_at - interval '1 hour'")
    assert alerts.watch_dead_runs(db) == "closed"
    assert alerts.list_alerts(db, everything=True)[0]["recovery"] == "fewer than 5 died within 00:10:00"


def test_the_runs_of_jobs_hide_no_runs_without_a_job(db: psycopg.Connection) -> None:
    """However many die: more than are read."""
    die(db, 2, minutes_ago=60)
    db.execute(
        "INSERT INTO pgsched.runs (task, state, job_id, scheduled_at, started_at, finished_at)"
        " SELECT 't', 'dead', %s, t.at, t.at, t.at FROM (SELECT clock_timestamp() - n * interval '0.1 s' AS at"
        " FROM generate_series(1, 10001) n) t",
        [job(db)],
    )
    default(db, dead_runs=2, dead_runs_within="24 hours")
    assert alerts.watch_dead_runs(db) == "opened"
    assert alerts.list_alerts(db)[0]["details"].startswith("2 runs without a job died within 24:00:00: 2 of send in")


def test_dead_runs_are_watched_no_more_when_the_default_is_taken_out(db: psycopg.Connection) -> None:
    default(db, dead_runs=1)
    die(db, 1)
    assert alerts.watch_dead_runs(db) == "opened"
    default(db, dead_runs=None)
    assert alerts.look_for_work(db).dead_runs, "until the incident is closed"
    assert alerts.watch_dead_runs(db) == "closed"
    assert not alerts.look_for_work(db).dead_runs


def test_an_alert_goes_to_the_named_sinks_that_its_job_names_and_to_all_others(db: psycopg.Connection) -> None:
    for name, targets in (("a", ["mail"]), ("b", []), ("c", None)):
        slot(db, job(db, name, alert_after_failures=1, alert_to=targets), 5, "dead")
    check(db)
    alerts.add_deliveries(db, ["log", "webhook hooks.example 3f2a9c1b", "apprise mail", "apprise ops"])
    rows = db.execute("SELECT a.job, array_agg(d.sink ORDER BY d.sink) FROM pgsched.alert_deliveries d"
                      " JOIN pgsched.alerts a ON a.id = d.alert_id GROUP BY 1 ORDER BY 1").fetchall()  # fmt: skip
    always = ["log", "webhook hooks.example 3f2a9c1b"]
    assert rows == [("a", ["apprise mail", *always]), ("b", always), ("c", ["apprise mail", "apprise ops", *always])]


def test_the_default_of_the_sinks_holds_for_jobs_without_their_own(db: psycopg.Connection) -> None:
    default(db, alert_to=["ops"], alert_after_failures=1)
    slot(db, job(db, "a"), 5, "dead")
    slot(db, job(db, "b", alert_to=["mail"]), 5, "dead")
    check(db)
    assert {one["job"]: row for one, row in zip(
        alerts.list_alerts(db), [["mail"], ["ops"]], strict=True)} == {"b": ["mail"], "a": ["ops"]}  # fmt: skip
    rows = db.execute("SELECT job, alert_to FROM pgsched.alerts ORDER BY job").fetchall()
    assert rows == [("a", ["ops"]), ("b", ["mail"])]
    assert open_kinds(db) == ["failures", "failures"]


@pytest.mark.parametrize("wrong", ["{Mail}", "{mailto://me@example.com}", '{""}', "{{a},{b}}", "{NULL}"])
def test_rows_hold_only_names_of_sinks(db: psycopg.Connection, wrong: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="alert_to: "):
        job(db, alert_to=wrong)
    with pytest.raises(PgschedError, match="alert_to: "):
        default(db, alert_to=wrong)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://me:x@example.org/", "ping_url: a URL must not contain a user name or password$"),
        (f"https://example.org/{'x' * 8000}", "ping_url: 8020 characters, at most 8000 are allowed$"),
        ("ftp://example.org", "ping_url: a URL must begin with http:// or https://$"),
    ],
)
def test_a_wrong_ping_url_is_refused_in_words_of_its_own(db: psycopg.Connection, url: str, said: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        job(db, ping_url=url)
    assert re.search(said, str(refused.value.diag.message_primary))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "nothing to set"),
        ({"nothing": 1}, "nothing: is not one of"),
        ({"dead_runs": 0}, "dead_runs: 0 is out of range"),
        ({"dead_runs_within": "1 year"}, "dead_runs_within: "),
        ({"max_lateness": "0.5 s"}, "max_lateness: "),
        ({"alert_after_failures": 1001}, "alert_after_failures: 1001 is out of range"),
        ({"finish_by": "soon", "max_lateness": "1 hour"}, "finish_by: invalid input syntax"),
    ],
)
def test_wrong_defaults_are_refused(db: psycopg.Connection, values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        default(db, **values)


def test_a_change_of_the_defaults_is_in_the_audit(db: psycopg.Connection) -> None:
    default(db, finish_by="6 hours")
    rows = db.execute("SELECT action, what, name, change FROM pgsched.audit WHERE what = 'alert'").fetchall()
    assert rows == [("changed", "alert", "everything", {"finish_by": [None, "06:00:00"]})]
