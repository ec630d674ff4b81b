"""Tasks whose arguments have types: how a call travels, and the schema that a worker registers."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from pgsched import App, InputError, TaskError
from pgsched.app.codecs.codec import find_codec
from tests.support.apps.typed import Colour, Line, Order

NOON = dt.datetime(2026, 3, 29, 12, 30, 0, 123456, tzinfo=dt.UTC)


def called(task: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what the handler returns for a call that travelled."""
    return task.prepare(json.loads(task.options().values(args, kwargs)["args"]), None)()


def test_a_handler_gets_the_types_of_its_annotations() -> None:
    app = App("shop")

    @app.task
    def by_name(at: dt.datetime, order: Order, n: int = 1, *, colour: Colour = Colour.RED) -> list[Any]:
        return [at, order, n, colour]

    @app.task
    def by_position(day: dt.date, /, *days: dt.date) -> list[Any]:
        return [day, *days]

    @app.task
    def with_keywords(**days: dt.date) -> dict[str, dt.date]:
        return days

    order, day = Order([Line(Decimal("1.5"))]), dt.date(2026, 1, 1)
    assert called(by_name, NOON, order, colour=Colour.BLUE) == [NOON, order, 1, Colour.BLUE]
    assert called(by_position, day, day, day) == [day, day, day]
    assert called(with_keywords, a=day) == {"a": day}


def test_an_inline_call_gets_the_types_too_and_none_for_a_misfit() -> None:
    app = App("shop")

    @app.task
    async def work(day: dt.date, n: int, note: str | None = None) -> None: ...

    assert work.decode is not None
    assert work.decode({"day": "2026-01-01", "n": 1}) == {"day": dt.date(2026, 1, 1), "n": 1}
    assert work.decode({"day": "2026-01-01", "n": "1"}) is None

    @app.task
    async def plain(n) -> None: ...  # type: ignore[no-untyped-def]

    assert plain.decode is None


def test_a_default_of_none_takes_null() -> None:
    app = App("shop")

    @app.task
    def work(day: dt.date = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return day

    assert work.prepare({"day": None}, None)() is None
    assert called(work, None) is None


def test_extra_arguments_are_refused_unless_the_task_ignores_them() -> None:
    app = App("shop")

    @app.task
    def strict(n: int) -> int:
        return n

    @app.task(extra="ignore")
    def tolerant(n: int) -> int:
        return n

    with pytest.raises(TaskError, match="unexpected keyword argument 'm'"):
        strict.prepare({"n": 1, "m": 2}, None)
    assert tolerant.prepare({"n": 1, "m": 2}, None)() == 1
    with pytest.raises(TaskError, match="unexpected keyword argument 'm'"):
        tolerant.options().values((), {"n": 1, "m": 2})  # a caller's mistake is still one
    with pytest.raises(InputError, match='extra: "allow" is not one of forbid, ignore'):
        app.task(extra="allow", name="other")(len)  # type: ignore[call-overload]


def test_a_task_that_ignores_extra_arguments_still_gets_those_of_its_keywords() -> None:
    app = App("shop")

    @app.task(extra="ignore")
    def work(n: int, **more: Any) -> Any:
        return n, more

    values = work.options().values((), {"n": 1, "color": "red"})
    assert work.prepare(json.loads(values["args"]), None)() == (1, {"color": "red"})


def test_fields_that_a_newer_release_added_take_their_defaults() -> None:
    codec = find_codec(Order)
    assert codec is not None
    assert codec.decode({"lines": [{"price": "1", "colour": "red"}]}, "x") == Order([Line(Decimal(1))])


def a_handler(work: Callable[..., Any]) -> Any:
    """Return the task of a handler, and its schema."""
    from pgsched.app.release import release_of

    return release_of(App("shop").task(work)).schema


def test_the_schema_names_every_type() -> None:
    def work(n: int, when: dt.datetime, order: Order, ratio: float = 1.0, any_: Any = None) -> None: ...

    schema = a_handler(work)
    assert schema["required"] == ["n", "order", "when"]
    assert schema["properties"]["n"] == {"type": "integer"}
    assert schema["properties"]["when"] == {"type": "string"}
    assert schema["properties"]["ratio"] == {"type": "number", "default": 1.0}
    assert schema["properties"]["any_"] == {"default": None}
    assert schema["$defs"]["Line"]["properties"]["price"] == {"type": "string", "format": "decimal"}
    assert schema["properties"]["order"] == {"$ref": "#/$defs/Order"}
    assert schema["additionalProperties"] is False
