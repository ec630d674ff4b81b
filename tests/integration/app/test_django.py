"""Handlers that use Django's connections: they outlive a restart of the database, and enqueue in its transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgsched import App
from pgsched.core.model import Result
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import claim

pytestmark = [pytest.mark.packages, pytest.mark.scram]

django = pytest.importorskip("django")


@pytest.fixture
def orm(dsn: str) -> Iterator[Any]:
    """Django's default connection, to the test's database."""
    from django.conf import settings
    from django.db import connections

    given = conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given.get("user", ""),
        "PASSWORD": given.get("password", ""), "HOST": given.get("host", ""), "PORT": given.get("port", ""),
        "CONN_MAX_AGE": 600,
    }  # fmt: skip
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    connections.settings["default"].update(database)  # in place: every thread's connection looks there
    connections.close_all()
    yield connections["default"]
    connections.close_all()


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
def test_a_restart_of_the_database_costs_one_attempt_at_most(
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
        await sync_to_async(connections.close_all)()  # in the thread that asgiref keeps beyond a test
        executor = PythonExecutor(app.tasks, 2, hooks=app.hooks)
        found = [(await executor.execute(claim("task", "count"))).result]
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = ''"
        )
        found += [(await executor.execute(claim("task", "count"))).result for _ in range(3)]
        await executor.close()
        return found

    found = asyncio.run(main())
    assert found[0] is Result.SUCCEEDED
    healed = found[2:] == [Result.SUCCEEDED] * 2
    assert healed is helped, f"{found}: without it the connection stays dead for ever"


def test_django_s_connection_takes_the_run_into_its_transaction(orm: Any, app: App, db: psycopg.Connection) -> None:
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
