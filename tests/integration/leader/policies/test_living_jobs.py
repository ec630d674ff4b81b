"""Jobs of every second with a running leader: pauses, restarts, retry_within, buffers and jitter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.core.planning.jitter import offset
from pgsched.db.queries.jobs import jobs
from tests.support.db.overlapping import leader
from tests.support.db.passing import add, finish, job, now, pass_time, runs, states
from tests.support.waiting import wait_until

SECOND = timedelta(seconds=1)


def live(db: psycopg.Connection, **columns: Any) -> dict[str, Any]:
    return add(db, schedule="@every 1s", **columns)


def test_pause_downtime_and_resume_lose_and_double_no_slot(dsn: str, db: psycopg.Connection) -> None:
    row = live(db, overlap="allow", catch_up="all", misfire_after="0")
    with leader(dsn):
        wait_until(lambda: len(runs(db)) >= 2, what="two slots")
        jobs.pause(db, "a")
    before = len(runs(db))
    pass_time(db, 5)
    with leader(dsn):
        jobs.resume(db, "a", "pause")
        wait_until(lambda: len(runs(db)) >= before + 6, what="the slots of the pause and one more")
    anchor = job(db)["anchor_at"]
    assert [run["scheduled_at"] for run in runs(db)] == [anchor + k * SECOND for k in range(1, len(runs(db)) + 1)]
    assert row["id"] == job(db)["id"]


@pytest.mark.long
def test_retry_within_starts_the_slot_when_the_old_run_ends_in_time(dsn: str, db: psycopg.Connection) -> None:
    live(db, overlap="skip", retry_within="60 seconds")
    with leader(dsn):
        wait_until(lambda: states(db)[:3] == ["queued", "waiting", "skipped"], what="one to wait and one to be skipped")
        finish(db)
        # no settlement wakes the leader here: the leader looks by itself within a second
        wait_until(lambda: states(db)[:2] == ["succeeded", "queued"], 3, what="the waiting slot to start")


@pytest.mark.long
def test_retry_within_gives_up_in_time(dsn: str, db: psycopg.Connection) -> None:
    live(db, overlap="skip", retry_within="2 seconds")
    with leader(dsn):
        wait_until(lambda: states(db)[:2] == ["queued", "skipped"], what="the second slot to give up")
    second = runs(db)[1]
    assert "(retry_within)" in second["reason"]
    assert second["finished_at"] - second["held_until"] < SECOND
    assert second["held_until"] == second["scheduled_at"] + 2 * SECOND


@pytest.mark.long
def test_a_full_buffer_drains_in_order_under_a_running_leader(dsn: str, db: psycopg.Connection) -> None:
    live(db, overlap="buffer_all", max_buffer=2)
    with leader(dsn):
        wait_until(lambda: "skipped" in states(db), what="the buffer to be full")
        assert states(db)[:4] == ["queued", "waiting", "waiting", "skipped"]
        db.execute("UPDATE pgsched.jobs SET ends_at = clock_timestamp()")
        most = 0

        def drained() -> bool:
            nonlocal most
            most = max(most, states(db).count("queued"))
            finish(db)
            return not {"queued", "waiting"} & set(states(db))

        wait_until(drained, what="all to run")
    assert most == 1
    ended = [run["finished_at"] for run in runs(db) if run["state"] == "succeeded"]
    assert ended == sorted(ended) and len(ended) == 3


@pytest.mark.long
def test_jitter_is_the_same_for_every_leader_and_starts_nothing_early(dsn: str, db: psycopg.Connection) -> None:
    a = live(db, overlap="allow", jitter="1 second")
    for n in (2, 4):
        with leader(dsn):
            wait_until(lambda n=n: states(db).count("queued") >= n, what="runs to be claimable")  # type: ignore[misc]
    for run in runs(db):
        assert run["available_at"] == run["scheduled_at"] + offset(a["id"], run["scheduled_at"], SECOND)
        assert run["state"] == "scheduled" or run["available_at"] <= now(db)
