"""Jobs in mode shadow: their slots are decided and recorded, nothing runs, and other jobs do not notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from pgsched.app.declarations import JobDeclaration
from pgsched.core.schedule.preview import preview_job
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.jobs.declarations import declare
from pgsched.db.queries.leader import ticks
from pgsched.leader.dependents import decide_dependencies
from pgsched.leader.ticker import tick
from pgsched.services.jobs.explain import explain_slot
from pgsched.services.status import read_status
from tests.support.db import alerting, passing
from tests.support.db.overlapping import job_with_a_run, newer, ticked
from tests.support.db.passing import add, keep_next_slots, lead, pass_time
from tests.support.db.setting import add_jobs, put_back, row_of

SHADOW = ("skipped", "shadow")


def found(db: psycopg.Connection) -> list[tuple[str, str | None, int | None]]:
    """Return (state, reason, number of slots) of all rows, the oldest first."""
    return [(run["state"], run["reason"], run["covers_count"]) for run in passing.runs(db)]


@pytest.mark.parametrize("overlap", ["allow", "skip", "buffer_all", "replace", "terminate"])
def test_a_slot_is_recorded_and_meets_no_other_run(db: psycopg.Connection, overlap: str) -> None:
    old = job_with_a_run(db, "running", overlap=overlap, mode="shadow")
    assert ticked(db, 3) == [SHADOW] * 3
    row = row_of(db, old)
    assert (row["state"], row["cancel_requested_at"]) == ("running", None)
    assert db.execute("SELECT run_count FROM pgsched.jobs").fetchone() == (0,)


def test_jobs_that_differ_in_their_mode_alone_are_decided_apart(db: psycopg.Connection) -> None:
    add_jobs(db, 4, 0, catch_up="all")
    db.execute("UPDATE pgsched.jobs SET mode = 'shadow' WHERE name IN ('j1', 'j3')")
    assert sorted(ticked(db)) == [("queued", None)] * 2 + [SHADOW] * 2


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        ("latest", [("shadow", 3)]),
        ("skip", [("shadow: would be missed: late, and the catch-up policy is skip", 3)]),
        ("all", [("shadow", None)] * 3),
    ],
)
def test_late_slots_say_what_catch_up_decided(
    db: psycopg.Connection, policy: str, reasons: list[tuple[str, int | None]]
) -> None:
    add(db, schedule="@every 1h", catch_up=policy, mode="shadow")
    lead(db)
    pass_time(db, 3.5 * 3600)
    lead(db)
    assert found(db) == [("skipped", reason, count) for reason, count in reasons]


def test_an_excluded_date_stays_one(db: psycopg.Connection) -> None:
    row = add(db, schedule="@every 1h", mode="shadow")
    dates = "'2020-01-01', '2090-01-01'"
    db.execute(f"INSERT INTO pgsched.job_calendars (job_id, from_date, until_date) VALUES (%s, {dates})", [row["id"]])
    pass_time(db, 1.5 * 3600)
    lead(db)
    assert found(db) == [("skipped", "excluded dates 2020-01-01 to 2090-01-01", 1)]


def test_a_job_that_runs_once_has_its_slot_recorded(db: psycopg.Connection) -> None:
    add(db, mode="shadow")
    lead(db)
    assert found(db) == [("skipped", "shadow", None)]
    assert jobs.show_job(db, "a")["next_run_at"] is None


def test_a_delay_after_runs_counts_from_the_slots(db: psycopg.Connection) -> None:
    add(db, schedule="@after 10m", mode="shadow")
    for _ in range(3):
        pass_time(db, 601)
        with db.transaction():
            db.execute("SET LOCAL session_replication_role = replica")
            db.execute("UPDATE pgsched.runs SET finished_at = finished_at - interval '601 s'")
        lead(db)
    assert found(db) == [("skipped", "shadow", None)] * 3


# ---- the way there and back


def test_slots_up_to_the_end_of_the_mode_stay_skipped(db: psycopg.Connection) -> None:
    """The leader was away: catch-up must not run a slot that the other scheduler has run."""
    add(db, schedule="@every 1h", mode="shadow")
    lead(db)
    pass_time(db, 2.5 * 3600)
    jobs.set_mode(db, "a", "run")
    lead(db)
    assert found(db) == [("skipped", "shadow", 2)]
    pass_time(db, 3600)
    lead(db)
    assert [run["state"] for run in passing.runs(db)] == ["skipped", "queued"]


def test_without_passing_slots_over_catch_up_would_run_one(db: psycopg.Connection) -> None:
    db.execute(
        "CREATE OR REPLACE FUNCTION pgsched.leave_shadow(j pgsched.jobs, moment timestamptz) RETURNS pgsched.jobs"
        " LANGUAGE sql AS 'SELECT j'"
    )
    add(db, schedule="@every 1h", mode="shadow")
    lead(db)
    pass_time(db, 2.5 * 3600)
    jobs.set_mode(db, "a", "run")
    lead(db)
    assert [run["state"] for run in passing.runs(db)] == ["queued"]


def test_a_slot_of_a_job_that_runs_once_is_not_caught_up(db: psycopg.Connection) -> None:
    add(db, mode="shadow")
    pass_time(db, 60)
    jobs.set_mode(db, "a", "run")
    lead(db)
    assert found(db) == [("skipped", "shadow", None)]
    assert jobs.show_job(db, "a")["next_run_at"] is None


def test_the_mode_holds_for_slots_that_are_due_already_and_leaves_runs_alone(db: psycopg.Connection) -> None:
    add_jobs(db, 1, 0, catch_up="all")
    assert ticked(db) == [("queued", None)]
    put_back(db, 2)
    db.execute("UPDATE pgsched.jobs SET mode = 'shadow'")
    with db.transaction():
        tick(db, 100)
    assert sorted(newer(db)) == [("queued", None), SHADOW, SHADOW]


def test_each_change_is_in_the_audit(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h")
    jobs.set_mode(db, "a", "shadow")
    jobs.set_mode(db, "a", "run")
    changes = db.execute(
        "SELECT action, change -> 'mode' FROM pgsched.audit WHERE change ? 'mode' ORDER BY id"
    ).fetchall()
    assert changes[-2:] == [("changed", ["run", "shadow"]), ("changed", ["shadow", "run"])]


def test_code_that_declares_no_mode_leaves_it_to_operators(db: psycopg.Connection) -> None:
    plain = JobDeclaration("a", "t", "@daily")
    declare(db, [plain], "shop")
    jobs.set_mode(db, "a", "shadow")
    assert declare(db, [plain], "shop") == {"a": "unchanged"}
    assert jobs.show_job(db, "a")["mode"] == "shadow"
    assert declare(db, [replace(plain, policies={"mode": "run"})], "shop") == {"a": "updated"}


def test_a_person_may_still_run_it(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h", mode="shadow")
    run_id = jobs.trigger(db, "a")
    assert row_of(db, run_id)["state"] == "queued"


# ---- other jobs


def after(db: psycopg.Connection, name: str, *before: str, mode: str = "run") -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, schedule, task, overlap, catch_up, mode, after_jobs)"
        " SELECT %s, '@every 1s', 't', 'allow', 'all', %s, array_agg(id) FROM pgsched.jobs WHERE name = ANY (%s)",
        [name, mode, list(before)],
    )


def decided(db: psycopg.Connection) -> None:
    for _ in range(3):
        with db.transaction():
            tick(db, 5000)
            decide_dependencies(db, 5000)
            ticks.admit(db, 5000)


def outcome(db: psycopg.Connection, name: str) -> list[tuple[str, str | None]]:
    return db.execute(
        "SELECT r.state, r.reason FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = %s", [name]
    ).fetchall()


def test_no_slot_waits_for_a_job_in_mode_shadow(db: psycopg.Connection) -> None:
    after(db, "load", mode="shadow")
    after(db, "check")
    after(db, "report", "load")
    after(db, "mail", "load", "check")
    put_back(db, 1)
    decided(db)
    assert outcome(db, "load") == [SHADOW]
    assert outcome(db, "report") == [("queued", None)]
    assert outcome(db, "mail") == [("waiting", None)]
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE job_id ="
               " (SELECT id FROM pgsched.jobs WHERE name = 'check')")  # fmt: skip
    decided(db)
    assert outcome(db, "mail") == [("queued", None)]


def test_a_run_that_a_person_made_of_the_same_slot_is_waited_for(db: psycopg.Connection) -> None:
    after(db, "load", mode="shadow")
    after(db, "report", "load")
    put_back(db, 1)
    with db.transaction():
        tick(db, 100)
        db.execute(
            "UPDATE pgsched.runs SET state = 'queued', finished_at = NULL, reason = NULL WHERE reason = 'shadow'"
        )
    decided(db)
    assert outcome(db, "report") == [("waiting", None)]


def test_slots_of_the_time_before_the_cut_over_are_not_waited_for_after_it(db: psycopg.Connection) -> None:
    after(db, "load", mode="shadow")
    after(db, "report", "load")
    put_back(db, 1)
    with db.transaction():
        tick(db, 100)
    jobs.set_mode(db, "load", "run")
    decided(db)
    assert outcome(db, "report") == [("queued", None)]


def test_alerts_are_silent_and_end(db: psycopg.Connection) -> None:
    job_id = alerting.job(db, max_lateness="10 minutes", alert_after_failures=1, expect_every="1 hour")
    alerting.slot(db, job_id, 3, "dead")
    alerting.check(db)
    assert alerting.open_kinds(db) == ["failures"]
    jobs.set_mode(db, "j", "shadow")
    alerting.check(db)
    assert alerting.open_kinds(db) == []
    assert alerting.check(db) == []


# ---- every door


def test_readers_show_the_mode(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h", mode="shadow")
    lead(db)
    keep_next_slots(db)
    assert [(row["state"], row["mode"]) for row in jobs.list_jobs(db, state="shadow")] == [("shadow", "shadow")]
    assert db.execute("SELECT state, next_slot FROM pgsched.job_status()").fetchall() == [("shadow", None)]
    assert db.execute("SELECT DISTINCT note FROM pgsched.preview('a')").fetchall() == [("it will be skipped: shadow",)]
    shown = preview_job(jobs.show_job(db, "a"), 2)
    assert [fire.excluded for fire in shown.fires] == ["shadow"] * 2
    assert shown.notes == ("in mode shadow: its slots are recorded as skipped, and nothing runs",)
    status = read_status(db)
    assert (status.jobs.shadow, status.next_fires) == (1, [])


def test_readers_show_the_mode_beside_what_a_calendar_does(db: psycopg.Connection) -> None:
    nominal = (datetime.now(UTC) + timedelta(days=40)).replace(hour=9, minute=0, second=0, microsecond=0)
    slot = nominal + timedelta(days=1)
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('office')")
    db.execute("INSERT INTO pgsched.calendar_times (calendar, from_date) VALUES ('office', %s)", [nominal.date()])
    add(db, schedule=f"0 9 {nominal.day} {nominal.month} *", mode="shadow", calendar="office",
        on_excluded="next_business_day")  # fmt: skip
    lead(db)
    keep_next_slots(db)
    (fire,) = preview_job(jobs.show_planned_job(db, "a"), 1).fires
    assert (fire.at, fire.excluded, fire.starts_at, fire.nominal) == (slot, "shadow", None, nominal)
    assert fire.remarks == (f"moved from {nominal:%a %Y-%m-%d %H:%M}",)
    shown = db.execute("SELECT slot, note FROM pgsched.preview('a', 1)").fetchone()
    assert shown is not None and shown[0] == slot
    assert shown[1].startswith("it will be skipped: shadow; the schedule has it at ")
    assert db.execute("SELECT state FROM pgsched.job_status()").fetchone() == ("shadow",)
    said = explain_slot(db, "a", nominal.isoformat())
    assert (said.slot, said.details["held_up_by"]) == (slot, ["no_leader", "shadow"])
    assert "is excluded by calendar office" in said.text and "it will be skipped: shadow" in said.text


def test_the_row_of_a_slot_that_a_calendar_moves_says_from_where(db: psycopg.Connection) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    nominal = today - timedelta(days=1)
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('office')")
    db.execute("INSERT INTO pgsched.calendar_times (calendar, from_date) VALUES ('office', %s)", [nominal.date()])
    add(db, schedule=f"0 0 {nominal.day} {nominal.month} *", mode="shadow", calendar="office",
        on_excluded="next_business_day")  # fmt: skip
    pass_time(db, 3 * 86_400)
    lead(db)
    (run,) = passing.runs(db)
    assert (run["state"], run["scheduled_at"], run["nominal_at"]) == ("skipped", today, nominal)
    moved = f"A calendar moved it there from {nominal:%Y-%m-%d} 00:00:00 UTC"
    assert moved in explain_slot(db, "a", today.isoformat()).text
    (in_sql,) = db.execute("SELECT pgsched.explain('a', %s)", [today]).fetchone() or ("",)
    assert moved in in_sql


def test_explain_says_it_of_slots_to_come_and_of_rows(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h", mode="shadow")
    lead(db)
    keep_next_slots(db)
    said = explain_slot(db, "a")
    assert (said.answer, said.details) == ("future", {"held_up_by": ["no_leader", "shadow"]})
    assert "it will be skipped: shadow" in said.text
    (in_sql,) = db.execute("SELECT pgsched.explain('a')").fetchone() or ("",)
    assert "it will be skipped: shadow" in in_sql
    pass_time(db, 1.5 * 3600)
    lead(db)
    slot = jobs.recent_runs(db, jobs.show_job(db, "a")["id"])[0]["scheduled_at"]
    said = explain_slot(db, "a", slot.isoformat())
    assert said.answer == "shadow"
    assert "recorded as skipped" in said.text and "UTC: shadow" in said.text
