"""Handlers that use Django's connections: they survive a database restart, and enqueue in Django's transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable, InputError, State
from pgsched.core.model import Result
from pgsched.execute.python.executor import PythonExecutor
from pgsched.testing import enqueued
from tests.support.django_project.settings import django_connection
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

    for given in (connection, orm, "default"):
        with transaction.atomic():
            run = mail.options(connection=given).enqueue(user=1)
            assert run.state(connection=given) is State.QUEUED
            assert mail.enqueue_many([{"user": 2}, {"user": 3}], connection=given) == 2
            transaction.set_rollback(True)
        assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)
    with transaction.atomic():
        mail.options(connection="default").enqueue(user=2)
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (1,)


@pytest.mark.parametrize("settings", [{}, {"TIME_ZONE": "Asia/Tokyo"}])
def test_values_are_read_on_django_s_connection_as_on_our_own(orm: Any, app: App, settings: dict[str, str]) -> None:
    """Django itself reads JSON as text, and instants in the zone of its settings: both stay so."""
    orm.settings_dict.update({"TIME_ZONE": None, **settings})
    orm.close()
    for name in ("timezone", "timezone_name"):
        orm.__dict__.pop(name, None)  # cached
    with orm.cursor() as cursor:
        before = "SELECT '{\"a\": 1}'::jsonb, TIMESTAMPTZ '2026-01-01 00:00Z'"
        cursor.execute(before)
        expected = cursor.fetchone()
        assert expected[0] == '{"a": 1}'
        run = app.enqueue("t", {"a": [1, None]}, tags=["b"])
        for given in ("default", orm):
            assert run.info(connection=given) == run.info()
            assert app.runs(connection=given) == app.runs()
        (found,) = enqueued(app, connection="default")
        assert (found.args, found.at) == ({"a": [1, None]}, run.info().available_at)
        cursor.execute(before)
        assert cursor.fetchone() == expected


@pytest.mark.usefixtures("orm")
def test_what_is_no_connection_of_django_is_refused(app: App) -> None:
    run = app.enqueue("t")
    for given, why in (
        ("defalt", "Django's DATABASES has no 'defalt'; it has default, lite"),
        ("lite", "it is of sqlite, and runs are in PostgreSQL"),
        ("postgresql://me:secret@db/app", "expected a connection, or an alias of Django's DATABASES, got a text"),
        ("", "expected a connection, or an alias"),
    ):
        for call in (lambda given=given: app.enqueue("t", connection=given),
                     lambda given=given: run.state(connection=given)):  # fmt: skip
            with pytest.raises(InputError) as refused:
                call()
            assert why in str(refused.value) and "secret" not in str(refused.value)


def test_the_asyncio_forms_say_what_to_do_with_django_s_connections(orm: Any, app: App) -> None:
    async def main() -> None:
        run = app.run(1)
        for given in (orm, "default"):
            for call in (lambda given=given: app.enqueue_async("t", connection=given),
                         lambda given=given: run.state_async(connection=given)):  # fmt: skip
                with pytest.raises(InputError, match="call the form without _async by asgiref's sync_to_async"):
                    await call()
        await app.close_async()

    asyncio.run(main())


def test_django_replaces_a_dead_connection_on_which_only_pgsched_works(orm: Any, app: App, db: Any) -> None:
    from django.db import OperationalError, close_old_connections

    run = app.enqueue("t", connection="default")
    for call in (lambda: app.enqueue("t", connection="default"), lambda: run.state(connection="default")):
        db.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = ''"
                   " AND datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        with pytest.raises((psycopg.OperationalError, OperationalError, DatabaseUnreachable)):
            call()
        close_old_connections()  # as before the next request
        call()


def test_a_connection_whose_health_is_to_be_checked_is_checked(orm: Any, app: App, db: Any) -> None:
    from django.db import close_old_connections

    orm.settings_dict["CONN_HEALTH_CHECKS"] = True
    try:
        app.enqueue("t", connection=orm)
        orm.close()
        app.enqueue("t", connection=orm)
        db.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = ''"
                   " AND datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        close_old_connections()
        app.enqueue("t", connection=orm)
    finally:
        orm.settings_dict["CONN_HEALTH_CHECKS"] = False
        orm.close()
