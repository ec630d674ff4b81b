"""Values on the caller's connection: each driver takes the same ones, and its refusals are told as those of psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from pgsched import App, InputError, PgschedError, RunHandle, State
from pgsched.client.job_handles import JobHandle
from pgsched.testing import assert_enqueued, enqueued, refute_enqueued
from tests.support.db.engines import url

pytestmark = [pytest.mark.packages, pytest.mark.scram]

Opened = Callable[[], AbstractContextManager[Any]]
AsyncOpened = Callable[[], AbstractAsyncContextManager[Any]]

SET = {
    "timeout": "10 minutes", "retry_within": timedelta(hours=1), "starts_at": "2026-05-01T03:00Z",
    "ends_at": datetime(2040, 1, 1, tzinfo=UTC), "priority": "3", "tags": ["a", "b"], "success_codes": "{0,3}",
    "keep": {"dead": "90 days"}, "args": {"a": [1]}, "description": "what: \"100 %\"", "backoff_jitter": 0.5,
    "alert_after_failures": None, "after_jobs": None,
}  # fmt: skip
REFUSED = [
    ({"priority": "x"}, "priority: "),
    ({"timeout": "soon"}, "timeout: "),
    ({"timeout": 30}, "timeout: "),
    ({"starts_at": "never"}, "starts_at: "),
    ({"starts_at": datetime(2026, 5, 1)}, "starts_at: .* has no time zone"),
    ({"description": "a\0b"}, "NUL|0x00"),
    ({"description": object()}, "object"),
    ({"queue": "q", "max_attempts": [1]}, "max_attempts: "),
]


@pytest.fixture
def app(dsn: str, db: psycopg.Connection[Any]) -> Iterator[App]:
    app = App("shop", dsn=dsn)
    yield app
    app.close()


@pytest.fixture
def job(app: App, db: psycopg.Connection[Any]) -> JobHandle:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 3 * * *')")
    return app.jobs["nightly"]


def settings(job: JobHandle) -> dict[str, Any]:
    return {name: job.info()[name] for name in SET}


def test_all_columns_are_set_alike_on_every_connection(job: JobHandle, opened: Opened) -> None:
    with opened() as mine:
        job.update(connection=mine, **SET)
        mine.commit()
    on_theirs = settings(job)
    job.update(**SET)
    assert on_theirs == settings(job)
    assert (on_theirs["timeout"], on_theirs["priority"]) == (timedelta(minutes=10), 3)


def test_all_columns_are_set_alike_in_asyncio(job: JobHandle, opened_async: AsyncOpened) -> None:
    async def main() -> None:
        async with opened_async() as mine:
            await job.update_async(connection=mine, **SET)
            await mine.commit()

    asyncio.run(main())
    on_theirs = settings(job)
    job.update(**SET)
    assert on_theirs == settings(job)


def test_a_bad_value_is_told_of_on_every_connection(job: JobHandle, opened: Opened) -> None:
    with opened() as mine:
        for columns, message in REFUSED:
            with pytest.raises(InputError, match=message):
                job.update(**columns)
            with pytest.raises(InputError, match=message):
                job.update(connection=mine, **columns)
        job.update(connection=mine, priority=7)
        assert job.info(connection=mine)["priority"] == 7


def test_a_bad_value_is_told_of_in_asyncio(job: JobHandle, opened_async: AsyncOpened) -> None:
    async def main() -> None:
        async with opened_async() as mine:
            for columns, message in REFUSED:
                with pytest.raises(InputError, match=message):
                    await job.update_async(connection=mine, **columns)
            await job.update_async(connection=mine, priority=7)
            assert (await job.info_async(connection=mine))["priority"] == 7

    asyncio.run(main())


def test_every_method_of_a_job_works_on_asyncio_connections(
    job: JobHandle, db: psycopg.Connection[Any], opened_async: AsyncOpened
) -> None:
    async def main() -> None:
        async with opened_async() as mine:
            assert (await job.explain_async("2026-05-01T03:00", connection=mine)).text
            await job.pause_async("why: 100 %", connection=mine)
            await job.resume_async("pause", connection=mine)
            run = await job.trigger_async({"a": [1, "x"]}, overlap="skip", connection=mine)
            assert await run.state_async(connection=mine) is State.QUEUED
            choices = await job.backfill_async("2026-05-01", "2026-05-03", dry_run=True, connection=mine)
            assert len(choices) == 2
            assert await job.backfill_async("2026-05-01", datetime(2026, 5, 3, tzinfo=UTC), connection=mine) > 0
            await job.delete_async(connection=mine)
            await mine.rollback()

    asyncio.run(main())
    assert job.info()["name"] == "nightly"


def test_every_method_of_a_run_works_on_asyncio_connections(app: App, opened_async: AsyncOpened) -> None:
    run = app.enqueue("t", {"a": 1}, tags=["b"])

    async def main() -> None:
        async with opened_async() as mine:
            at = datetime(2040, 1, 1, tzinfo=UTC)
            assert await run.update_async(at=at, queue="q", connection=mine) is State.SCHEDULED
            assert await run.logs_async(connection=mine, stream="stdout") == []
            await run.cancel_async("why", connection=mine)
            assert await run.retry_async(now=True, connection=mine) is State.QUEUED
            found = await app.runs_async(
                state="queued", task="t", queue="q", tag="b", since=timedelta(hours=1), before_id=2**40, limit=3,
                connection=mine,
            )  # fmt: skip
            assert [one.id for one in found] == [run]

    asyncio.run(main())


def test_a_driver_s_refusal_does_not_blame_the_network(app: App, dsn: str) -> None:
    pytest.importorskip("asyncpg")
    run: RunHandle[Any] = app.enqueue("t")

    async def main() -> None:
        engine = create_async_engine(url("asyncpg", dsn))
        async with engine.connect() as mine:
            await mine.execute(sa.text("SELECT 1"))
            raw = (await mine.get_raw_connection()).driver_connection
            busy = asyncio.create_task(raw.fetch("SELECT pg_sleep(0.5)"))
            await asyncio.sleep(0)
            with pytest.raises((sa.exc.DBAPIError, PgschedError), match="another operation is in progress") as refused:
                await run.state_async(connection=mine)
            assert "cannot reach" not in str(refused.value)
            await busy
        await engine.dispose()

    asyncio.run(main())


# ---- graphs, batches and assertions


def test_a_graph_is_part_of_the_caller_s_transaction(app: App, db: psycopg.Connection[Any], opened: Opened) -> None:
    task = app.task(name="t")(lambda n: None)

    def build(mine: Any) -> list[int]:
        with app.graph(connection=mine) as graph:
            first = graph.add(task, 1)
            graph.add(task.options(timeout=30, tags=["x"]), 2, after=[first])
        with app.batch(callback=task, args={"n": 3}, connection=mine) as batch:
            batch.add(task, 4)
        return [*graph.ids, *batch.ids]

    with opened() as mine:
        build(mine)
        mine.rollback()
        assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)
        ids = build(mine)
        mine.commit()
    states = db.execute("SELECT id, state, args FROM pgsched.runs ORDER BY id").fetchall()
    assert states[:3] == [
        (ids[0], "queued", {"n": 1}), (ids[1], "waiting", {"n": 2}), (ids[2], "queued", {"n": 4}),
    ]  # fmt: skip
    assert db.execute("SELECT count(*) FROM pgsched.dependencies").fetchone() == (2,)


def test_a_graph_is_part_of_an_asyncio_transaction(
    app: App, db: psycopg.Connection[Any], opened_async: AsyncOpened
) -> None:
    task = app.task(name="t")(lambda n: None)

    async def main() -> None:
        async with opened_async() as mine:
            for end in (mine.rollback, mine.commit):
                async with app.graph(connection=mine) as graph:
                    graph.add(task, 2, after=[graph.add(task, 1)])
                async with app.batch(callback=task, args={"n": 3}, connection=mine) as batch:
                    batch.add(task, 4)
                await end()

    asyncio.run(main())
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (4,)
    assert db.execute("SELECT count(*) FROM pgsched.dependencies").fetchone() == (2,)


def test_a_graph_that_fails_leaves_the_transaction_usable(app: App, opened: Opened) -> None:
    task = app.task(name="t")(lambda n: None)
    with opened() as mine:
        task.options(connection=mine).enqueue(0)
        graph = app.graph(connection=mine)
        graph.add(task, 1, after=[2**40])
        with pytest.raises((psycopg.errors.ForeignKeyViolation, sa.exc.IntegrityError), match="there is no run"):
            graph.enqueue()
        assert [run.args for run in enqueued(task, connection=mine)] == [{"n": 0}]


def test_assertions_look_into_the_caller_s_transaction(app: App, opened: Opened) -> None:
    task = app.task(name="t")(lambda n: None)
    with opened() as mine:
        task.options(delay=60, tags=["x"], connection=mine).enqueue(1)
        found = assert_enqueued(task, args={"n": 1}, tags=["x"], connection=mine)
        refute_enqueued(task)
        mine.commit()
        assert enqueued(task) == [found]


def test_an_object_that_is_no_connection_is_refused_by_graphs_and_assertions(app: App, dsn: str) -> None:
    task = app.task(name="t")(lambda n: None)
    graph = app.graph(connection=object())
    graph.add(task, 1)
    with pytest.raises(InputError, match="connection: expected"):
        graph.enqueue()
    with pytest.raises(InputError, match="connection: expected"):
        assert_enqueued(task, connection=object())

    async def main() -> None:
        with psycopg.connect(dsn) as mine, pytest.raises(InputError, match="connection: expected"):
            async with app.graph(connection=mine) as graph:
                graph.add(task, 1)

    asyncio.run(main())
