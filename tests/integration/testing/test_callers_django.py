"""The recorder honours the caller's commit and rollback: Django."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from pgsched import App
from pgsched.testing import assert_enqueued, inline, record
from tests.support.django_project.settings import django_connection
from tests.support.timing import count_calls

pytestmark = [pytest.mark.packages, pytest.mark.scram]


def users(runs: list[Any]) -> list[int]:
    return [run.args["user"] for run in runs]


@pytest.fixture
def orm(dsn: str) -> Iterator[Any]:
    pytest.importorskip("django")
    with django_connection(dsn) as connection:
        yield connection


@pytest.mark.usefixtures("orm")
def test_runs_in_django_s_atomic_blocks_count_after_the_outermost_one(app: App, welcome: Any, seen: list[Any]) -> None:
    from django.db import connection, transaction

    with inline(app) as recorder:
        welcome.enqueue(1, connection=connection)
        assert seen == [1], "without a block each statement commits by itself"
        with transaction.atomic():
            welcome.enqueue(2, connection=connection)
            with transaction.atomic():
                welcome.enqueue(3, connection=connection)
            with transaction.atomic():
                welcome.enqueue(4, connection=connection)
                transaction.set_rollback(True)
            assert users(recorder.pending(connection)) == [2, 3]
            assert seen == [1]
        assert seen == [1, 2, 3], "at the commit"
        with transaction.atomic():
            welcome.enqueue(5, connection=connection)
            transaction.set_rollback(True)
        assert users(recorder.runs) == [1, 2, 3] and recorder.pending() == []


@pytest.mark.usefixtures("orm")
@pytest.mark.parametrize("is_nested", [True, False], ids=["nested blocks", "one block"])
def test_an_enqueue_costs_as_little_however_many_are_in_django_s_blocks(
    is_nested: bool, app: App, welcome: Any
) -> None:
    from django.db import connection, transaction

    def cost(count: int) -> int:
        def work() -> None:
            for user in range(count):
                with transaction.atomic() if is_nested else nullcontext():
                    welcome.enqueue(user, connection=connection)

        with record(app) as recorder, transaction.atomic():
            calls = count_calls(work)
            assert len(recorder.pending(connection)) == count
        return calls

    cost(1)
    few, many = cost(20), cost(80)
    assert many < 5 * few, f"{few} calls for 20 runs, {many} for 80"


@pytest.mark.usefixtures("orm")
def test_a_hook_of_django_that_enqueues_does_not_lose_the_runs_of_its_transaction(app: App, welcome: Any) -> None:
    from django.db import connection, transaction

    with record(app) as recorder:
        with transaction.atomic():
            transaction.on_commit(lambda: welcome.enqueue(1) and None)
            for user in (2, 3):
                welcome.options(unique_key=f"u{user}", connection=connection).enqueue(user)
            transaction.on_commit(lambda: welcome.enqueue(4) and None)
        assert sorted(users(recorder.runs)) == [1, 2, 3, 4]
        assert not welcome.options(unique_key="u3").enqueue(5).created, "nor their keys"


@pytest.mark.usefixtures("orm")
def test_inside_django_s_test_case_the_blocks_of_the_program_count(app: App, welcome: Any, seen: list[Any]) -> None:
    from django.db import connection, transaction
    from django.test import TestCase

    class Case(TestCase):
        def runTest(self) -> None:  # noqa: N802
            with inline(app) as recorder:
                welcome.enqueue(1, connection=connection)
                assert seen == [1]
                with transaction.atomic():
                    welcome.enqueue(2, connection=connection)
                    assert users(recorder.runs) == [1]
                assert users(recorder.runs) == seen == [1, 2]
                with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                    welcome.enqueue(3, connection=connection)
                assert seen == [1, 2, 3], "no look at the recorder is needed"
                with transaction.atomic():
                    welcome.enqueue(4, connection=connection)
                    transaction.set_rollback(True)
                assert users(recorder.runs) == [1, 2, 3]

    problems = unittest.TestResult()
    unittest.TestSuite([Case()]).run(problems)
    assert problems.testsRun == 1 and problems.wasSuccessful(), [*problems.errors, *problems.failures]


@pytest.mark.usefixtures("orm")
@pytest.mark.parametrize("enqueued_by", ["plain", "async"])
def test_inside_django_s_test_case_handlers_see_the_rows_of_the_test(enqueued_by: str) -> None:
    """Also plain handlers with async middleware around them, for which the kit needs an event loop."""
    from asgiref.sync import async_to_sync, sync_to_async
    from django.db import connection
    from django.test import TestCase

    from pgsched.contrib.django import close_connections

    app, seen = App("shop"), []
    close_connections(app)

    @app.task(name="count")
    def count() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM orders")
            seen.append(cursor.fetchone())

    @app.task(name="count_async")
    async def count_async() -> None:
        await sync_to_async(count.function)()

    class Case(TestCase):
        def runTest(self) -> None:  # noqa: N802
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE orders AS SELECT 7 AS id")  # nobody else sees it before the commit
            with inline(app):
                if enqueued_by == "plain":
                    count.enqueue()
                    count_async.enqueue()
                else:
                    async_to_sync(self.enqueue)()

        async def enqueue(self) -> None:
            await count.enqueue_async()
            await count_async.enqueue_async()

    problems = unittest.TestResult()
    unittest.TestSuite([Case()]).run(problems)
    assert problems.testsRun == 1 and problems.wasSuccessful(), [*problems.errors, *problems.failures]
    assert seen == [(1,), (1,)]


@pytest.mark.usefixtures("orm")
def test_the_kit_closes_no_connection_of_the_test() -> None:
    from django.db import connection

    from pgsched.contrib.django import close_connections

    app = App("shop")
    close_connections(app)
    app.task(name="t")(lambda: None)
    connection.ensure_connection()
    before, connection.close_at = connection.connection, 0  # too old, so that a request would close it
    with inline(app):
        app.tasks["t"].enqueue()
    assert connection.connection is before


@pytest.mark.usefixtures("orm")
def test_inline_a_dead_run_fails_the_test_and_not_django_s_commit(app: App, welcome: Any) -> None:
    from django.db import connection, transaction

    with inline(app) as recorder:
        with transaction.atomic():
            welcome.enqueue(-1, connection=connection)
        with pytest.raises(ValueError, match="no user -1"):
            assert_enqueued(welcome)
        assert recorder.runs[0].state == "dead"
