"""A form shows the arguments of a task by its JSON Schema, and gives back what the task takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest

from pgsched import App
from pgsched.app.release import release_of
from pgsched.errors import InputError
from pgsched.web.pages.forms.argument_fields import (
    MORE,
    PREFIX,
    argument_fields,
    can_show_arguments,
    read_arguments,
    texts_of_arguments,
)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    price: int


def schema_of(function: Any) -> Any:
    return json.loads(json.dumps(release_of(App("forms").task(function)).schema))


def send(  # noqa: PLR0917
    user: int, name: str, ratio: float, color: Color, day: date, lines: list[Line], nick: str | None,
    urgent: bool = False, size: Literal["s", "m"] = "m", note: str | None = None, count: int = 3,
) -> None: ...  # fmt: skip


def test_each_type_has_its_field() -> None:
    fields = argument_fields(schema_of(send))
    assert fields is not None
    kinds = {field.name: (field.kind, field.required) for field in fields}
    assert kinds == {
        "user": ("whole", True), "name": ("text", True), "ratio": ("number", True), "color": ("choice", True),
        "day": ("date", True), "lines": ("json", True), "nick": ("text", True), "urgent": ("choice", False),
        "size": ("choice", False), "note": ("text", False), "count": ("whole", False),
    }  # fmt: skip
    found = {field.name: field for field in fields}
    assert set(found["color"].choices) == {'"red"', '"blue"'} and found["urgent"].choices == ("true", "false")
    assert found["count"].hint == "default: 3" and found["urgent"].hint == "default: false"


def test_what_is_typed_becomes_the_arguments_and_back() -> None:
    fields = argument_fields(schema_of(send))
    assert fields is not None
    texts = {
        "user": " 7 ", "name": " Ada ", "ratio": "0.5", "color": '"red"', "day": "2031-05-01",
        "lines": '[{"price": 1}]', "urgent": "true",
    }  # fmt: skip
    args = read_arguments(fields, {PREFIX + name: text for name, text in texts.items()})
    assert args == {
        "user": 7, "name": " Ada ", "ratio": 0.5, "color": "red", "day": "2031-05-01", "lines": [{"price": 1}],
        "nick": None, "urgent": True,
    }  # fmt: skip
    assert read_arguments(fields, texts_of_arguments(fields, args)) == args


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("user", "x", "not a whole number"), ("user", "1.5", "not a whole number"), ("user", "true", "not a whole"),
        ("user", "", "is missing"), ("ratio", "much", "not a number"), ("color", "green", "not one of"),
        ("lines", "[", "is not JSON"), ("urgent", "1", "not one of true, false"),
    ],
)  # fmt: skip
def test_a_misfit_names_its_field(name: str, text: str, why: str) -> None:
    fields = argument_fields(schema_of(send))
    assert fields is not None
    right = {"user": "1", "ratio": "1", "color": '"red"', "day": "2031-05-01", "lines": "[]"}
    with pytest.raises(InputError, match=why) as error:
        read_arguments(fields, {PREFIX + key: value for key, value in (right | {name: text}).items()})
    assert error.value.field in (f"args.{name}", "args")


def test_arguments_that_the_schema_does_not_name_have_one_field() -> None:
    def anything(user: int, **more: Any) -> None: ...

    fields = argument_fields(schema_of(anything))
    assert fields is not None and [field.name for field in fields] == ["user", MORE]
    args = {"user": 1, "x": [2]}
    assert read_arguments(fields, texts_of_arguments(fields, args)) == args
    with pytest.raises(InputError, match="a JSON object"):
        read_arguments(fields, {f"{PREFIX}user": "1", PREFIX + MORE: "[1]"})


def test_arguments_without_names_are_given_as_json() -> None:
    def positional(user: int, /) -> None: ...

    assert argument_fields(schema_of(positional)) is None
    for schema in (None, {}, [], "x", {"type": "object"}, {"type": "object", "properties": 1}):
        assert argument_fields(schema) is None


@pytest.mark.parametrize(
    "part",
    [
        True, False, None, 7, "x", [], {"type": ["string", "null", "integer"]}, {"$ref": "#/$defs/none"},
        {"$ref": "#/$defs/a"}, {"anyOf": []}, {"anyOf": [1, {"type": "null"}]}, {"enum": "x"}, {"enum": []},
        {"type": {"x": 1}},
    ],
    ids=repr,
)  # fmt: skip
def test_an_odd_schema_gets_a_field_all_the_same(part: Any) -> None:
    schema = {"type": "object", "properties": {"a": part}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    fields = argument_fields(schema | {"additionalProperties": False})
    assert fields is not None and len(fields) == 1
    fields[0].text_of({"x": 1})


def limited(
    limit: int | None = 10, ratio: float | None = 0.5, urgent: bool | None = True, size: Literal["s", "m"] | None = "m",
    tags: list[int] | None = None, body: str = "x", note: str | None = "x", day: date | None = None,
) -> None: ...  # fmt: skip


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ({"limit": None, "ratio": None, "urgent": None, "size": None, "tags": None}, True),
        (
            {"limit": 7, "ratio": 1, "urgent": False, "size": "s", "tags": [1], "body": "a\nb", "day": "2031-05-01"},
            True,
        ),
        ({"limit": "x"}, True),  # the form says what is wrong
        ({"body": ""}, False),
        ({"note": None}, False),
        ({"day": None}, False),
        ({"day": "2031-05-01T10:00"}, False),
        ({"size": "xl"}, False),
        ({"body": "a\r\nb"}, False),
        ({"body": "\nb"}, False),
        ({"more": 1}, False),
    ],
)
def test_arguments_that_nobody_touches_stay_as_they_are(args: dict[str, Any], shown: bool) -> None:
    fields = argument_fields(schema_of(limited))
    assert fields is not None and can_show_arguments(fields, args) is shown
    if shown and args.get("limit") != "x":
        assert read_arguments(fields, texts_of_arguments(fields, args)) == args
