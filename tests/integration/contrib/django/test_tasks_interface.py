"""The interface of Django's Tasks with the backend of pgsched: what its public documentation and test suites ask for.

These are tests of what a program that enqueues sees; results are in test_tasks_results.py, and what a worker does is in
test_tasks_at_work.py. The same tests run with Django 6 (`.ci/long`) and with the package django-tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings
from django.utils import timezone
from django.utils.module_loading import import_string

from pgsched.contrib.django.backend import PgschedBackend
from pgsched.contrib.django.tasks_api import (
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultStatus,
    signals,
    task_backends,
)
from pgsched.contrib.django.tasks_api import tasks as api
from tests.support.django_project.settings import BACKEND, TASKS

pytestmark = [pytest.mark.packages, pytest.mark.scram, pytest.mark.usefixtures("project_dsn")]


@pytest.fixture
def db(project_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(project_dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def sent() -> Iterator[list[Any]]:
    """The results that the signal task_enqueued brings."""
    found: list[Any] = []

    def note(sender: Any, task_result: Any, **_: Any) -> None:
        found.append((sender, task_result.id))

    signals.task_enqueued.connect(note)
    yield found
    signals.task_enqueued.disconnect(note)


# ---- the backend


def test_the_backend_is_the_one_of_the_settings() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, PgschedBackend) and api.default_task_backend == backend
    assert (backend.alias, backend.queues, backend.options) == ("default", {"default", "mail"}, {"APP": "shop"})
    supported = (backend.supports_defer, backend.supports_async_task, backend.supports_get_result,
                 backend.supports_priority)  # fmt: skip
    assert supported == (True, True, True, True)
    assert [*backend.check()] == []


def test_a_backend_that_is_not_there_is_refused(tasks: Any) -> None:
    with pytest.raises(InvalidTaskBackend, match="The connection 'unknown' doesn't exist"):
        tasks.echo.using(backend="unknown")
    with pytest.raises(InvalidTaskBackend, match=r"Could not find backend 'does\.not\.exist'"):
        tasks.echo.using(backend="missing")
    with override_settings(TASKS={}), pytest.raises(InvalidTaskBackend):
        tasks.echo.enqueue()
    with (
        override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"QUEUE": 1}}}),
        pytest.raises(InvalidTaskBackend, match=r"TASKS\['default'\]\['OPTIONS'\]: QUEUE: no such option"),
    ):
        tasks.echo.enqueue()


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({}, []),
        ({"DATABASE": "nowhere"}, ["pgsched.E001", "pgsched.E003"]),
        ({"DATABASE": "lite"}, ["pgsched.E002"]),
        ({"APP": "other"}, ["pgsched.E003"]),
    ],
)
def test_the_system_check_finds_wrong_settings(changed: dict[str, str], problems: list[str]) -> None:
    first = {"BACKEND": BACKEND, "OPTIONS": {"APP": "shop", **changed}}
    second = {"BACKEND": BACKEND, "OPTIONS": {"APP": "shop" if changed.get("APP") else "else",
                                              "DATABASE": changed.get("DATABASE", "default")}}  # fmt: skip
    if not changed or changed.get("DATABASE") == "lite":
        second = first
    with override_settings(TASKS={"default": first, "second": second}):
        found = [one.id for one in task_backends["default"].check()]
        assert [*dict.fromkeys(found)] == problems


def test_the_system_check_warns_without_the_application() -> None:
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"]):
        assert [one.id for one in task_backends["default"].check()] == ["pgsched.W001"]


# ---- tasks


def test_the_decorator_makes_tasks(tasks: Any) -> None:
    assert isinstance(tasks.echo, Task) and isinstance(tasks.echo_async, Task) and isinstance(tasks.answer, Task)
    assert (tasks.echo.name, tasks.echo.module_path) == ("echo", f"{tasks.__name__}.echo")
    assert import_string(tasks.echo.module_path) is tasks.echo
    assert isinstance(tasks.echo.get_backend(), PgschedBackend)


def test_using_makes_another_task_and_leaves_the_first_as_it_is(tasks: Any) -> None:
    now = timezone.now()
    assert tasks.echo.using() == tasks.echo and tasks.echo.using() is not tasks.echo
    changed = tasks.echo.using(priority=10).using(queue_name="mail").using(run_after=now)
    assert (changed.priority, changed.queue_name, changed.run_after) == (10, "mail", now)
    assert (tasks.echo.priority, tasks.echo.queue_name, tasks.echo.run_after) == (0, "default", None)


@pytest.mark.parametrize("priority", [-101, 101, 3.1])
def test_a_priority_out_of_range_is_refused(tasks: Any, priority: float) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number between -100 and 100"):
        tasks.echo.using(priority=priority)
    for allowed in (-100, 0, 100):
        assert tasks.echo.using(priority=allowed).priority == allowed


def test_a_queue_that_the_backend_does_not_have_is_refused(tasks: Any) -> None:
    with pytest.raises(InvalidTask, match="Queue 'special' is not valid for backend"):
        tasks.echo.using(queue_name="special")
    assert tasks.echo.using(queue_name="special", backend="any queue").queue_name == "special"
    for wrong in ("a" * 101, " a", "a\n", ""):
        with pytest.raises(InvalidTask, match="queue_name: expected 1 to 100 printable characters"):
            tasks.echo.using(queue_name=wrong, backend="any queue")


def test_a_time_without_a_zone_is_refused(tasks: Any) -> None:
    with pytest.raises(InvalidTask, match="run_after must be an aware datetime"):
        tasks.echo.using(run_after=datetime.now())


def test_only_functions_of_a_module_can_be_tasks(tasks: Any) -> None:
    def inner() -> None: ...

    for wrong in (any, inner, tasks.Declined("x").add_note):
        with pytest.raises(InvalidTask, match="must be defined at a module level"):
            api.task()(wrong)
    with pytest.raises(InvalidTask, match="does not have a first argument of 'context'"):
        api.task(takes_context=True)(tasks.answer.func)
    main = type(tasks.answer.func)(tasks.answer.func.__code__, {"__name__": "__main__"}, "main")
    with pytest.raises(InvalidTask, match="main is defined in __main__, which no worker can import"):
        api.task()(main)


def test_a_task_can_be_called_here(tasks: Any) -> None:
    assert tasks.answer.call() == 42
    assert tasks.echo_async.call(1) == [[1], {}]
    assert async_to_sync(tasks.answer.acall)() == 42
    assert async_to_sync(tasks.echo_async.acall)(2) == [[2], {}]


# ---- enqueueing


@pytest.mark.parametrize("way", ["enqueue", "aenqueue"])
@pytest.mark.parametrize("name", ["echo", "echo_async"])
def test_an_enqueued_task_is_ready(tasks: Any, way: str, name: str, sent: list[Any], db: Any) -> None:
    task = getattr(tasks, name)
    call = task.enqueue if way == "enqueue" else async_to_sync(task.aenqueue)
    result = call(1, two=(2, 3))
    assert isinstance(result, TaskResult) and result.status == TaskResultStatus.READY and not result.is_finished
    assert (result.task, result.args, result.kwargs, result.backend) == (task, [1], {"two": [2, 3]}, "default")
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert abs(result.enqueued_at - timezone.now()) < timedelta(minutes=1)
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    assert sent == [(PgschedBackend, result.id)]
    row = db.execute("SELECT task, args, queue, priority, max_attempts, state FROM pgsched.runs WHERE id = %s",
                     [result.id]).fetchone()  # fmt: skip
    assert row == (task.module_path, {"*": [1], "two": [2, 3]}, "default", 5, 1, "queued")


def test_the_backend_enqueues_what_it_is_given(tasks: Any) -> None:
    backend = task_backends["default"]
    assert backend.enqueue(tasks.answer, (), {}).status == TaskResultStatus.READY
    assert async_to_sync(backend.aenqueue)(tasks.answer, [], {}).status == TaskResultStatus.READY


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), {1, 2}, object(), 1j])
def test_arguments_that_are_not_json_are_refused(tasks: Any, value: Any) -> None:
    for call in (tasks.echo.enqueue, async_to_sync(tasks.echo.aenqueue)):
        with pytest.raises(TypeError, match="Unsupported type"):
            call(value)
        with pytest.raises(TypeError, match="Unsupported type"):
            call(a=[{"b": value}])
    with pytest.raises(ValueError, match="Unsupported value"):
        tasks.echo.enqueue(b"\xff")


def test_arguments_that_do_not_fit_are_refused_and_make_no_run(tasks: Any, db: Any) -> None:
    before = db.execute("SELECT count(*) FROM pgsched.runs").fetchone()
    with pytest.raises(TypeError, match="missing a required argument: 'user'"):
        tasks.welcome.enqueue()
    with pytest.raises(TypeError, match="unexpected keyword argument 'usr'"):
        tasks.welcome.enqueue(user=1, usr=2)
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == before


@pytest.mark.parametrize("way", ["enqueue", "aenqueue"])
def test_a_task_is_validated_again_when_it_is_enqueued(tasks: Any, way: str) -> None:
    task = tasks.echo.using(queue_name="mail")
    call = task.enqueue if way == "enqueue" else async_to_sync(task.aenqueue)
    with (
        override_settings(TASKS={"default": {**TASKS["default"], "QUEUES": ["other"]}}),
        pytest.raises(InvalidTask, match="Queue 'mail' is not valid for backend"),
    ):
        call()


def test_what_the_task_says_is_in_the_run(tasks: Any, db: Any) -> None:
    later = timezone.now() + timedelta(days=3)
    result = tasks.welcome.using(priority=-60, run_after=later).enqueue(7)
    row = db.execute("SELECT args, queue, priority, state, available_at FROM pgsched.runs WHERE id = %s",
                     [result.id]).fetchone()  # fmt: skip
    assert row == ({"user": 7}, "mail", 8, "scheduled", later)
    assert result.status == TaskResultStatus.READY
    found = tasks.welcome.get_result(result.id)
    assert (found.task.run_after, found.task.queue_name, found.task.priority) == (later, "mail", -51)


def test_options_of_pgsched_stand_beside_the_task(tasks: Any, db: Any) -> None:
    first, second = tasks.import_file.enqueue("a.csv"), tasks.import_file.enqueue(path="a.csv")
    assert first.id == second.id, "its unique key names the argument"
    row = db.execute("SELECT unique_key, timeout, tags FROM pgsched.runs WHERE id = %s", [first.id]).fetchone()
    assert row == ('import "a.csv"', timedelta(minutes=1), ["files"])


@pytest.mark.parametrize("first", ["default", "once"])
def test_each_backend_has_its_own_number_of_attempts(tasks: Any, db: Any, first: str) -> None:
    """They share an App, as they must in one database, and the one that enqueues counts, whichever came first."""
    both = {"default": {"BACKEND": BACKEND, "OPTIONS": {"APP": first, "MAX_ATTEMPTS": 3}},
            "once": {"BACKEND": BACKEND, "OPTIONS": {"APP": first, "MAX_ATTEMPTS": 1}}}  # fmt: skip
    with override_settings(TASKS=both):
        order = sorted(both, key=lambda alias: alias != first)
        made = {alias: tasks.answer.using(backend=alias).enqueue().id for alias in order}
        made["said"] = tasks.third_time.using(backend="once").enqueue().id
    found = {name: db.execute("SELECT max_attempts FROM pgsched.runs WHERE id = %s", [run_id]).fetchone()[0]
             for name, run_id in made.items()}  # fmt: skip
    assert found == {"default": 3, "once": 1, "said": 3}


def test_the_time_of_one_call_is_not_that_of_others(tasks: Any) -> None:
    """Also where the first task that a backend sees has one."""
    later = timezone.now() + timedelta(days=1)
    first = tasks.decline.using(backend="any queue", run_after=later).enqueue()
    second = tasks.decline.using(backend="any queue").enqueue()
    backend = task_backends["any queue"]
    assert backend.get_result(first.id).task.run_after == later
    assert backend.get_result(second.id).task.run_after is None


def test_without_use_tz_times_have_no_zone(tasks: Any) -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Vienna"):
        at = datetime(2040, 1, 1, 12)
        result = tasks.echo.using(run_after=at).enqueue()
        found = tasks.echo.get_result(result.id)
        assert found.task.run_after == at and found.enqueued_at.tzinfo is None
        assert abs(found.enqueued_at - result.enqueued_at) < timedelta(minutes=1)


def test_a_refused_enqueue_raises_django_s_error_and_leaves_the_connection_usable(tasks: Any, db: Any) -> None:
    from django.db import ProgrammingError, connection, transaction

    db.execute("ALTER TABLE pgsched.runs RENAME TO gone")
    try:
        with pytest.raises(ProgrammingError), transaction.atomic():
            tasks.answer.enqueue()
        with pytest.raises(ProgrammingError):
            tasks.answer.enqueue()
        assert connection.errors_occurred, "Django looks at the connection before the next request"
    finally:
        db.execute("ALTER TABLE pgsched.gone RENAME TO runs")
    assert tasks.answer.enqueue().status == TaskResultStatus.READY


def test_enqueued_runs_are_logged(tasks: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger=signals.logger.name):
        result = tasks.answer.enqueue()
    assert [record.getMessage() for record in caplog.records if record.name == signals.logger.name] == [
        f"Task id={result.id} path={tasks.__name__}.answer enqueued backend=default"
    ]
