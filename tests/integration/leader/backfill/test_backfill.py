"""Backfill: the leader runs past slots again on request, with one row for each slot."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from pgsched.core.planning import backfill as core
from pgsched.core.schedule.cron import parse
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from pgsched.db.queries.runs import runs
from pgsched.errors import InputError, NotFound
from pgsched.leader import backfill
from pgsched.leader.loop import LeaderLoop
from tests.support.db.backfilling import DAY, MAY, WEEK, ask, finish, open_slots, through, work
from tests.support.db.leading import lead
from tests.support.db.pruning import prune
from tests.support.db.setting import row_of, take

pytestmark = pytest.mark.usefixtures("job")

Open = Callable[..., psycopg.Connection]


def test_every_slot_of_the_half_open_range_runs_once_and_in_order(db: psycopg.Connection) -> None:
    number = ask(db)
    assert list(through(db, number)) == [[slot] for slot in WEEK]
    found = backfills.show_backfill(db, number)
    assert (found["state"], found["slots"], found["considered"], found["started"]) == ("finished", 7, 7, 7)
    assert (found["succeeded"], found["open"]) == (7, 0)
    run = row_of(db, 1)
    assert (run["origin"], run["priority"], run["max_attempts"], run["task"]) == ("backfill", 9, 2, "t")
    assert run["backfill_id"] == number


def test_max_active_bounds_the_open_runs_and_reverse_begins_at_the_end(db: psycopg.Connection) -> None:
    number = ask(db, max_active=3, reverse=True, priority=7)
    latest = WEEK[::-1]
    assert list(through(db, number)) == [latest[:3], latest[3:6], latest[6:]]
    assert row_of(db, 1)["priority"] == 7


def test_no_further_run_is_started_while_max_active_runs_are_open(db: psycopg.Connection) -> None:
    ask(db, max_active=2)
    for _ in range(3):
        work(db)
    assert open_slots(db) == WEEK[:2]
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = 1")
    work(db)
    assert open_slots(db) == WEEK[1:3]


def test_a_new_leader_goes_on_where_the_old_one_stopped(db: psycopg.Connection, connect: Open) -> None:
    number = ask(db)
    work(db)
    finish(db)
    assert list(through(connect(), number)) == [[slot] for slot in WEEK[1:]]


def test_a_leader_whose_transaction_fails_has_done_nothing(db: psycopg.Connection, connect: Open) -> None:
    number = ask(db)
    leader = connect(autocommit=False)
    backfill.run_backfills(leader)
    leader.rollback()
    assert backfills.show_backfill(db, number)["considered"] == 0
    assert list(through(db, number)) == [[slot] for slot in WEEK]


def test_the_high_water_mark_and_the_plan_are_left_alone(db: psycopg.Connection) -> None:
    before = jobs.show_job(db, "a")
    for _ in through(db, ask(db)):
        pass
    after = jobs.show_job(db, "a")
    unchanged = ("decided_until", "next_run_at", "run_count", "updated_at")
    assert [after[c] for c in unchanged] == [before[c] for c in unchanged]


def test_slots_that_are_not_decided_yet_are_left_to_the_schedule(db: psycopg.Connection) -> None:
    jobs.update(db, "a", {"schedule": "* * * * *"})
    mark = jobs.show_job(db, "a")["decided_until"]
    start = mark.replace(second=0, microsecond=0) - timedelta(minutes=5)
    found = backfills.add_backfill(db, "a", Request(start.isoformat(), "2100-01-01"))
    assert found["to_at"] <= mark + timedelta(microseconds=1)
    assert found["undecided_from"] == found["to_at"]
    assert 5 <= found["slots"] <= 6
    with pytest.raises(InputError, match=r"has no decided slot in that range: .* slots after that are the schedule's"):
        backfills.add_backfill(db, "a", Request("2099-01-01", "2100-01-01"))


def test_the_excluded_dates_stay_excluded(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.job_calendars SELECT id, '2026-05-02', '2026-05-03', 'holidays' FROM pgsched.jobs")
    _, choices = backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-05", "all"))
    assert [choice.action for choice in choices] == ["run", "leave", "leave", "run"]
    assert choices[1].reason == "excluded dates 2026-05-02 to 2026-05-03: holidays"
    assert [slot for batch in through(db, ask(db, 4)) for slot in batch] == [WEEK[0], WEEK[3]]


def test_naive_bounds_are_read_in_the_zone_of_the_job(db: psycopg.Connection) -> None:
    jobs.update(db, "a", {"timezone": "Asia/Tokyo"})
    found, choices = backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-02T00:00"))
    assert found.start == datetime(2026, 4, 30, 15, tzinfo=UTC)
    assert [choice.slot for choice in choices] == [found.start]
    found, _ = backfills.preview_backfill(db, "a", Request("2026-05-01T00:00Z", "2026-05-03T00:00+09:00"))
    assert (found.start, found.end) == (MAY, datetime(2026, 5, 2, 15, tzinfo=UTC))


def test_a_bound_in_an_hour_that_the_zone_skips_is_the_end_of_the_gap(db: psycopg.Connection) -> None:
    jobs.update(db, "a", {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"})
    spring = datetime(2026, 3, 29, 1, tzinfo=UTC)  # the slot of 02:30 runs right after the gap
    for start, end in (("2026-03-29T02:30", "2026-03-30"), ("2026-03-29T02:00", "2026-03-29T03:01")):
        _, choices = backfills.preview_backfill(db, "a", Request(start, end))
        assert [choice.slot for choice in choices] == [spring]


def test_a_backfill_is_cancelled_as_a_whole(db: psycopg.Connection) -> None:
    number = ask(db, max_active=3)
    work(db)
    (claim,) = take(db)
    assert backfills.cancel(db, number, "wrong month") == "cancelled"
    states = db.execute("SELECT state FROM pgsched.runs ORDER BY id").fetchall()
    assert states == [("running",), ("cancelled",), ("cancelled",)]
    assert row_of(db, claim.id)["cancel_reason"].endswith(f"backfill {number} was cancelled: wrong month")
    work(db)
    found = backfills.show_backfill(db, number)
    assert (found["state"], found["started"], found["cancelled"]) == ("cancelled", 3, 2)
    assert found["cancelled_by"].endswith(": wrong month")
    assert backfills.cancel(db, number) == "cancelled", "again is harmless"
    done_one = ask(db, 1, mode="failed")
    list(through(db, done_one))
    assert backfills.cancel(db, done_one) == "finished"


def test_another_backfill_runs_the_slots_that_a_cancelled_one_left(db: psycopg.Connection) -> None:
    number = ask(db)
    rounds = through(db, number)
    next(rounds), next(rounds), next(rounds)
    backfills.cancel(db, number)
    assert [slot for batch in through(db, ask(db)) for slot in batch] == WEEK[2:]


def test_no_run_is_made_after_a_cancel_that_races_the_leader(db: psycopg.Connection, connect: Open) -> None:
    number = ask(db, max_active=7)
    person, leader = connect(autocommit=False), connect(options="-c lock_timeout=500ms")
    person.execute("SELECT pgsched.cancel_backfill(%s)", [number])
    assert work(leader) is False, "it does not wait for the person"
    person.commit()
    work(leader)
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)


def test_a_deleted_job_ends_its_backfill(db: psycopg.Connection) -> None:
    number = ask(db)
    work(db)
    jobs.delete(db, "a")
    work(db)
    found = backfills.show_backfill(db, number)
    assert (found["state"], found["error"], found["cancelled"]) == ("failed", "job a was deleted", 1)


def test_an_edit_of_the_job_does_not_change_the_requested_slots(db: psycopg.Connection) -> None:
    number = ask(db)
    work(db)
    finish(db)
    jobs.update(db, "a", {"schedule": "0 12 * * *", "task": "new"})
    assert [slot for batch in through(db, number) for slot in batch] == WEEK[1:]
    assert row_of(db, 2)["task"] == "new", "what runs is what the job is now"


def test_two_backfills_of_the_same_slots_do_not_double_them(db: psycopg.Connection) -> None:
    first, second = ask(db), ask(db)
    work(db)
    assert open_slots(db) == WEEK[:2], "the second leaves alone what is open, and goes on"
    for number in (first, second):
        list(through(db, number))
    assert db.execute("SELECT count(*), max(attempt) FROM pgsched.runs").fetchone() == (7, 0)


def pause(loop: LeaderLoop) -> float:
    """Run rounds until one finds nothing to do; return the seconds until the next round."""
    while (seconds := loop.run_once()) == 0.0:
        pass
    return seconds


def test_the_leader_works_on_backfills_in_its_rounds(db: psycopg.Connection, connect: Open) -> None:
    loop = lead(connect())
    assert pause(loop) > 0.1, "without any it has no reason to"
    number = ask(db, max_active=2)
    assert pause(loop) <= 0.1, "while one is open it looks again soon"
    assert open_slots(db) == WEEK[:2]
    while backfills.show_backfill(db, number)["finished_at"] is None:
        finish(db)
        loop.run_once()
    assert backfills.show_backfill(db, number)["succeeded"] == 7


def test_a_long_run_of_a_backfill_costs_no_polling(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    loop = lead(connect())
    monkeypatch.setattr(backfill, "time", Mock(monotonic=lambda: now[0]))
    ask(db)
    assert pause(loop) <= 0.1
    pauses = []
    for now[0] in (100.1, 100.3, 100.7, 105.0):
        pauses.append(round(pause(loop), 1))
    assert pauses == [0.1, 0.3, 0.7, 1.0]
    finish(db)
    assert pause(loop) <= 0.1, "it went on"


def test_the_leader_is_notified_of_a_new_backfill(db: psycopg.Connection, connect: Open) -> None:
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    ask(db)
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["backfills"]


@pytest.mark.parametrize(
    ("change", "request_", "message"),
    [
        ({}, Request("2026-05-02", "2026-05-02"), "to: 2026-05-02 is not later than 2026-05-02"),
        ({}, Request("moonday", "2026-05-02"), 'from: "moonday" is not a time'),
        ({}, Request("1969-01-01", "2026-05-02"), 'from: "1969-01-01" is not an instant between 1970 and 9000'),
        (
            {},
            Request("2026-05-01", "2026-05-02", "some"),
            'mode: "some" is not one of missing, failed, unsuccessful, all',
        ),
        ({}, Request("2026-05-01T01:00", "2026-05-01T02:00"), "job a has no decided slot in that range"),
        ({"schedule": "@every 1h"}, Request("2026-05-01", "2026-05-02"), "job a has no decided slot in that range"),
        ({"schedule": "@after 1h"}, Request("2026-05-01", "2026-05-02"), "job a has no schedule whose past slots"),
        ({"schedule": None}, Request("2026-05-01", "2026-05-02"), "job a has no schedule whose past slots are known"),
        ({"schedule": "* * * * *"}, Request("2020-01-01", "2026-01-01"), "the range has more than 100,000 slots"),
        ({"schedule": "* * * * * *"}, Request("2026-01-01", "2026-02-01"), "the range has more than 100,000 slots"),
    ],
)
def test_impossible_requests_are_refused(
    db: psycopg.Connection, change: dict[str, Any], request_: Request, message: str
) -> None:
    if change:
        jobs.update(db, "a", change)
    for ask_for in (backfills.add_backfill, backfills.preview_backfill):
        with pytest.raises(InputError, match=message):
            ask_for(db, "a", request_)  # type: ignore[operator]
    with pytest.raises(NotFound):
        backfills.add_backfill(db, "b", request_)


@pytest.mark.parametrize("call", [backfills.show_backfill, backfills.cancel])
@pytest.mark.parametrize("number", [0, 4711, 2**63])
def test_a_backfill_that_does_not_exist_is_not_found(
    db: psycopg.Connection, call: Callable[..., object], number: int
) -> None:
    with pytest.raises(NotFound, match=f"there is no backfill {number}"):
        call(db, number)


def test_an_every_schedule_has_slots_from_the_start_of_the_job_on(db: psycopg.Connection) -> None:
    jobs.update(db, "a", {"schedule": "@every 1h", "starts_at": "2026-05-01T00:30Z"})
    _, choices = backfills.preview_backfill(db, "a", Request("2026-04-01", "2026-05-01T03:00"))
    assert [choice.slot for choice in choices] == [MAY + timedelta(minutes=30 + 60 * n) for n in range(3)]


@pytest.mark.parametrize("expression", ["*/7 3-5 * * *", "0 0 29 2 *", "@every 17m", "30 2 * * SUN"])
def test_slots_in_reverse_mirror_slots_forward_from_any_cursor(expression: str) -> None:
    schedule = parse(expression, "Europe/Berlin", MAY - 400 * DAY)
    start, end = MAY - 40 * DAY, MAY + 1000 * DAY if "29" in expression else MAY
    forward = list(core.slots(schedule, start, end))
    assert list(core.slots(schedule, start, end, reverse=True)) == forward[::-1]
    assert core.count(schedule, start, end) == len(forward) > 0
    for cut in {0, len(forward) // 2, len(forward) - 1}:
        cursor = forward[cut]
        assert list(core.slots(schedule, start, end, cursor=cursor)) == forward[cut + 1 :]
        assert list(core.slots(schedule, start, end, cursor=cursor, reverse=True)) == forward[:cut][::-1]


def test_an_old_backfill_is_pruned_with_history_once_its_last_run_has_ended(db: psycopg.Connection) -> None:
    cancelled, recent, open_still = ask(db, 1), ask(db, 1), ask(db, 2)
    work(db)
    backfills.cancel(db, cancelled)
    list(through(db, recent))
    db.execute("UPDATE pgsched.backfills SET finished_at = finished_at - interval '8 days' WHERE id = %s", [cancelled])
    db.execute("UPDATE pgsched.runs SET state = 'running', finished_at = NULL, token = gen_random_uuid(),"
               " lease_until = clock_timestamp() WHERE backfill_id = %s", [cancelled])  # fmt: skip
    prune(db, 7 * 86_400, 100)
    assert [b["id"] for b in backfills.list_backfills(db)] == [open_still, recent, cancelled], "its run still runs"
    finish(db)
    prune(db, 7 * 86_400, 100)
    assert [b["id"] for b in backfills.list_backfills(db)] == [open_still, recent]
    assert runs.show_run(db, 1)["backfill_id"] == cancelled, "its runs, kept for now, still have its number"


def test_runs_have_the_number_of_their_backfill(db: psycopg.Connection) -> None:
    number = ask(db, 1)
    work(db)
    assert runs.show_run(db, 1)["backfill_id"] == number
