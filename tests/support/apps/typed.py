"""An app whose handlers take and return typed values, in each place where a handler can run."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from pgsched import App

app = App("typed")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    price: Decimal
    count: int = 1


@dataclass
class Order:
    lines: list[Line]
    due: date | None = None
    notes: dict[str, str] = field(default_factory=dict)


@dataclass
class Receipt:
    total: Decimal
    due: date | None
    kind: str


def receipt(order: Order, n: int) -> Receipt:
    """Return what the order costs, n times."""
    total = sum((line.price * line.count * n for line in order.lines), Decimal(0))
    return Receipt(total, order.due, type(total).__name__)


@app.task(name="typed_inline")
async def typed_inline(order: Order, n: int) -> Receipt:
    return receipt(order, n)


@app.task(name="typed_in_thread")
def typed_in_thread(order: Order, n: int) -> Any:
    return receipt(order, n)


@app.task(name="typed_in_process", run_in="process")
def typed_in_process(order: Order, n: int) -> Receipt:
    return receipt(order, n)
