"""Backfills of jobs that wait for each other: after_jobs holds for them, and several jobs are one thing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from pgsched.errors import InputError
from pgsched.services.jobs import backfilling
from pgsched.services.jobs.backfilling import Together
from tests.support.db.backfilling import DAY, MAY, work
from tests.support.db.setting import cut
from tests.support.fleet import one
from tests.support.planning.after_jobs import decide_held

THREE = Request("2026-05-01", "2026-05-04", max_active=10)
UP, DOWN = Together(upstream=True), Together(downstream=True)


@pytest.fixture(autouse=True)
def chain(db: psycopg.Connection) -> None:
    """Add load, check (after load) and report (after both)."""
    for name, after in (("load", []), ("check", ["load"]), ("report", ["load", "check"])):
        ids = [jobs.show_job(db, other)["id"] for other in after]
        jobs.add(db, {"name": name, "task": "t", "schedule": "0 0 * * *", "after_jobs": ids or None})


def work_all(db: psycopg.Connection) -> None:
    for _ in range(2):  # one that has ended lets the next one begin
        while work(db):
            pass
        decide_held(db)


def states(db: psycopg.Connection, name: str) -> list[str]:
    found = db.execute("SELECT r.state FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id WHERE j.name = %s"
                       " ORDER BY r.scheduled_at", [name]).fetchall()  # fmt: skip
    return [row[0] for row in found]


def end(db: psycopg.Connection, name: str, *ends: str) -> None:
    """End the slots of a job, the oldest first, in these states."""
    for number, state in enumerate(ends):
        if not state:
            continue
        db.execute(
            "UPDATE pgsched.runs r SET state = %s, finished_at = now(), started_at = now() FROM pgsched.jobs j"
            " WHERE j.id = r.job_id AND j.name = %s AND r.scheduled_at = %s AND r.phase < 3",
            [state, name, MAY + number * DAY],
        )


def test_a_slot_whose_parent_is_dead_does_not_run_in_a_backfill(db: psycopg.Connection) -> None:
    backfills.add_backfill(db, "load", THREE)
    work_all(db)
    end(db, "load", "succeeded", "dead", "succeeded")
    number = backfills.add_backfill(db, "check", THREE)["id"]
    work_all(db)
    assert states(db, "check") == ["queued", "cancelled", "queued"]
    end(db, "check", "succeeded", "", "succeeded")
    work_all(db)
    found = backfills.show_backfill(db, number)
    assert (found["state"], found["succeeded"], found["cancelled"]) == ("finished", 2, 1)


def test_without_the_wait_it_would_succeed(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, "backfill_insert", "CASE WHEN j.after_jobs <> '{}' THEN 'waiting' ELSE 'queued' END", "'queued'")
    held = "CASE WHEN j.after_jobs <> '{}' THEN '8998-01-01 00:00Z' ELSE clock_timestamp() END"
    cut(monkeypatch, "backfill_insert", held, "clock_timestamp()")
    backfills.add_backfill(db, "load", Request("2026-05-01", "2026-05-02"))
    work_all(db)
    end(db, "load", "dead")
    backfills.add_backfill(db, "check", Request("2026-05-01", "2026-05-02"))
    work_all(db)
    assert states(db, "check") == ["queued"]


def test_a_slot_waits_while_its_parent_is_unfinished(db: psycopg.Connection) -> None:
    backfills.add_backfill(db, "load", THREE)
    backfills.add_backfill(db, "check", THREE)
    work_all(db)
    assert states(db, "check") == ["waiting"] * 3
    end(db, "load", "succeeded", "succeeded", "succeeded")
    work_all(db)
    assert states(db, "check") == ["queued"] * 3


def test_a_slot_whose_parent_has_no_run_says_how_to_go_on(db: psycopg.Connection) -> None:
    backfills.add_backfill(db, "check", Request("2026-05-01", "2026-05-02"))
    work_all(db)
    ((state, reason),) = db.execute("SELECT state, reason FROM pgsched.runs").fetchall()
    assert state == "cancelled"
    assert reason.startswith('after_jobs: job "load" has no run of this slot')
    assert "--with-upstream" in reason


@pytest.mark.parametrize("parent", ["succeeded", "dead"])
def test_a_run_that_is_started_again_waits_again(db: psycopg.Connection, parent: str) -> None:
    one = Request("2026-05-01", "2026-05-02", mode="all")
    backfilling.start_together(db, "check", one, UP)
    for _ in range(2):
        work_all(db)
        end(db, "load", "succeeded")
        work_all(db)
        end(db, "check", "dead")
        work_all(db)
        backfilling.start_together(db, "check", one, UP)
    work_all(db)
    assert (states(db, "load"), states(db, "check")) == (["queued"], ["dead"])
    end(db, "load", parent)
    work_all(db)
    assert states(db, "check") == ["queued" if parent == "succeeded" else "cancelled"]


def test_upstream_jobs_come_first_and_one_after_the_other(db: psycopg.Connection) -> None:
    started = backfilling.start_together(db, "report", THREE, UP)
    assert [one["job"] for one in started.backfills] == ["load", "check", "report"]
    assert started.left_out == {}
    for name, before in (("load", []), ("check", ["load"]), ("report", ["load", "check"])):
        work_all(db)
        assert states(db, name) == ["queued"] * 3
        assert [states(db, other) for other in before] == [["succeeded"] * 3] * len(before)
        end(db, name, *["succeeded"] * 3)
        work_all(db)
    assert [backfills.show_backfill(db, one["id"])["state"] for one in started.backfills] == ["finished"] * 3


def test_the_default_mode_repairs_a_chain_and_repeats_no_success(db: psycopg.Connection) -> None:
    backfilling.start_together(db, "check", THREE, UP)
    work_all(db)
    end(db, "load", "succeeded", "dead", "succeeded")
    work_all(db)
    end(db, "check", "succeeded", "", "succeeded")
    work_all(db)
    assert states(db, "check") == ["succeeded", "cancelled", "succeeded"]
    ids = one(db, "SELECT pgsched.backfill_in_order('{load,check}', '2026-05-01Z', '2026-05-04Z')")
    assert {backfills.show_backfill(db, number)["mode"] for number in ids} == {"unsuccessful"}
    work_all(db)
    assert states(db, "load") == ["succeeded", "queued", "succeeded"]
    end(db, "load", "", "succeeded")
    work_all(db)
    end(db, "check", "", "succeeded")
    work_all(db)
    assert states(db, "check") == ["succeeded"] * 3


def test_without_the_order_a_child_is_decided_before_its_parent(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = """      AND (b.after_backfill IS NULL OR (SELECT p.finished_at IS NULL FROM pgsched.backfills p
                                        WHERE p.id = b.after_backfill) IS NOT TRUE)
"""
    cut(monkeypatch, "backfill_open", guard)
    backfilling.start_together(db, "check", THREE, UP)
    work_all(db)
    assert states(db, "check") != []


def test_downstream_jobs_come_behind(db: psycopg.Connection) -> None:
    started = backfilling.start_together(db, "check", THREE, DOWN)
    assert [one["job"] for one in started.backfills] == ["check", "report"]
    both = backfills.plan_in_order(db, "check", THREE, upstream=True, downstream=True)
    assert [one.job["name"] for one in both.ranges] == ["load", "check", "report"]


def test_a_dry_run_lists_the_slots_of_all_jobs_and_does_nothing(db: psycopg.Connection) -> None:
    previews, left_out = backfilling.preview_together(db, "report", THREE, UP)
    assert [(one.range.job["name"], len(one.choices)) for one in previews] == [("load", 3), ("check", 3), ("report", 3)]
    assert left_out == {}
    assert db.execute("SELECT FROM pgsched.backfills").fetchall() == []


def test_jobs_without_slots_in_the_range_are_left_out(db: psycopg.Connection) -> None:
    jobs.update(db, "load", {"schedule": None})
    plan = backfills.plan_in_order(db, "report", THREE, upstream=True, downstream=False)
    assert [one.job["name"] for one in plan.ranges] == ["check", "report"]
    assert list(plan.left_out) == ["load"]
    jobs.update(db, "report", {"schedule": None})
    with pytest.raises(InputError, match="no schedule whose past slots are known"):
        backfills.plan_in_order(db, "report", THREE, upstream=True, downstream=False)


def test_the_range_is_read_in_the_zone_of_the_job_that_is_named(db: psycopg.Connection) -> None:
    jobs.update(db, "report", {"timezone": "Pacific/Auckland"})
    plan = backfills.plan_in_order(db, "report", THREE, upstream=True, downstream=False)
    assert {one.start for one in plan.ranges} == {MAY - timedelta(hours=12)}


def test_a_cancel_ends_all_of_them(db: psycopg.Connection) -> None:
    started = backfilling.start_together(db, "report", THREE, UP).backfills
    alone = backfills.add_backfill(db, "load", Request("2026-05-10", "2026-05-11"))
    work_all(db)
    assert backfills.cancel(db, started[1]["id"], "wrong month") == "cancelled"
    assert {backfills.show_backfill(db, one["id"])["state"] for one in started} == {"cancelled"}
    assert backfills.show_backfill(db, alone["id"])["state"] == "running"
    assert states(db, "load")[:3] == ["cancelled"] * 3
    assert backfills.cancel(db, started[2]["id"]) == "cancelled"


def test_a_pruned_backfill_holds_up_none_behind_it(db: psycopg.Connection) -> None:
    first, second = backfilling.start_together(db, "check", THREE, UP).backfills
    db.execute("DELETE FROM pgsched.backfills WHERE id = %s", [first["id"]])
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, finished_at)"
               " SELECT id, '2026-05-01Z', 't', 'succeeded', now() FROM pgsched.jobs WHERE name = 'load'")  # fmt: skip
    work_all(db)
    assert states(db, "check")[0] == "queued"
    assert backfills.show_backfill(db, second["id"])["after_backfill"] == first["id"]


def test_shifted_slots_wait_for_the_shifted_slots_of_their_jobs(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.job_calendars SELECT id, '2026-05-02', '2026-05-03', 'holidays' FROM pgsched.jobs")
    db.execute("UPDATE pgsched.jobs SET schedule = '0 0 1,2,5 * *', on_excluded = 'next_business_day'")
    started = backfilling.start_together(db, "check", Request("2026-05-01", "2026-05-06", max_active=10), UP)
    assert [one["slots"] for one in started.backfills] == [3, 3]
    work_all(db)
    end(db, "load", "dead", "", "", "succeeded", "succeeded")
    work_all(db)
    assert states(db, "check") == ["cancelled", "queued", "queued"]
    found = db.execute("SELECT r.scheduled_at, r.interval_start, r.nominal_at FROM pgsched.runs r JOIN pgsched.jobs j"
                       " ON j.id = r.job_id WHERE j.name = 'check' ORDER BY r.scheduled_at").fetchall()  # fmt: skip
    fourth = MAY + 3 * DAY
    assert found == [
        (MAY, datetime(2026, 4, 5, tzinfo=UTC), None), (fourth, MAY, MAY + DAY), (fourth + DAY, fourth, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong", ["'{}'", "ARRAY['load', 'load']", "NULL", "ARRAY[['load'], ['check']]", "ARRAY[NULL]"]
)
def test_wrong_lists_of_jobs_are_refused(db: psycopg.Connection, wrong: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="jobs: expected the names of 1-200 jobs"):
        db.execute(f"SELECT pgsched.backfill_in_order({wrong}, '2026-05-01', '2026-05-02')".encode())


def test_a_job_that_is_unknown_makes_no_backfill_of_the_others(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.NoDataFound, match='there is no job named "loda"'):
        db.execute("SELECT pgsched.backfill_in_order(ARRAY['load', 'loda'], '2026-05-01', '2026-05-02')")
    assert db.execute("SELECT FROM pgsched.backfills").fetchall() == []


def test_jobs_in_a_circle_are_refused(db: psycopg.Connection) -> None:
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET after_jobs = (SELECT array_agg(id) FROM pgsched.jobs WHERE name = 'report')"
                   " WHERE name = 'load'")  # fmt: skip
    with pytest.raises(psycopg.errors.CheckViolation, match="its jobs wait for each other"):
        db.execute("SELECT pgsched.jobs_in_order('report', true, false)")


def test_more_jobs_than_the_limit_are_refused(db: psycopg.Connection) -> None:
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule, after_jobs) SELECT 'c' || n, 't', '0 0 * * *',"
                   " (SELECT array_agg(id) FROM pgsched.jobs WHERE name = 'report')"
                   " FROM generate_series(1, 200) n")  # fmt: skip
    with pytest.raises(psycopg.errors.CheckViolation, match="more than 200 jobs are before or behind"):
        db.execute("SELECT pgsched.jobs_in_order('report', false, true)")
