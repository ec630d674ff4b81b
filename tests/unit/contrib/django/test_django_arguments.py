"""Arguments of Django's tasks travel by name where they can, and come back as they were given."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pgsched import App, TaskError
from pgsched.contrib.django.arguments import pack, split_arguments, unpack
from pgsched.contrib.django.handlers import check_handler
from tests.support.django_project.settings import shop_tasks

tasks = shop_tasks()


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "packed"),
    [
        ("welcome", [7], {}, {"user": 7}),
        ("welcome", [7, "Ada"], {}, {"user": 7, "name": "Ada"}),
        ("welcome", [], {"name": "Ada", "user": 7}, {"user": 7, "name": "Ada"}),
        ("echo", [1, [2]], {"a": 3}, {"*": [1, [2]], "a": 3}),
        ("echo", [], {"a": 3}, {"a": 3}),
        ("answer", [], {}, {}),
        ("own_id", [], {}, {}),
        ("own_state", [5], {}, {"given": 5}),
        ("takes_connection", ["c", 1, 2, 3], {"last": 4}, {"*": ["c", 1, 2, 3], "last": 4}),
        ("positional_names", ["c"], {"run": 2}, {"connection": "c", "run": 2}),
    ],
)
def test_a_call_arrives_as_it_was_made(name: str, args: list[Any], kwargs: dict[str, Any], packed: Any) -> None:
    task = getattr(tasks, name)
    assert pack(task, args, kwargs) == packed
    got_args, got_kwargs = unpack(task, packed)
    before = (None,) if task.takes_context else ()
    bind = inspect.signature(task.func).bind
    assert bind(*before, *got_args, **got_kwargs) == bind(*before, *args, **kwargs)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "why"),
    [
        ("welcome", [], {}, "tests.support.django_project.tasks.welcome: missing a required argument: 'user'"),
        ("welcome", [1, 2, 3], {}, "too many positional arguments"),
        ("welcome", [1], {"user": 1}, "multiple values for argument 'user'"),
        ("own_id", ["context"], {}, "too many positional arguments"),
        ("echo", [], {"*": [1]}, "an argument cannot be named '*'"),
    ],
)
def test_a_call_that_does_not_fit_is_a_type_error_where_it_is_made(name: str, args: Any, kwargs: Any, why: str) -> None:
    with pytest.raises(TypeError) as refused:
        pack(getattr(tasks, name), args, kwargs)
    assert why in str(refused.value)


@pytest.mark.parametrize(("given", "why"), [({"*": 5}, "expected a list"), ({"*": [1], "no": 2}, "'run'")])
def test_arguments_of_another_release_are_refused_in_the_worker(given: Any, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        unpack(tasks.takes_connection, given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"a": 1}, ([], {"a": 1})), ({"*": [1], "a": 2}, ([1], {"a": 2})), ({"*": 1}, ([], {"*": 1})), ([1], ([1], {})),
     ("text", ([], {})), (None, ([], {}))],
)  # fmt: skip
def test_any_arguments_of_a_row_can_be_shown(given: Any, expected: Any) -> None:
    assert split_arguments(given) == expected


def test_pgsched_knows_the_parameters_but_converts_nothing() -> None:
    app = App("check")
    task = app.task(name="welcome")(check_handler(tasks.welcome))
    assert (task.required, task.parameters.order) == ({"user"}, ("user", "name"))
    assert task.parameters.codecs == {}, "annotations convert nothing"
    assert task.run_name == "run" and not task.is_async
    assert app.task(name="names")(check_handler(tasks.positional_names)).run_name == "run"
    assert app.task(name="echo")(check_handler(tasks.echo_async)).is_async
    assert app.task(name="own")(check_handler(tasks.own_state)).parameters.order == ("given",)
    assert task.function.__qualname__ == "welcome" and task.function.__module__ == tasks.__name__
