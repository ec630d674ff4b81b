"""The test kit, which needs no database: recording, inline runs, and a clock that a test can move."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched import AlreadyEnqueued, App, Discard, InputError, Run, Snooze, TaskError, bucket
from pgsched.testing import assert_enqueued, enqueued, record, refute_enqueued

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


# ---- recording


def test_recorded_runs_can_be_asserted(app: App, welcome: Any) -> None:
    with record(app, now=NOON):
        run_id = welcome.options(delay=60).enqueue(7, loud=True)
        run = assert_enqueued(welcome, args={"user": 7}, queue="mail", at=NOON + timedelta(seconds=60), tags=["new"])
        assert (run.id, run.args, run_id.created) == (run_id, {"user": 7, "loud": True}, True)
        refute_enqueued(welcome, args={"user": 8})
        refute_enqueued(welcome, at=NOON)
        refute_enqueued(welcome, queue="default")


def test_tags_may_be_a_tuple_and_an_unknown_column_is_refused(app: App, welcome: Any) -> None:
    with record(app):
        with pytest.raises(InputError, match="quue: no such column of a run; known are args, at, queue, "):
            refute_enqueued(welcome, quue="mail")
        welcome.enqueue(1)
        assert_enqueued(welcome, tags=("new",))
        with pytest.raises(InputError, match="quue: no such column"):
            assert_enqueued(welcome, quue="mail")


def test_a_failed_assertion_lists_the_enqueued_runs(app: App, welcome: Any) -> None:
    with record(app, now=NOON):
        with pytest.raises(AssertionError, match=r"no run of welcome with args=\{'user': 1\} is enqueued; nothing is"):
            assert_enqueued(welcome, args={"user": 1})
        welcome.enqueue(2)
        with pytest.raises(
            AssertionError, match=r"enqueued are:\n  run 1: welcome \{'user': 2\} queue=mail at=2026-03"
        ):
            assert_enqueued(welcome, args={"user": 1})
        with pytest.raises(AssertionError, match="a run of welcome is enqueued; enqueued are:\n  run 1"):
            refute_enqueued(welcome)


def test_arguments_are_checked_and_carried_as_json(app: App, welcome: Any) -> None:
    with record(app):
        with pytest.raises(TaskError, match="user"):
            welcome.enqueue("seven")
        welcome.enqueue_many([{"user": n} for n in range(3)])
        assert [run.args for run in enqueued(welcome)] == [{"user": 0}, {"user": 1}, {"user": 2}]


def test_nothing_is_recorded_after_the_block(app: App, welcome: Any) -> None:
    database = app.database
    with pytest.raises(ZeroDivisionError), record(app):
        raise ZeroDivisionError
    assert app.database is database


def test_drain_runs_due_runs_by_priority_and_those_that_they_enqueue(app: App, welcome: Any, seen: list[Any]) -> None:
    @app.task(name="sign_up", priority=0)
    async def sign_up(user: int) -> None:
        await welcome.enqueue_async(user)

    with record(app, now=NOON) as recorder:
        welcome.enqueue(1)
        welcome.options(delay=60).enqueue(3)
        sign_up.enqueue(2)
        assert [run.task for run in recorder.drain()] == ["sign_up", "welcome", "welcome"]
        assert seen == [(1, False), (2, False)]
        recorder.travel(59)
        assert recorder.drain() == []
        recorder.travel(1)
        (run,) = recorder.drain()
        assert (run.state, run.result, seen[-1]) == ("succeeded", 6, (3, False))


def test_drain_takes_one_queue_and_later_runs_if_asked(app: App, welcome: Any, seen: list[Any]) -> None:
    with record(app) as recorder:
        welcome.options(queue="other").enqueue(1)
        welcome.options(delay=timedelta(days=9)).enqueue(2)
        assert len(recorder.drain("mail")) == 0
        assert len(recorder.drain("mail", scheduled=True)) == 1
        assert seen == [(2, False)]


@pytest.mark.parametrize("wait_s", [60, 0])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_drain_leaves_a_run_that_only_snoozes(is_async: bool, wait_s: float, app: App) -> None:
    tries: list[str] = []
    ended: list[str] = []

    @app.task(name="polls", priority=0)
    def polls(what: str) -> None:
        tries.append(what)
        assert len(tries) < 20, "without an end"
        if what not in ended:
            raise Snooze(wait_s)

    @app.task(name="ends")
    def ends() -> None:
        ended.append("end")

    with record(app) as recorder:

        def drain() -> list[str]:
            ran = asyncio.run(recorder.drain_async(scheduled=True)) if is_async else recorder.drain(scheduled=True)
            return [run.task for run in ran]

        polls.enqueue("never")
        assert drain() == drain() == ["polls"], "each drain tries it once"
        assert [(run.is_open, run.attempt) for run in recorder.runs] == [(True, 0)]
        ends.enqueue()
        polls.enqueue("end")
        drain()
        assert [run.is_open for run in recorder.runs] == [True, False, False]
        assert tries.count("end") == 2, "the end of another run lets it try again"


def test_unique_keys_hold_as_they_do_in_a_database(app: App, welcome: Any) -> None:
    with record(app, now=NOON) as recorder:
        first = welcome.options(unique_key="k").enqueue(1)
        again = welcome.options(unique_key="k").enqueue(2)
        assert (again, again.how) == (first, "existing")
        assert welcome.options(unique_key="k", on_conflict="replace", delay=60).enqueue(3).how == "replaced"
        assert_enqueued(welcome, args={"user": 3}, at=NOON + timedelta(seconds=60))
        with pytest.raises(AlreadyEnqueued):
            welcome.options(unique_key="k", on_conflict="reject").enqueue(4)
        recorder.drain(scheduled=True)
        assert welcome.options(unique_key="k").enqueue(5).created
        hourly = welcome.options(unique_key="k", unique_scope=bucket(3600))
        assert [hourly.enqueue(6).how, hourly.enqueue(7).how] == ["created", "existing"]
        recorder.travel(timedelta(hours=1))
        assert hourly.enqueue(8).created


def test_idempotency_keys_keep_the_first_result(app: App, welcome: Any) -> None:
    with record(app) as recorder:
        once = welcome.options(idempotency_key="k", idempotency_retention=60)
        first = once.enqueue(21)
        recorder.drain()
        assert (once.enqueue(21), once.enqueue(21).how) == (first, "repeated")
        assert app.first_result("k").result == 42  # type: ignore[union-attr]
        recorder.travel(61)
        assert app.first_result("k") is None and once.enqueue(21).created


def test_a_run_waits_for_its_parents(app: App, welcome: Any, seen: list[Any]) -> None:
    with record(app) as recorder:
        parent = welcome.options(priority=9).enqueue(1)
        welcome.options(priority=0, after=[parent]).enqueue(2)
        recorder.drain()
    assert seen == [(1, False), (2, False)]


def test_after_any_needs_only_one_parent(app: App, welcome: Any, seen: list[Any]) -> None:
    with record(app) as recorder:
        soon, later = welcome.enqueue(1), welcome.options(delay=60).enqueue(2)
        welcome.options(after_any=[later, soon]).enqueue(3)
        recorder.drain()
    assert seen == [(1, False), (3, False)]


@pytest.mark.parametrize(
    ("on_failure", "states"),
    [
        (None, ["dead", "cancelled", "cancelled", "succeeded", "cancelled", "succeeded"]),
        ("cancel", ["dead", "cancelled", "cancelled", "succeeded", "cancelled", "succeeded"]),
        ("run_anyway", ["dead", "succeeded", "succeeded", "succeeded", "succeeded", "succeeded"]),
        ("wait", ["dead", "waiting", "waiting", "succeeded", "waiting", "succeeded"]),
    ],
)
def test_a_run_whose_parent_fails_becomes_what_on_failure_says(
    on_failure: Any, states: list[str], app: App, welcome: Any
) -> None:
    @app.task
    def fails() -> None:
        raise Discard("no")

    with record(app) as recorder:
        parent = fails.enqueue()
        child = welcome.options(after=[parent], on_failure=on_failure).enqueue(1)
        welcome.options(after=[child], on_failure=on_failure).enqueue(2)
        other = welcome.enqueue(3)
        welcome.options(after_any=[parent], on_failure=on_failure).enqueue(4)
        welcome.options(after_any=[parent, other], on_failure=on_failure).enqueue(5)
        recorder.drain()
        assert [run.state for run in recorder.runs] == states


def test_graphs_are_refused(app: App) -> None:
    with record(app), pytest.raises(InputError, match="graphs, batches, counts and DatabaseClock need a database"):
        app.database.send(None, lambda conn: conn)


# ---- jobs


def test_each_slot_that_the_clock_passes_makes_a_run(app: App, seen: list[Any]) -> None:
    @app.job(schedule="30 2 * * *", timezone="Europe/Berlin", name="nightly", args={"days": 1}, queue="night")
    @app.task(name="report")
    def report(run: Run, days: int) -> None:
        assert run.interval is not None and run.interval.end == run.scheduled_at
        seen.append((run.scheduled_at, run.interval.start, f"{run.slot_local:%H:%M}"))

    with record(app, now=NOON) as recorder:
        recorder.travel(to=datetime(2026, 3, 30, 12, tzinfo=UTC))
        assert_enqueued(report, args={"days": 1}, queue="night", slot=datetime(2026, 3, 29, 1, tzinfo=UTC))
        recorder.drain()
    moved = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # 02:30 does not exist that night: the first instant after it
    assert seen == [
        (moved, datetime(2026, 3, 28, 1, 30, tzinfo=UTC), "03:00"),
        (datetime(2026, 3, 30, 0, 30, tzinfo=UTC), moved, "02:30"),
    ]


def test_every_counts_from_the_start_however_the_clock_is_moved(app: App) -> None:
    @app.job(schedule="@every 90s")
    @app.task(name="tick")
    def tick() -> None: ...

    with record(app, now=NOON) as recorder:
        for _ in range(6):
            recorder.travel(60)
        assert [run.at - NOON for run in enqueued(tick)] == [timedelta(seconds=90 * n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("travel", "message"),
    [
        ({}, "either how far, or to when"),
        ({"by": 1, "to": NOON}, "either how far, or to when"),
        ({"by": -1}, "back in time"),
        ({"to": NOON - timedelta(days=1)}, "back in time"),
        ({"to": datetime(2027, 1, 1)}, "expected a datetime with a time zone"),
    ],
)
def test_a_clock_travels_only_forward_and_needs_one_target(travel: Any, message: str, app: App) -> None:
    with record(app, now=NOON) as recorder, pytest.raises(InputError, match=message):
        recorder.travel(**travel)
