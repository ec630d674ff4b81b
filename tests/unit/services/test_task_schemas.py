"""JSON Schemas in words: the arguments of a task as `task list` and `task show` print them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from pgsched import App
from pgsched.app.release import releases
from pgsched.services.task_schemas import Argument, describe_type, list_arguments


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    price: Decimal


def test_the_arguments_of_a_task_have_types_in_words() -> None:
    app = App("shop")

    @app.task(name="pay")
    def pay(
        note: str = "none", *, amount: int, lines: list[Line], counts: dict[str, int], at: datetime | None = None,
        colour: Colour = Colour.RED, mode: Literal["a", "b"] = "a", key: UUID | None = None, free: Any = None,
        pair: tuple[int, str] = (1, "x"), wait: timedelta = timedelta(1),
    ) -> None: ...  # fmt: skip

    (release,) = releases(app.tasks.values())
    found = list_arguments(release.schema)
    assert {one.name: one.type for one in found} == {
        "note": "text", "amount": "integer", "lines": "list of Line", "counts": "object of integer",
        "at": "text or none", "colour": '"blue" or "red"', "mode": '"a" or "b"', "key": "uuid or none", "free": "any",
        "pair": "[integer, text]", "wait": "duration",
    }  # fmt: skip
    assert {one.name for one in found[:3]} == {"amount", "lines", "counts"}, "required ones come first"
    assert Argument("note", "text", False, "none") in found


def test_odd_schemas_do_not_fail() -> None:
    endless = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"}
    assert describe_type({"anyOf": [endless]}, endless) == "A"
    assert describe_type(True, {}) == describe_type({}, {}) == describe_type({"type": []}, {}) == "any"
    assert describe_type({"type": ["string", "null"]}, {}) == "text or none"
    assert list_arguments({}) == []
    assert len(describe_type({"enum": ["x" * 100]}, {})) == 60
