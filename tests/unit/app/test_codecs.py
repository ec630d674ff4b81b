"""Arguments travel as their annotations say: encoded and checked at enqueue, decoded and checked before the call."""

from __future__ import annotations

import datetime as dt
import enum
import json
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, NewType, NotRequired, Optional, Protocol, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from pgsched import App, RunId, TaskError
from pgsched.app.codecs.codec import find_codec
from tests.support.apps.typed import Colour, Line, Order

UTC = dt.UTC
NOON = dt.datetime(2026, 3, 29, 12, 30, 0, 123456, tzinfo=UTC)
ID = UUID("6f1c4b2e-8a53-4d0c-9f7e-2b8d1a3c5e70")


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(TypedDict):
    street: str
    since: NotRequired[dt.date]


@attrs.define
class Parcel:
    grams: int
    sent: dt.datetime


class Ping(msgspec.Struct):
    host: str
    at: dt.time


class Customer(pydantic.BaseModel):
    name: str
    born: dt.date


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    walks: int


Pet = typing.Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
UserId = NewType("UserId", int)

VALUES: list[tuple[Any, Any]] = [
    (dt.datetime, NOON),
    (dt.datetime, dt.datetime(2026, 3, 29, 12, 30)),
    (dt.date, dt.date(2026, 3, 29)),
    (dt.time, dt.time(23, 59, 59, 1)),
    (dt.timedelta, dt.timedelta(days=-1, seconds=90, microseconds=5)),
    (UUID, ID),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.BLUE),
    (Size, Size.LARGE),
    (bytes, b"\x00\xff"),
    (Path, Path("/tmp/a b")),
    (PurePosixPath, PurePosixPath("a/b")),
    (tuple[int, str], (1, "a")),
    (tuple[dt.date, ...], (dt.date(2026, 1, 1),)),
    (set[int], {1, 2}),
    (frozenset[UUID], frozenset({ID})),
    (dict[str, dt.date], {"a": dt.date(2026, 1, 1)}),
    (dict[int, str], {1: "a"}),
    (dict[dt.date, int], {dt.date(2026, 1, 1): 1}),
    (list[Decimal | None], [Decimal(1), None]),
    (Optional[dt.datetime], None),  # noqa: UP045  the old way to write it
    (Optional[dt.datetime], NOON),  # noqa: UP045
    (Literal["a", 1, None], 1),
    (UserId, 7),
    (Line, Line(Decimal("2.50"))),
    (Order, Order([Line(Decimal("0.10"), 3)], dt.date(2026, 1, 1), {"a": "b"})),
    (Point, Point(1, 2)),
    (Address, {"street": "A 1", "since": dt.date(2026, 1, 1)}),
    (Parcel, Parcel(5, NOON)),
    (Ping, Ping("h", dt.time(1, 2))),
    (Customer, Customer(name="Ada", born=dt.date(1815, 12, 10))),
    (list[Customer], [Customer(name="Ada", born=dt.date(1815, 12, 10))]),
    (Pet, Dog(walks=3)),
    (Customer | None, None),
    (Mapping[str, Sequence[int]], {"a": [1, 2]}),
]


@pytest.mark.parametrize(("hint", "value"), VALUES, ids=str)
def test_a_value_comes_back_with_its_type(hint: Any, value: Any) -> None:
    codec = find_codec(hint)
    assert codec is not None
    sent = json.loads(json.dumps(codec.encode(value, "x")))
    found = codec.decode(sent, "x")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("hint", "value", "problem"),
    [
        (dt.datetime, "tomorrow", "x: invalid RFC3339 encoded datetime"),
        (dt.datetime, NOON.date(), "x: expected datetime, got date"),
        (dt.date, NOON, "x: "),
        (str, ID, "x: expected str, got UUID"),
        (list[dt.date], [dt.date(2026, 1, 1), 5], "x[1]: expected date, got int"),
        (Order, Order([Line("x")]), "x.lines[0].price: invalid decimal string"),  # type: ignore[arg-type]
        (dict[str, UUID], {1: ID}, "x: expected text as keys, got int 1"),
        (Colour, "green", "x: invalid enum value 'green'"),
        (Path, 5, "x: expected Path, got int"),
        (Customer, {"name": "Ada"}, "x.born: field required"),
        (Line, 1j, "x: complex is not a type that JSON can carry"),
        (int, True, "x: expected int, got bool True"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(hint: Any, value: Any, problem: str) -> None:
    codec = find_codec(hint)
    assert codec is not None
    with pytest.raises(ValueError, match=r"^x") as refused:
        codec.encode(value, "x")
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("hint", "sent", "problem"),
    [
        (Order, {"lines": [{"price": "1"}, {"price": "1"}, {"price": None}]},
         "order.lines[2].price: expected Decimal, got null"),
        (Order, {"lines": [{}]}, "order.lines[0]: object missing required field price"),
        (int, "5", "order: expected int, got str '5'"),
        (list[int], [1, None], "order[1]: expected int, got None"),
        (dt.date | None, "x", "order: invalid RFC3339 encoded date"),
        (dict[int, str], {"a": "b"}, "a key of order: expected int, got str"),
        (Pet, {"kind": "bird"}, "order: input tag 'bird'"),
    ],
    ids=str,
)  # fmt: skip
def test_json_that_does_not_fit_is_refused_with_its_path(hint: Any, sent: Any, problem: str) -> None:
    codec = find_codec(hint)
    assert codec is not None
    with pytest.raises(ValueError, match="order") as refused:
        codec.decode(sent, "order")
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    "hint",
    [
        dt.datetime | str, UUID | str, bytes | str, dt.date | dt.datetime, Line | Order, Line | dict[str, int],
        list[dt.date] | set[dt.date], list[dt.datetime | str], Path | str, Decimal | dt.date | None,
    ],
    ids=str,
)  # fmt: skip
def test_types_that_json_cannot_tell_apart_are_refused_at_registration(hint: Any) -> None:
    def work(when):  # type: ignore[no-untyped-def]
        """Do nothing."""

    work.__annotations__ = {"when": hint}
    with pytest.raises(TaskError, match=r"parameter 'when': .* cannot travel as JSON: type unions"):
        App("shop").task(work)


def test_pydantic_may_decide_a_union_that_json_alone_does_not() -> None:
    codec = find_codec(Pet)
    assert codec is not None
    assert codec.decode({"kind": "cat", "lives": 9}, "pet") == Cat(lives=9)


class Connection:
    """A class that JSON cannot carry."""


class Speaks(Protocol):
    def speak(self) -> str: ...


T = TypeVar("T")


@pytest.mark.parametrize("hint", [Any, object, T, Speaks])
def test_an_annotation_that_says_nothing_of_json_is_not_checked(hint: Any) -> None:
    assert find_codec(hint) is None


def test_a_class_that_json_cannot_carry_is_refused_unless_it_has_a_default() -> None:
    app = App("shop")
    with pytest.raises(TaskError, match="parameter 'conn': Connection does not travel as JSON: take str"):

        @app.task
        def needs(conn: Connection) -> None: ...

    @app.task
    def knows(n: int, conn: Connection = Connection()) -> None: ...  # noqa: B008

    assert knows.options().values((1,), {})["args"] == '{"n":1}'
    with pytest.raises(TaskError, match=r"conn: Connection does not travel as JSON"):
        knows.options().values((1, Connection()), {})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Order([], notes={"a": "\0"})])
def test_what_postgresql_cannot_store_is_refused_at_enqueue(value: Any) -> None:
    app = App("shop")

    @app.task
    def ship(order: Order | None = None, weight: float = 0) -> None: ...

    call = {"weight": value} if isinstance(value, float) else {"order": value}
    with pytest.raises(TaskError, match=next(iter(call))):
        ship.options().values((), call)


def test_subclasses_of_known_types_travel_as_these() -> None:
    class Frozen(dt.datetime):
        pass

    class Money(Decimal):
        pass

    frozen = Frozen(2026, 1, 1, tzinfo=UTC)
    for hint, value, found in [
        (dt.datetime, frozen, dt.datetime(2026, 1, 1, tzinfo=UTC)), (list[Decimal], [Money("1.5")], [Decimal("1.5")]),
        (dict[str, dt.date | int], {"a": RunId(5)}, {"a": 5}),
    ]:  # fmt: skip
        codec = find_codec(hint)
        assert codec is not None
        assert codec.decode(codec.encode(value, "x"), "x") == found
