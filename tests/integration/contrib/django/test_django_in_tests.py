"""Tasks in a Django project's own tests: TestCase, TransactionTestCase, the recorder and inline mode; and transactions.

Each test of Django runs as Django's own runner would run it.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import psycopg
import pytest
from django.core import mail
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from pgsched.contrib.django.tasks_api import TaskResultStatus
from pgsched.testing import assert_enqueued, drain, inline, record
from tests.support.django_project.settings import shop_app

pytestmark = [pytest.mark.packages, pytest.mark.scram, pytest.mark.usefixtures("migrated_dsn")]


@pytest.fixture(autouse=True)
def other(migrated_dsn: str) -> Iterator[Any]:
    """Another connection to the database, and Django's environment of tests."""
    mail.outbox = []
    with psycopg.connect(migrated_dsn, autocommit=True) as conn:
        yield conn
        conn.execute("DELETE FROM pgsched.runs")
    del mail.outbox


def count(conn: Any) -> int:
    return int(conn.execute("SELECT count(*) FROM pgsched.runs").fetchone()[0])


def run_case(case: type[TransactionTestCase]) -> None:
    problems = unittest.TestResult()
    unittest.TestSuite([case("test")]).run(problems)
    assert problems.testsRun == 1 and problems.wasSuccessful(), [*problems.errors, *problems.failures]


def test_migrate_has_made_the_schema_and_the_permissions() -> None:
    from django.contrib.auth.models import Permission

    found = Permission.objects.filter(content_type__app_label="pgsched").values_list("codename", flat=True)
    assert {*found} == {"view_run", "retry_run", "cancel_run", "view_job", "run_job", "pause_job"}


def test_a_rollback_takes_the_run_along(tasks: Any, other: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        result = tasks.answer.enqueue()
        result.refresh()
        assert result.status == TaskResultStatus.READY and count(other) == 0
        _ = 1 / 0
    assert count(other) == 0
    with transaction.atomic():
        tasks.answer.enqueue()
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            tasks.answer.enqueue()
            _ = 1 / 0
        assert count(other) == 0
    assert count(other) == 1, "the savepoint took one of them back"


def test_nothing_is_enqueued_in_a_transaction_that_django_will_roll_back(tasks: Any, other: Any) -> None:
    for kit in (nullcontext(), record(shop_app())):
        with kit, transaction.atomic():
            with suppress(ZeroDivisionError), transaction.atomic(savepoint=False):
                _ = 1 / 0
            with pytest.raises(transaction.TransactionManagementError):
                tasks.answer.enqueue()
    tasks.answer.enqueue()
    assert count(other) == 1


def test_in_a_test_case_runs_are_rolled_back_with_the_test(tasks: Any, other: Any) -> None:
    class Case(TestCase):
        def test(self) -> None:
            result = tasks.answer.enqueue()
            assert tasks.answer.get_result(result.id).status == TaskResultStatus.READY
            assert_enqueued(shop_app().find_task("default", tasks.answer), connection=connection)
            assert count(other) == 0

    run_case(Case)
    assert count(other) == 0


def test_in_a_test_case_inline_handlers_see_the_rows_of_the_test(tasks: Any, other: Any) -> None:
    from django.contrib.auth.models import User

    class Case(TestCase):
        def test(self) -> None:
            tasks.ran.clear()
            User.objects.create(username="ada")
            with inline(shop_app()) as recorder:
                for task in (tasks.note_sees_user, tasks.note_sees_user_async):
                    result = task.enqueue("ada")
                    assert result.status == TaskResultStatus.SUCCESSFUL and result.started_at is not None
                with transaction.atomic():
                    pending = tasks.note_sees_user.enqueue("bob")
                    assert pending.status == TaskResultStatus.READY and len(tasks.ran) == 2
                assert len(recorder.runs) == 3
                pending.refresh()
                assert pending.status == TaskResultStatus.SUCCESSFUL
            assert tasks.ran == [True, True, False]

        async def test_async(self) -> None: ...

    run_case(Case)
    assert count(other) == 0 and not User.objects.exists()


def test_in_an_async_test_handlers_see_the_rows_of_the_test(tasks: Any) -> None:
    from django.contrib.auth.models import User

    class Case(TestCase):
        async def test(self) -> None:
            tasks.ran.clear()
            await User.objects.acreate(username="ada")
            with inline(shop_app()):
                result = await tasks.note_sees_user_async.aenqueue("ada")
                assert (await tasks.note_sees_user_async.aget_result(result.id)).is_finished
                await tasks.note_sees_user.aenqueue("ada")
            assert tasks.ran == [True, True]

    run_case(Case)


def test_the_recorder_keeps_runs_until_they_are_drained(tasks: Any, other: Any) -> None:
    class Case(TestCase):
        def test(self) -> None:
            with record(shop_app()) as recorder:
                result = tasks.fail_with_value.enqueue("declined")
                third = tasks.third_time.enqueue()
                assert result.status == TaskResultStatus.READY
                recorder.allow_dead = True
                recorder.drain()
                result.refresh()
                assert result.status == TaskResultStatus.FAILED
                assert [error.exception_class_path for error in result.errors] == ["pgsched.errors.PgschedError"]
                assert "ValueError: declined" in result.errors[0].traceback
                third.refresh()
                assert third.return_value == [3, 0]

    run_case(Case)
    assert count(other) == 0


def test_in_a_transaction_test_case_a_worker_runs_what_is_committed(tasks: Any, other: Any) -> None:
    class Case(TransactionTestCase):
        def test(self) -> None:
            with transaction.atomic():
                result = tasks.answer.enqueue()
                transaction.set_rollback(True)
            with transaction.atomic():
                result = tasks.answer.enqueue()
            assert count(other) == 1
            assert drain(shop_app()) == {"succeeded": 1}
            result.refresh()
            assert result.return_value == 42

    other.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('mine', '@daily', 't')")
    run_case(Case)
    left = "SELECT (SELECT count(*) FROM pgsched.runs) + (SELECT count(*) FROM pgsched.jobs)"
    assert other.execute(left).fetchone() == (0,), "the end of the test empties pgsched's tables as it does Django's"


def test_outside_of_tests_flush_keeps_runs_and_jobs(tasks: Any, other: Any) -> None:
    from django.core.management import call_command

    tasks.answer.enqueue()
    del mail.outbox
    call_command("flush", interactive=False, verbosity=0)
    assert count(other) == 1
    mail.outbox = []
