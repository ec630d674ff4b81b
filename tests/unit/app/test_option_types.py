"""What a type checker says of options, declarations and enqueues: mypy --strict and pyright (strict) read this file.

A line that must be refused has `type: ignore`; both refuse an ignore that nothing needs.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type, get_type_hints

import pytest

from pgsched import App, RunHandle, State, bucket, sliding
from pgsched.app.declarations import POLICIES, JobKeywords
from pgsched.app.options import OPTIONS, OptionKeywords, Options

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from sqlalchemy import Connection as SqlConnection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from pgsched.db.callers.connection_types import DjangoConnection

app = App("types")


@app.task(
    name="types.send", unique_key="user {user}", unique_scope=sliding(60), on_conflict="merge", debounce_max=60,
    backoff=lambda attempt, error: timedelta(seconds=attempt), expires=60, keep=timedelta(days=1), concurrency=5,
    rate="100/m", retry_on=(OSError,),
)  # fmt: skip
def send(user: int, text: str = "") -> None: ...


def check_enqueues(conn: Connection[Any], other: AsyncConnection[Any]) -> None:
    assert_type(send.enqueue(7, text="hi"), RunHandle[None])
    assert_type(send.enqueue(7, connection=conn), RunHandle[None])
    mine = send.options(connection=conn, unique_by=("user",), unique_scope="while_queued")
    assert_type(mine.enqueue(7), RunHandle[None])
    assert_type(send.enqueue_many([[7]]), int)
    assert_type(send.enqueue_many([{"user": 7}], return_ids=True), list[RunHandle[None]])
    assert_type(send.options(expires=5).enqueue_many([[7]]), int)
    assert_type(send.options(expires=5).enqueue_many([[7]], return_ids=True), list[RunHandle[None]])
    assert_type(send.enqueue_many([[7]], idempotency_keys=["a"]), int)
    assert_type(send.options(expires="1h").enqueue_many([[7]], idempotency_keys=["a"]), int)
    send.enqueue("7")  # type: ignore[call-overload]
    send.enqueue(7, connection=other)  # type: ignore[call-overload]
    send.enqueue(7, connection=5)  # type: ignore[call-overload]
    send.options(connection=conn).enqueue("7")  # type: ignore[arg-type]
    send.enqueue_many([5])  # type: ignore[list-item]
    send.enqueue_many([[7]], idempotency_keys=[5])  # type: ignore[list-item]
    send.enqueue_many([[7]], connection=other)  # type: ignore[call-overload]


def check_options() -> None:
    send.options(delay="1h 30m", timeout=timedelta(minutes=1), keep=60, debounce_max="10 minutes")
    send.options(unique_scope=bucket(60), backoff="fixed", backoff_base=5, unique_by=True)
    send.options(backoff="constant")  # type: ignore[arg-type]
    send.options(unique_scope="hourly")  # type: ignore[arg-type]
    send.options(on_conflict="mix")  # type: ignore[arg-type]
    send.options(keeep=5)  # type: ignore[call-arg]
    app.task(backoff="constant")  # type: ignore[call-overload]
    app.task(retry_on="OSError")  # type: ignore[call-overload]


def check_jobs() -> None:
    app.job(schedule="@daily", overlap="skip", keep={"dead": 60}, tags=["a"], after_jobs=["b"], backoff="linear")
    app.job(schedule="@daily", overlap="skipp")  # type: ignore[arg-type]
    app.job(schedule="@daily", max_atempts=5)  # type: ignore[call-arg]
    app.job(schedule="@daily", priority="high")  # type: ignore[arg-type]


@app.task(name="types.count")
async def count(day: date | None = None) -> dict[str, int]:
    return {str(day): 1}


def check_handles(conn: SqlConnection, session: Session, django: DjangoConnection) -> None:
    run = count.enqueue(day=date(2026, 1, 31), connection=session)
    assert_type(run.result(timeout=30), dict[str, int])
    assert_type(run.update(priority=5, at=datetime(2026, 1, 31, tzinfo=UTC), connection=conn), State)
    assert_type(run.state(connection=django), State)
    assert_type(run.retry(now=True, connection=session), State)
    assert_type(app.enqueue("types.count", {"day": "2026-01-31"}, connection=session), RunHandle[Any])
    assert_type(app.run(7).result(), Any)
    app.jobs["nightly"].trigger({"day": "2026-01-31"}, overlap="skip")
    app.jobs["nightly"].update(schedule="@daily", connection=conn)
    run.update(priority="high")  # type: ignore[arg-type]
    run.cancel(connection=5)  # type: ignore[arg-type]
    app.jobs["nightly"].pause(connection="shop")
    app.jobs["nightly"].trigger(overlap="skipp")  # type: ignore[arg-type]


async def check_asyncio(session: AsyncSession, conn: AsyncConnection[Any]) -> None:
    run = await count.enqueue_async(connection=session)
    assert_type(await run.result_async(timeout=30), dict[str, int])
    await run.cancel_async("not needed", connection=conn)
    run.cancel(connection=conn)  # type: ignore[arg-type]
    async with app.worker(concurrency=4, queues=["mail"]):
        pass


@pytest.mark.parametrize(
    ("keywords", "known"), [(OptionKeywords, OPTIONS), (JobKeywords, POLICIES)], ids=["options", "policies"]
)
def test_the_keywords_that_a_type_checker_knows_are_all_there_are(keywords: Any, known: dict[str, Any]) -> None:
    assert {*get_type_hints(keywords)} == {*known}


def test_each_option_has_a_field() -> None:
    assert {*Options.__dataclass_fields__} == {*OPTIONS}
