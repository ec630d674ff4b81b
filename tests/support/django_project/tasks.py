"""The tasks of the Django project of tests; they work with `django.tasks` and with the package django-tasks."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import django
from asgiref.sync import sync_to_async

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from pgsched import Retry
from pgsched.contrib.django import periodic, task_options

ran: list[Any] = []  # what handlers note


@task()
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task
async def echo_async(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task
def answer() -> int:
    return 42


@task(priority=30, queue_name="mail")
def welcome(user: int, name: str = "you") -> str:
    ran.append((user, name))
    return f"welcome, {name}"


@task
def fail_with_value(text: str = "no luck") -> None:
    raise ValueError(text)


@task
async def fail_async() -> None:
    raise LookupError("not here")


@task
def fail_with_exit() -> None:
    raise SystemExit("this is the end")


@task
def fail_in_a_chain() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError(ValueError("second")) from error


class Declined(Exception):
    """An exception of the project."""


@task
def decline() -> None:
    raise Declined("card 4")


@task
def return_a_function() -> Any:
    return lambda: True


@task
def return_a_tuple() -> Any:
    return ("a", b"b", {"c": (1, 2)})


@task(takes_context=True)
def own_id(context: Any) -> str:
    return str(context.task_result.id)


@task(takes_context=True)
async def own_state(context: Any, given: int) -> list[Any]:
    result = context.task_result
    return [str(result.status), result.kwargs, result.attempts, context.attempt, given, result.enqueued_at is not None]


@task_options(max_attempts=3, backoff_base=0)
@task(takes_context=True)
def third_time(context: Any) -> list[Any]:
    if context.attempt < 3:
        raise Retry(0, f"attempt {context.attempt}")
    context.run.progress(3, 3, "done")
    return [context.attempt, len(context.task_result.errors)]


@task_options(timeout=0.2)
@task
def too_long() -> None:
    time.sleep(1)


@task(takes_context=True)
def pay(context: Any, order: int, how: str) -> str:
    """Write and succeed in one transaction, or fail in it; the table is made by the test."""
    from django.db import connection, transaction

    given = "default" if how == "alias" else connection
    if how == "nested":
        with transaction.atomic(), context.run.transaction(given):
            raise AssertionError("not reached")
    with context.run.transaction(given), connection.cursor() as cursor:
        context.run.set_result(f"paid {order}")
        cursor.execute("INSERT INTO paid VALUES (%s)", [order])
        answer.enqueue()
        if how == "fails":
            raise ValueError("declined")
        if how == "set_rollback":
            transaction.set_rollback(True)
        if how == "caught":
            with suppress(ValueError), transaction.atomic(savepoint=False):
                raise ValueError("declined")
        if how == "broken":
            with suppress(ValueError), transaction.atomic(savepoint=False):
                raise ValueError("declined")
            answer.enqueue()
    return "what is returned after the transaction is not kept"


@task(takes_context=True)
def assert_and_pay(context: Any, order: int) -> None:
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        context.run.assert_claim("default")
        cursor.execute("INSERT INTO paid VALUES (%s)", [order])
    context.run.assert_claim(connection)


@task
def count_users() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgsched.jobs")
        return int(cursor.fetchone()[0])


@task
async def count_users_async() -> int:
    return int(await sync_to_async(count_users.func)())


begun, go_on = asyncio.Event(), asyncio.Event()  # of `session_twice`


def session() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task
async def session_async() -> int:
    return await sync_to_async(session)()


@task
async def session_twice() -> list[int]:
    first = await sync_to_async(session)()
    begun.set()
    await go_on.wait()
    return [first, await sync_to_async(session)()]


@task
def note_sees_user(name: str) -> None:
    from django.contrib.auth.models import User

    ran.append(User.objects.filter(username=name).exists())


@task
async def note_sees_user_async(name: str) -> None:
    from django.contrib.auth.models import User

    ran.append(await User.objects.filter(username=name).aexists())


@periodic(schedule="0 3 * * *", timezone="Europe/Vienna", args={"user": 1}, name="nightly welcome", description="why")
@periodic(schedule="@every 1h", args=[2, "all"], name="hourly welcome", overlap="allow")
@task
def welcome_again(user: int, name: str = "you") -> None: ...


@task_options(unique_key="import {path}", timeout=60, tags=["files"])
@task
def import_file(path: str) -> None: ...


@task
def takes_connection(connection: str, run: int, /, *rest: int, last: int) -> list[Any]:
    return [connection, run, rest, last]


@task
def positional_names(connection: str, run: int = 1) -> list[Any]:
    return [connection, run]
