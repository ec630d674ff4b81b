"""App registers tasks, checks their arguments, declares jobs, and is imported by its path."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, TypedDict

import pytest

import pgsched
from pgsched import App, InputError, Run, ScheduleError, TaskError
from pgsched.app.arguments import encode
from pgsched.app.base import import_app
from pgsched.app.declarations import POLICIES
from tests.support.paths import ROOT

CustomerId = NewType("CustomerId", int)


class Box:
    """A class that JSON cannot carry."""


class Address(TypedDict):
    street: str


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the error that enqueueing with these arguments raises, without the task's name."""
    task = App("test").task(function)
    with pytest.raises(TaskError) as refused:
        task.enqueue(*args, **kwargs)
    return str(refused.value).removeprefix(f"task {task.name}, parameter ")


def carried(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the arguments as the JSON text that is stored with the run."""
    return encode(App("test").task(function).parameters, args, kwargs)


def test_a_task_is_named_after_its_module_and_function_and_stays_callable() -> None:
    app = App("test")

    @app.task
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    @app.task(name="mail.send", queue="mail", priority=1, max_attempts=9, timeout=30)
    async def send(to: str) -> None: ...

    assert double(4) == 8 and double.__doc__ == "Twice as much."
    assert double.name == f"{__name__}.{double.function.__qualname__}" and double.name.endswith(".double")
    assert set(app.tasks) == {double.name, "mail.send"}
    assert (send.is_async, send.defaults.queue, double.is_async) == (True, "mail", False)


def test_arguments_travel_by_name_and_defaults_are_left_to_the_worker() -> None:
    def greet(name: str, times: int = 1, *, loud: bool = False, **more: int) -> None: ...

    assert carried(greet, "é", loud=True, x=1) == '{"name":"é","loud":true,"x":1}'


def test_arguments_without_names_travel_as_an_array() -> None:
    def total(first: int, /, *rest: float) -> None: ...

    assert carried(total, 1, 2, 3.5) == "[1,2,3.5]"
    assert "expected float, got str 'x'" in refusal(total, 1, "x")


def test_the_run_parameter_is_not_filled_by_the_caller() -> None:
    def work(run: Run, size: int) -> None: ...

    def optional(size: int, run: Run | None = None) -> None: ...

    assert carried(work, 1) == carried(optional, 1) == '{"size":1}'


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -5], [True, 1.0, "1", None]),
        (float, [1.5, 2], [True, "1"]),
        (str, ["", "x"], [1, b"x", None]),
        (bool, [True], [1, "true"]),
        (None, [None], [0]),
        (int | None, [1, None], ["1"]),
        (list[int], [[], [1], (1, 2)], [["1"], "12", {1}]),
        (Sequence[str], [["a"]], ["a", [1]]),
        (dict[str, float], [{}, {"a": 1}], [{"a": "1"}, {1: 1.0}, [1]]),
        (Mapping[str, list[int]], [{"a": [1]}], [{"a": 1}]),
        (list[dict[str, int]], [[{"a": 1}]], [[{"a": None}]]),
        (Literal["up", "down", 1], ["up", 1], ["left", True]),
        (Annotated[int, "metres"], [1], ["1"]),
        (CustomerId, [1], ["1"]),
        (Address, [{"street": "x"}], ["x"]),
        (Any, [1, "x", [None]], [object(), float("nan"), datetime(2024, 1, 1, tzinfo=UTC)]),
        ("Unknown", [1, "x"], [object()]),
    ],
)
def test_arguments_are_checked_against_their_annotations(hint: Any, good: list[Any], bad: list[Any]) -> None:
    def work(value: Any) -> None: ...

    work.__annotations__["value"] = hint
    for value in good:
        carried(work, value)
    for value in bad:
        assert refusal(work, value).startswith("value")


def test_an_argument_error_names_the_position_the_expected_type_and_the_value() -> None:
    def work(rows: list[dict[str, int]]) -> None: ...

    assert refusal(work, [{}, {"a": "x"}]) == "rows[1]['a']: expected int, got str 'x'"


def test_arguments_that_do_not_fit_the_signature_are_refused() -> None:
    def work(size: int = 1) -> None: ...

    def strict(size: int) -> None: ...

    assert "missing a required argument: 'size'" in refusal(strict)
    assert "unexpected keyword argument 'sze'" in refusal(work, sze=1)


def test_arguments_that_are_too_large_are_refused_before_they_are_sent() -> None:
    def work(text: str) -> None: ...

    assert "1,048,576 are allowed" in refusal(work, "x" * 10_000_000)


@pytest.mark.parametrize("hint", [complex, type[int], Callable[[], int], list[Box], dict[str, Box | None]])
def test_a_parameter_that_json_cannot_fill_is_refused_at_registration(hint: Any) -> None:
    def work(when: Any) -> None: ...

    work.__annotations__["when"] = hint
    with pytest.raises(TaskError, match=r"parameter 'when': .* does not travel as JSON"):
        App("test").task(work)


def test_functions_that_cannot_be_tasks_are_refused() -> None:
    def reserved(connection: str) -> None: ...

    def generator() -> Any:
        yield 1

    async def stream() -> Any:
        yield 1

    def two(one: Run, other: Run) -> None: ...

    for function in (reserved, generator, stream, two, int, 5):
        with pytest.raises(TaskError):
            App("test").task(function)  # type: ignore[call-overload]


def test_registering_a_task_name_twice_is_refused() -> None:
    app = App("test")
    app.task(name="x")(lambda: None)
    with pytest.raises(TaskError, match=r"registered twice, from test_app.py:\d+ and test_app.py:\d+"):
        app.task(name="x")(lambda: None)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"priority": 10}, "priority"), ({"queue": ""}, "queue"), ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": 0}, "timeout"), ({"delay": -1}, "delay"), ({"delay": float("nan")}, "delay"),
        ({"at": datetime(2024, 1, 1)}, "at"),
        ({"at": datetime(2024, 1, 1, tzinfo=UTC), "delay": 1}, "delay"), ({"unique_key": 5}, "unique_key"),
        ({"qeue": "x"}, "qeue"),
    ],
)  # fmt: skip
def test_invalid_options_are_refused_with_the_field_name(options: dict[str, Any], field: str) -> None:
    app = App("test")
    for declare in (lambda: app.task(lambda: None).options(**options), lambda: app.task(**options)(lambda: None)):
        with pytest.raises(InputError) as refused:
            declare()
        assert refused.value.field == field and str(refused.value).startswith(f"{field}: ")


def test_job_decorators_declare_jobs_with_their_policies() -> None:
    app = App("test")

    @app.job(schedule="0 2 * * *", timezone="Europe/Vienna", name="vienna", overlap="allow", timeout=60)
    @app.job(schedule="@every 90s", name="often", args={"region": "eu"}, queue="fast")
    @app.task(name="report", queue="slow")
    def report(region: str = "all") -> None: ...

    often, vienna = app.declared_jobs
    assert (often.name, often.task, often.schedule, often.timezone) == ("often", "report", "@every 90s", "UTC")
    assert (often.args, often.policies) == ({"region": "eu"}, {"queue": "fast"})
    assert vienna.timezone == "Europe/Vienna"
    assert vienna.policies == {"queue": "slow", "overlap": "allow", "timeout": timedelta(seconds=60)}
    assert report.enqueue is not None and list(app.tasks) == ["report"]


def test_a_job_decorator_registers_the_function_as_a_task_of_the_same_name() -> None:
    app = App("test")

    @app.job(schedule="@hourly")
    async def tidy() -> None: ...

    assert [job.name for job in app.declared_jobs] == list(app.tasks) == [tidy.name]
    with pytest.raises(TaskError, match="declared twice"):
        app.job(schedule="@daily")(tidy)
    with pytest.raises(TaskError, match=r"stands above @app\.task"):
        app.task(name="again")(tidy)


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ({"schedule": "61 * * * *"}, ScheduleError),
        ({"schedule": "@daily", "timezone": "Mars/Base"}, ScheduleError),
        ({"schedule": "@daily", "overlap": "maybe"}, InputError),
        ({"schedule": "@daily", "decided_until": 1}, InputError),
        ({"schedule": "@daily", "max_attempts": True}, InputError),
        ({"schedule": "@daily", "args": {"wrong": 1}}, TaskError),
        ({"schedule": "@daily", "args": "x"}, TaskError),
        ({"schedule": "@daily", "name": " x"}, InputError),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(job: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        App("test").job(**job)(lambda: None)


def test_policies_are_columns_of_the_jobs_table() -> None:
    from pgsched.db.schema.tables import jobs

    columns = {column.name for column in jobs.columns}
    assert columns >= set(POLICIES)


def test_an_app_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_shop_app.py").write_text("from pgsched import App\napp = App('shop')\nother = 5\n")
    (tmp_path / "my_broken_app.py").write_text("import no_such_thing_at_all\n")
    (tmp_path / "my_raising_app.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert import_app("my_shop_app:app").name == import_app("my_shop_app").name == "shop"
    for path, text in [
        ("no_such_module:app", "there is no module 'no_such_module'"),
        ("my_shop_app:missing", "has no attribute 'missing'"),
        ("my_shop_app:other", "is of type int, not a pgsched.App"),
        (
            "my_broken_app:app",
            "importing my_broken_app failed: my_broken_app.py:1: No module named 'no_such_thing_at_all'",
        ),
        (
            "my_raising_app:app",
            "importing my_raising_app failed: my_raising_app.py:1: ZeroDivisionError: division by zero",
        ),
        ("my shop:app", "does not have the form package.module:app"),
    ]:
        with pytest.raises(InputError, match=text) as refused:
            import_app(path)
        assert refused.value.field == "app"


def test_every_public_name_exists_and_the_version_is_that_of_pyproject() -> None:
    assert all(getattr(pgsched, name) is not None for name in pgsched.__all__)
    with pytest.raises(AttributeError):
        pgsched.no_such_name  # noqa: B018
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pgsched.__version__ == project["version"]


@pytest.mark.parametrize("name", ["grace", "kill_after_most", "default_timeout", "lease", "poll"])
def test_times_of_a_worker_inside_a_program_are_seconds_or_a_timedelta(name: str) -> None:
    app = App("shop", dsn="host=/nowhere")
    for given in (5, timedelta(seconds=5)):
        app.worker(**{name: given})
    for wrong in ("soon", True, -1, timedelta(days=-1), float("inf")):
        with pytest.raises(InputError, match=f"^{name}: "):
            app.worker(**{name: wrong})
