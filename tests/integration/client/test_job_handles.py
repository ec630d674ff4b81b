"""Handles of jobs: `app.jobs["nightly"]` reads, pauses, runs, changes, backfills and deletes a job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, NotFound, State, TaskError
from tests.support.files.applies import apply

ADD = "INSERT INTO pgsched.jobs (name, task, schedule, timezone) VALUES ('nightly', 't', '0 3 * * *', 'Europe/Vienna')"


@pytest.fixture
def app(dsn: str, db: psycopg.Connection[Any]) -> Iterator[App]:
    db.execute(ADD)
    app = App("shop", dsn=dsn)
    yield app
    app.close()


def test_a_job_is_paused_and_resumed(app: App) -> None:
    job = app.jobs["nightly"]
    job.pause("holidays")
    assert (job.info()["paused"], job.info()["paused_reason"]) == (True, "holidays")
    with pytest.raises(InputError, match='from: "yesterday" is not one of now, pause'):
        job.resume(from_="yesterday")  # type: ignore[arg-type]
    job.resume(from_="pause")
    assert job.info()["paused"] is False
    asyncio.run(job.pause_async())
    asyncio.run(job.resume_async())
    assert asyncio.run(job.info_async())["paused"] is False


def test_a_pause_of_what_a_file_declares_is_logged(
    app: App, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    apply(db, "jobs: {n: {task: t, schedule: '@daily', paused: false}}")
    app.jobs["n"].pause()
    asyncio.run(app.jobs["n"].resume_async())
    assert [record.getMessage() for record in caplog.records if record.name == "pgsched.jobs"] == [
        'the file of owner "ops" declares paused of job n: the next apply sets it back, so change it in the file too'
    ] * 2


def test_a_job_is_run_beside_its_schedule(app: App) -> None:
    job = app.jobs["nightly"]
    run = job.trigger({"a": 1})
    assert (run.state(), run.info().args, run.info().job) == (State.QUEUED, {"a": 1}, "nightly")
    assert asyncio.run(job.trigger_async(overlap="skip")).state() is State.SKIPPED


@dataclass
class Region:
    name: str


def test_a_job_takes_the_arguments_that_an_enqueue_takes(app: App, db: psycopg.Connection[Any]) -> None:
    """Typed arguments, checked against the task where the app has it."""
    db.execute(ADD.replace("nightly", "by_hand").replace("'t'", "'report'"))
    got: list[Any] = []

    @app.task(name="report")
    def report(day: date, region: Region) -> None:
        got.append((day, region))

    day, carried = date(2026, 5, 1), {"day": "2026-05-01", "region": {"name": "eu"}}
    known, unknown = app.jobs["by_hand"], app.jobs["nightly"]
    for given in ({"day": day, "region": Region("eu")}, [day, Region("eu")]):
        run = known.trigger(given)
        assert run.info().args == carried
    assert asyncio.run(known.trigger_async({"day": day, "region": Region("eu")})).info().args == carried
    report.prepare(carried, None)()
    assert got == [(day, Region("eu"))]
    assert unknown.trigger({"day": day}).info().args == {"day": "2026-05-01"}
    known.update(args={"day": day, "region": Region("eu")})
    asyncio.run(unknown.update_async(args={"day": day}))
    assert (known.info()["args"], unknown.info()["args"]) == (carried, {"day": "2026-05-01"})
    unknown.update(task="report", args={"day": day, "region": Region("us")})
    assert unknown.info()["args"]["region"] == {"name": "us"}
    known.update(args=None)
    assert known.info()["args"] == {}


def test_arguments_that_do_not_fit_the_task_of_a_job_are_refused(app: App) -> None:
    app.task(name="t")(lambda n: n)
    job = app.jobs["nightly"]
    for call in (job.trigger, lambda args: job.update(args=args)):
        with pytest.raises(TaskError, match="missing a required argument: 'n'"):
            call({"m": 1})
        with pytest.raises(InputError, match="args: expected a mapping or a sequence, got str"):
            call("n")


def test_columns_of_a_job_are_changed(app: App) -> None:
    job = app.jobs["nightly"]
    job.update(priority=1, timeout=timedelta(minutes=5), description="pays")
    asyncio.run(job.update_async(description=None, tags=["a"]))
    info = job.info()
    assert (info["priority"], info["timeout"], info["description"], info["tags"]) == (
        1, timedelta(minutes=5), None, ["a"],
    )  # fmt: skip
    for wrong, message in (({"prioritaet": 1}, "prioritaet: is not a column"), ({"overlap": "x"}, 'overlap: "x"'),
                           ({}, "nothing to change"), ({"schedule": "61 * * * *"}, "minute: ")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            job.update(**wrong)


def test_the_next_slots_of_a_job_are_foreseen(app: App) -> None:
    slots = app.jobs["nightly"].preview(3)
    assert [slot.local.hour for slot in slots] == [3, 3, 3]
    assert asyncio.run(app.jobs["nightly"].preview_async(3)) == slots


def test_a_slot_is_explained(app: App) -> None:
    job = app.jobs["nightly"]
    assert job.explain("2020-01-01T03:00").slot == datetime(2020, 1, 1, 2, tzinfo=UTC)
    assert "created later" in asyncio.run(job.explain_async(datetime(2020, 1, 1, 2, tzinfo=UTC))).text
    with pytest.raises(InputError, match="at: 2020-01-01 00:00:00 has no time zone"):
        job.explain(datetime(2020, 1, 1))


def test_slots_of_the_past_are_run_again(app: App, db: psycopg.Connection[Any]) -> None:
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp()")
    job, end = app.jobs["nightly"], datetime.now(UTC)
    choices = job.backfill(end - timedelta(days=3), end, dry_run=True)
    assert [choice.action for choice in choices] == ["run"] * 3
    assert db.execute("SELECT count(*) FROM pgsched.backfills").fetchone() == (0,)
    first = job.backfill(end - timedelta(days=3), end, max_active=2, reverse=True)
    second = asyncio.run(job.backfill_async("2020-01-01", end, mode="all"))
    found = db.execute("SELECT id, max_active, reverse, mode FROM pgsched.backfills ORDER BY id").fetchall()
    assert found == [(first, 2, True, "missing"), (second, 1, False, "all")]
    with pytest.raises(InputError, match=r"start: .* has no time zone"):
        job.backfill(datetime(2020, 1, 1), end)


def test_a_job_is_deleted(app: App) -> None:
    job = app.jobs["nightly"]
    job.delete()
    for call in (job.info, job.pause, job.resume, job.trigger, job.delete, job.preview, job.explain):
        with pytest.raises(NotFound, match='there is no job named "nightly"'):
            call()
    with pytest.raises(NotFound):
        asyncio.run(job.delete_async())


def test_an_unknown_job_is_met_with_similar_names(app: App) -> None:
    with pytest.raises(NotFound, match=r"did you mean nightly\?"):
        app.jobs["nightl"].info()
    for name in ("", 7):
        with pytest.raises(InputError, match="job: expected a name"):
            app.jobs[name]  # type: ignore[index]
