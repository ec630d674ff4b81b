"""Handlers that use Django's connections: they survive a database restart, and enqueue in Django's transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.core.model import Result
from pgsched.execute.python.executor import PythonExecutor
from tests.support.django_orm import django_connection
from tests.support.executing import claim

pytestmark = [pytest.mark.packages, pytest.mark.scram]

pytest.importorskip("django")


@pytest.fixture
def orm(dsn: str) -> Iterator[Any]:
    """Yield Django's default connection, set to the test's database."""
    with django_connection(dsn) as connection:
        yield connection


def count() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgsched.jobs")
        return int(cursor.fetchone()[0])


async def count_async() -> int:
    from asgiref.sync import sync_to_async

    return int(await sync_to_async(count)())


@pytest.mark.usefixtures("orm")
@pytest.mark.parametrize("helped", [True, False])
@pytest.mark.parametrize("handler", [count, count_async])
def test_close_connections_limits_a_database_restart_to_one_failed_attempt(
    handler: Any, helped: bool, db: psycopg.Connection
) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections

    app = App("shop")
    app.task(name="count")(handler)
    if helped:
        from pgsched.contrib.django import close_connections

        close_connections(app)

    async def main() -> list[Result]:
        await sync_to_async(connections.close_all)()  # asgiref keeps its thread from one test to the next
        executor = PythonExecutor(app.tasks, 1, hooks=app.hooks)  # each attempt in the same thread
        found = [(await executor.execute(claim("task", "count"))).result]
        db.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = ''"
        )
        found += [(await executor.execute(claim("task", "count"))).result for _ in range(3)]
        await executor.close()
        return found

    found = asyncio.run(main())
    assert found[0] is Result.SUCCEEDED
    healed = found[2:] == [Result.SUCCEEDED] * 2
    assert healed is helped, f"{found}: without it the connection stays dead for ever"


def test_a_run_enqueued_on_django_s_connection_is_part_of_its_transaction(
    orm: Any, app: App, db: psycopg.Connection
) -> None:
    from django.db import connection, transaction

    @app.task(name="mail")
    def mail(user: int) -> None: ...

    for given in (connection, orm):
        with transaction.atomic():
            mail.options(connection=given).enqueue(user=1)
            transaction.set_rollback(True)
        assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)
    with transaction.atomic():
        mail.options(connection=connection).enqueue(user=2)
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (1,)
