"""Downtime and pauses with a real leader: which slots run afterwards, in which order, and the reasons of the others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from pgsched.db.queries.runs.runs import show_run
from pgsched.leader.loop import LeaderLoop
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.leading import lead
from tests.support.db.passing import add, finish, job, now, pass_time, runs, states

Open = Callable[..., psycopg.Connection]
HOUR = timedelta(hours=1)
HELD_BY = ["skip", "buffer_one", "buffer_all", "replace", "terminate"]


@pytest.fixture
def loop(connect: Open) -> LeaderLoop:
    """Return the loop of a leader; `run_once` is one round of all duties."""
    return lead(connect())


def down(db: psycopg.Connection, loop: LeaderLoop, hours: float, **columns: Any) -> dict[str, Any]:
    """Add an hourly job, and let the leader come back after this many hours; return the job's row."""
    row = add(db, schedule="@every 1h", **columns)
    loop.run_once()
    pass_time(db, hours * 3600)
    loop.run_once()
    return row


def in_order(db: psycopg.Connection, loop: LeaderLoop) -> list[list[str]]:
    """Let the runs succeed one after the other; return the states of all rows before each success."""
    found = []
    while "queued" in states(db):
        found.append(states(db))
        finish(db)
        loop.run_once()
    return found


# ---- catch_up = all


@pytest.mark.parametrize("overlap", HELD_BY)
def test_all_late_slots_run_one_after_the_other_oldest_first(
    db: psycopg.Connection, loop: LeaderLoop, overlap: str
) -> None:
    down(db, loop, 4.25, catch_up="all", overlap=overlap)
    done, held, free = "succeeded", "waiting", "queued"
    assert in_order(db, loop) == [[done] * n + [free] + [held] * (3 - n) for n in range(4)]
    assert states(db) == [done] * 4, "no late slot ended another, and none was skipped"


def test_allow_runs_all_late_slots_at_once(db: psycopg.Connection, loop: LeaderLoop) -> None:
    down(db, loop, 4.25, catch_up="all", overlap="allow")
    assert states(db) == ["queued"] * 4


@pytest.mark.parametrize("overlap", HELD_BY)
def test_late_slots_wait_for_a_run_that_is_not_finished(db: psycopg.Connection, loop: LeaderLoop, overlap: str) -> None:
    add(db, schedule="@every 1h", catch_up="all", overlap=overlap)
    run = jobs.trigger(db, "a")
    pass_time(db, 2.25 * 3600)
    loop.run_once()
    assert states(db) == ["waiting", "waiting", "queued"] or states(db) == ["queued", "waiting", "waiting"]
    assert show_run(db, run)["state"] == "queued", "and do not end it"
    finish(db)
    loop.run_once()
    assert sorted(states(db)) == ["queued", "succeeded", "waiting"]


@pytest.mark.parametrize(
    ("overlap", "late", "on_time", "reason"),
    [
        ("skip", ["queued", "waiting", "waiting"], "skipped", "overlap: run 3 was not finished"),
        ("buffer_one", ["queued", "waiting", "waiting"], "waiting", None),
        ("buffer_all", ["queued", "waiting", "waiting"], "waiting", None),
        ("replace", ["cancelled"] * 3, "waiting", None),
        ("terminate", ["cancelled"] * 3, "queued", None),
    ],
)
def test_a_slot_on_time_meets_waiting_slots_as_its_overlap_policy_says(
    db: psycopg.Connection, loop: LeaderLoop, overlap: str, late: list[str], on_time: str, reason: str | None
) -> None:
    down(db, loop, 3.25, catch_up="all", overlap=overlap, max_buffer=1)
    pass_time(db, 0.75 * 3600 + 1)
    loop.run_once()
    assert states(db)[:3] == late
    assert (runs(db)[3]["state"], runs(db)[3]["reason"]) in [(on_time, reason), ("queued", reason)]
    while "queued" in states(db):
        finish(db)
        loop.run_once()
    assert states(db)[3] == ("skipped" if overlap == "skip" else "succeeded")


def test_late_slots_and_buffered_slots_that_wait_are_counted_separately(
    db: psycopg.Connection, loop: LeaderLoop
) -> None:
    down(db, loop, 5.25, catch_up="all", overlap="buffer_all", max_buffer=2)
    assert states(db) == ["queued"] + ["waiting"] * 4
    for n in range(3):
        pass_time(db, 3601 if n else 0.75 * 3600 + 1)
        loop.run_once()
    assert states(db)[5:] == ["waiting", "waiting", "skipped"]
    assert runs(db)[7]["reason"].endswith("was not finished and 2 already waited")
    assert len(in_order(db, loop)) == 7, "all that wait have their turn"


def test_the_deadline_ends_a_late_slot_that_waits(db: psycopg.Connection, loop: LeaderLoop) -> None:
    down(db, loop, 3.25, catch_up="all", start_deadline="3.5 hours")
    assert states(db) == ["queued", "waiting", "waiting"]
    finish(db)
    loop.run_once()
    pass_time(db, 3.4 * 3600)
    loop.run_once()
    assert states(db)[:3] == ["succeeded", "missed", "missed"]
    assert runs(db)[2]["reason"].startswith("start_deadline passed: not started by ")


def test_one_outage_after_another_leaves_no_more_than_max_catch_up_waiting(
    db: psycopg.Connection, loop: LeaderLoop
) -> None:
    down(db, loop, 3.25, catch_up="all", max_catch_up=3)
    pass_time(db, 3 * 3600)
    loop.run_once()
    assert states(db) == ["queued", "waiting", "waiting", "waiting", "skipped", "skipped"]
    assert runs(db)[5]["reason"].endswith("was not finished and 3 late slots already waited")


def test_a_slot_on_time_that_may_wait_waits_behind_the_late_ones(db: psycopg.Connection, loop: LeaderLoop) -> None:
    down(db, loop, 3.25, catch_up="all", retry_within="30 minutes")
    assert [row["held_until"] for row in runs(db)] == [None] * 3, "late slots are not bound by retry_within"
    pass_time(db, 0.75 * 3600 + 1)
    loop.run_once()
    assert states(db) == ["queued", "waiting", "waiting", "waiting"]
    assert len(in_order(db, loop)) == 4


def test_explain_says_what_a_late_slot_waits_for(db: psycopg.Connection, loop: LeaderLoop) -> None:
    down(db, loop, 2.25, catch_up="all")
    text = explain_slot(db, "a", runs(db)[1]["scheduled_at"].isoformat()).text
    assert "late slots are caught up one after the other: it waits for run " in text


def test_a_backfill_and_late_slots_leave_each_other_alone(db: psycopg.Connection, loop: LeaderLoop) -> None:
    down(db, loop, 3.25, catch_up="all", starts_at=now(db) - 240 * HOUR)
    assert states(db) == ["queued", "waiting", "waiting"]
    since, until = (now(db) - 480 * HOUR).isoformat(), (now(db) + HOUR).isoformat()
    number = backfills.add_backfill(db, "a", Request(since, until, max_active=1000))["id"]
    loop.run_once()
    assert states(db)[-3:] == ["queued", "waiting", "waiting"], "what is held is not asked for twice"
    finish(db)
    loop.run_once()
    assert states(db)[-3:] == ["succeeded", "queued", "waiting"], "and its own turn comes beside the backfill"
    backfills.cancel(db, number)


# ---- latest, skipped


def test_a_latest_slot_that_overlap_skips_gives_both_reasons(db: psycopg.Connection, loop: LeaderLoop) -> None:
    add(db, schedule="@every 1h")
    run = jobs.trigger(db, "a")
    pass_time(db, 5.25 * 3600)
    loop.run_once()
    (skipped,) = (row for row in runs(db) if row["state"] == "skipped")
    assert skipped["covers_count"] == 5
    assert skipped["reason"] == f"overlap: late, stands for 5 slots, and run {run} was not finished"


def test_a_latest_slot_that_waits_in_vain_gives_both_reasons(db: psycopg.Connection, loop: LeaderLoop) -> None:
    add(db, schedule="@every 1h", retry_within="30 minutes")
    run = jobs.trigger(db, "a")
    pass_time(db, 5.25 * 3600)
    loop.run_once()
    pass_time(db, 0.5 * 3600)
    loop.run_once()
    (skipped,) = (row for row in runs(db) if row["state"] == "skipped")
    said = f"overlap: late, stands for 5 slots, and run {run} was not finished, nor by "
    assert skipped["reason"].startswith(said)


@pytest.mark.parametrize("overlap", ["replace", "terminate"])
def test_a_latest_slot_that_is_replaced_at_once_says_what_it_stood_for(
    db: psycopg.Connection, loop: LeaderLoop, overlap: str
) -> None:
    add(db, schedule="@every 1h", overlap=overlap)
    jobs.trigger(db, "a")
    pass_time(db, 5 * 3600 + 1)
    loop.run_once()
    (skipped,) = (row for row in runs(db) if row["state"] == "skipped")
    assert skipped["reason"] == "overlap: late, stands for 4 slots, and replaced by the next slot"


# ---- pause, downtime, resume


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("latest", [("queued", 4)]),
        ("skip", [("missed", 4)]),
        ("earliest", [("queued", None), ("missed", 3)]),
        ("all", [("queued", None), ("waiting", None), ("waiting", None), ("waiting", None)]),
    ],
)
def test_each_catch_up_policy_decides_the_slots_of_a_pause(
    db: psycopg.Connection, connect: Open, catch_up: str, expected: list[tuple[str, int | None]]
) -> None:
    add(db, schedule="@every 1h", catch_up=catch_up)
    lead(connect()).run_once()
    jobs.pause(db, "a", "incident 7")
    pass_time(db, 1.5 * 3600)
    first = lead(connect())
    first.run_once()
    assert states(db) == [], "a paused job decides nothing"
    pass_time(db, 2.75 * 3600)  # there is no leader
    jobs.resume(db, "a", "pause")
    loop = lead(connect())
    loop.run_once()
    assert [(row["state"], row["covers_count"]) for row in runs(db)] == expected
    assert job(db)["next_run_at"] > now(db)
    in_order(db, loop)
    assert set(states(db)) <= {"succeeded", "missed"}
