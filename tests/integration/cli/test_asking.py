"""The commands that pause, run, backfill and explain a job: what they do, what they print, and their exit codes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from pgsched import App
from pgsched.app.release import releases
from pgsched.db.queries.runs import tasks
from pgsched.leader import backfill
from pgsched.services.jobs import backfilling
from pgsched.services.runs import waiting
from tests.support.db.leading import lead
from tests.support.db.setting import Aside
from tests.support.waiting import wait_until

Pgsched = Callable[..., Any]
MAY = ("--from", "2026-05-01", "--to", "2026-05-04")


@pytest.fixture(autouse=True)
def job(pgsched: Pgsched) -> None:
    pgsched("job", "add", "nightly", "--task", "t", "--schedule", "0 0 * * *")


@pytest.fixture
def leader(
    connect: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Yield a function that starts a leader and a simulated worker, which ends each queued run in the given state."""
    monkeypatch.setattr(backfill, "logger", Mock())  # its log lines in this process are not output of a command
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(ending: str) -> None:
        conn = connect()
        loop = lead(conn)

        def work() -> None:
            while not stop.is_set():
                stop.wait(min(loop.run_once(), 0.02))
                conn.execute("UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp(), error = 'e',"
                             " attempt = 1 WHERE phase = 2", [ending])  # fmt: skip

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(20)


def test_a_job_does_not_run_with_arguments_that_its_task_does_not_take(
    pgsched: Pgsched, db: psycopg.Connection[Any]
) -> None:
    app = App("shop")
    app.task(name="t")(takes_a_number)
    tasks.register(db, "shop", releases(app.tasks.values()))
    said = pgsched("job", "run", "nightly", "--args", '{"n": "seven"}')
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: args: n: expected integer, got string: task t does not take them\n"
    assert pgsched("job", "run", "nightly", "--args", '{"n": 7}').code == 0
    assert pgsched("job", "run", "nightly", "--args", "[7]").code == 0
    assert pgsched("job", "run", "nightly").code == 0, "the job's own arguments are those of the schedule"
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (3,)


def takes_a_number(n: int) -> None: ...


def test_pause_names_the_person_and_resume_takes_a_starting_point(pgsched: Pgsched) -> None:
    said = pgsched("job", "pause", "nightly", "--reason", "incident 7", "--by", "alice")
    assert said.out == "job nightly is paused by alice\n"
    assert pgsched("job", "show", "nightly", "--json").json["paused_reason"] == "incident 7"
    assert pgsched("job", "resume", "nightly", "--from", "pause").out == "job nightly is active\n"
    refused = pgsched("job", "resume", "nightly", "--from", "noon")
    assert (refused.code, refused.err) == (2, 'error: from: "noon" is not one of now, pause\n')


@pytest.mark.long
def test_job_run_with_an_overlap_policy_prints_the_state_of_its_run(pgsched: Pgsched) -> None:
    assert pgsched("job", "run", "nightly").out == "run 1 of job nightly is queued\n"
    said = pgsched("job", "run", "nightly", "--overlap", "skip")
    assert (said.code, said.out) == (0, "run 2 of job nightly is skipped: overlap: run 1 was not finished\n")
    assert pgsched("job", "run", "nightly", "--overlap", "buffer_one", "--json").json["state"] == "waiting"
    refused = pgsched("job", "run", "nightly", "--overlap", "maybe")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith('error: overlap: "maybe" is not one of allow, skip')


@pytest.mark.parametrize(("ending", "code"), [("succeeded", 0), ("dead", 1)])
def test_job_run_wait_waits_for_the_end_of_the_run(
    pgsched: Pgsched, leader: Callable[[str], None], ending: str, code: int
) -> None:
    leader(ending)
    said = pgsched("job", "run", "nightly", "--wait", "--json")
    assert (said.code, said.json["state"]) == (code, ending)


def test_a_waiting_command_notes_that_no_worker_offers_the_task(
    pgsched: Pgsched, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    notes: list[str] = []
    waiter = Aside(
        lambda: waiting.until_ended(db, pgsched("job", "run", "nightly", "--json").json["id"], notes.append, 0.01)
    )
    wait_until(lambda: notes, what="the note")
    pgsched("run", "cancel", "1")
    assert waiter.result()["state"] == "cancelled"
    assert notes == ["no live worker offers task t on queue default; start a `pgsched worker`"]


def test_a_backfill_is_previewed_slot_by_slot(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, finished_at)"
               " SELECT id, '2026-05-02 00:00Z', 't', 'succeeded', now() FROM pgsched.jobs")  # fmt: skip
    said = pgsched("backfill", "start", "nightly", *MAY, "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "SLOT                     DECISION  BECAUSE",
        "2026-05-01 00:00:00 UTC  run       it has no run",
        "2026-05-02 00:00:00 UTC  leave     run 1 succeeded",
        "2026-05-03 00:00:00 UTC  run       it has no run",
        "2 of 3 slots of job nightly would run",
    ]
    found = pgsched("backfill", "start", "nightly", *MAY, "--dry-run", "--json", "--reverse", "--mode", "all").json
    assert [choice["action"] for choice in found["choices"]] == ["run", "again", "run"]
    assert found["choices"][0]["slot"] == "2026-05-03T00:00:00+00:00"
    assert pgsched("backfill", "list").out == "no backfills\n"


@pytest.mark.parametrize(("ending", "code"), [("succeeded", 0), ("dead", 1)])
def test_a_backfill_is_watched_to_its_end(
    pgsched: Pgsched, leader: Callable[[str], None], ending: str, code: int
) -> None:
    leader(ending)
    said = pgsched("backfill", "start", "nightly", *MAY, "--max-active", "2")
    assert said.out == (f"backfill 1 of job nightly is finished: 3 of 3 slots, 3 started, 0 left alone; 3 {ending}\n")
    assert said.code == code


def test_a_backfill_goes_on_without_its_client(pgsched: Pgsched, leader: Callable[[str], None]) -> None:
    said = pgsched("backfill", "start", "nightly", *MAY, "--no-wait")
    assert said.out == "backfill 1 of job nightly is running: 0 of 3 slots, 0 started, 0 left alone\n"
    leader("succeeded")
    wait_until(lambda: pgsched("backfill", "show", "1", "--json").json["state"] == "finished", what="the end")
    assert pgsched("backfill", "list", "--json").json[0]["succeeded"] == 3
    assert "3/3" in pgsched("backfill", "list").out
    assert pgsched("backfill", "cancel", "1").out == "backfill 1 had ended already\n"


def test_a_backfill_is_cancelled_as_a_whole(pgsched: Pgsched) -> None:
    pgsched("backfill", "start", "nightly", *MAY, "--no-wait")
    assert pgsched("backfill", "cancel", "1", "--reason", "wrong month").out == "backfill 1 is cancelled\n"
    shown = pgsched("backfill", "show", "1").out
    assert "cancelled_by  " in shown
    assert shown.count(": wrong month") == 1


def test_the_options_of_a_backfill_may_come_first(pgsched: Pgsched) -> None:
    assert pgsched("backfill", "start", *MAY, "nightly", "--no-wait", "--json").json["slots"] == 3


def test_a_watched_backfill_notes_once_that_no_leader_is_live(
    pgsched: Pgsched, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfilling, "PATIENCE_S", 0.0)
    pgsched("backfill", "start", "nightly", *MAY, "--no-wait")
    notes: list[str] = []
    watched = backfilling.watch(db, 1, notes.append, 0.001)
    assert [next(watched)["state"] for _ in range(4)] == ["running"] * 4
    assert notes == ["no live leader works on it; start a `pgsched worker`"]
    pgsched("backfill", "cancel", "1")
    assert [found["state"] for found in watched] == ["cancelled"]


def test_a_backfill_past_the_decided_slots_notes_where_it_is_cut_off(pgsched: Pgsched) -> None:
    pgsched("job", "update", "nightly", "--schedule", "* * * * *")
    start = (datetime.now().astimezone() - timedelta(minutes=9)).isoformat()
    for further in ("--dry-run", "--no-wait"):
        said = pgsched("backfill", "start", "nightly", "--from", start, "--to", "2100-01-01", further)
        assert said.code == 0
        assert said.err.startswith("note: slots from ")
        assert said.err.endswith(" on are not decided yet: they are left to the schedule\n")


@pytest.mark.parametrize("further", ["--dry-run", "--no-wait"])
def test_backfills_together_note_where_each_is_cut_off_and_repair_chains(pgsched: Pgsched, further: str) -> None:
    pgsched("job", "update", "nightly", "--schedule", "* * * * *")
    start = (datetime.now().astimezone() - timedelta(minutes=9)).isoformat()
    words = ("backfill", "start", "nightly", "--from", start, "--to", "2100-01-01", "--with-upstream", further)
    said = pgsched(*words)
    assert said.code == 0, said.err
    assert "note: job nightly: slots from " in said.err and "are left to the schedule" in said.err
    if further == "--no-wait":
        assert pgsched("backfill", "list", "--json").json[0]["mode"] == "unsuccessful"


def test_a_time_of_the_day_is_no_length_of_time(pgsched: Pgsched) -> None:
    expected = "finish_by: \"06:00\" is a time of the day: give a length of time after the slot, such as '4 hours'"
    for words in (("job", "update", "nightly", "--finish-by", "06:00"), ("alerts", "defaults", "--finish-by", "06:00"),
                  ("job", "update", "nightly", "--set", "finish_by=06:00")):  # fmt: skip
        said = pgsched(*words)
        assert (said.code, expected in said.err) == (2, True), said.err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("start", "nobody", *MAY), 8, 'there is no job named "nobody"'),
        (("start", "nightly", "--from", "x", "--to", "2026-05-04"), 2, 'from: "x" is not a time'),
        (
            ("start", "nightly", *MAY, "--mode", "some"),
            2,
            'mode: "some" is not one of missing, failed, unsuccessful, all',
        ),
        (
            ("start", "nightly", "--from", "2026-05-04", "--to", "2026-05-01"),
            2,
            "to: 2026-05-01 is not later than 2026-05-04",
        ),
        (("show", "7"), 8, "there is no backfill 7"),
    ],
)
def test_a_bad_argument_of_backfill_gives_one_line(
    pgsched: Pgsched, args: tuple[str, ...], code: int, message: str
) -> None:
    said = pgsched("backfill", *args)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith(f"error: {message}")
    assert said.err.count("\n") == 1


def test_explain_prints_a_paragraph_or_json(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, created_at, task, state, finished_at, reason, origin)"
               " SELECT id, '2026-05-02 00:00Z', '2026-05-02 00:00Z', 't', 'skipped', '2026-05-02 00:00Z',"
               " 'overlap: run 1 was not finished', 'schedule' FROM pgsched.jobs")  # fmt: skip
    said = pgsched("explain", "nightly", "2026-05-02T07:00")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "2026-05-02 07:00:00 UTC is not a slot of 0 0 * * * (UTC); the nearest are 2026-05-02 00:00:00 UTC and"
        " 2026-05-03 00:00:00 UTC. Slot 2026-05-02 00:00:00 UTC of job nightly: run 1: it did not run, and was recorded"
        " as skipped at 2026-05-02 00:00:00 UTC: overlap: run 1 was not finished.\n"
    )
    found = pgsched("explain", "nightly", "2026-05-02", "--json").json
    assert (found["answer"], found["run_id"], found["is_slot"]) == ("overlap", 1, True)
    assert found["details"]["reason"] == "overlap: run 1 was not finished"
    assert pgsched("explain", "nobody").code == 8
    assert pgsched("explain", "nightly", "noon").err.startswith('error: at: "noon" is not a time; understood are')
