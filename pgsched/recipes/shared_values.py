"""A value and a counter that programs share: each is one key of the store.

Invariant: of several changes that were computed from the same state one is made; the others are computed anew.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pgsched.db.queries.recipes import store
from pgsched.db.queries.recipes.store import Entry
from pgsched.errors import InputError
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.store import Store
from pgsched.recipes.values import check_name

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1  # before an update is computed anew
ADDED = "the amount may have been added"
MOST_DIGITS = 1000
Number = int | Decimal


class Value:
    """A value that programs share: JSON of up to 64 KiB. Each method has a form with `_async`.

    `name`: up to 200 characters; it is the key in `app.kv`.
    """

    def __init__(self, kv: Store, name: str) -> None:
        self._kv = kv
        self.name: str = check_name("name", name)

    def get(self, default: Any = None) -> Any:
        """Return the value; `default` where there is none."""
        entry = self.entry()
        return default if entry is None else entry.value

    async def get_async(self, default: Any = None) -> Any:
        """Return the value; `default` where there is none."""
        entry = await self.entry_async()
        return default if entry is None else entry.value

    def entry(self) -> Entry | None:
        """Return the value with its version; None where there is none."""
        return self._kv.get(self.name)

    async def entry_async(self) -> Entry | None:
        """Return the value with its version; None where there is none."""
        return await self._kv.get_async(self.name)

    def set(self, value: Any) -> int:
        """Set the value, whatever it was; return its version."""
        return self._kv.put(self.name, value) or 0

    async def set_async(self, value: Any) -> int:
        """Set the value, whatever it was; return its version."""
        return await self._kv.put_async(self.name, value) or 0

    def compare_and_set(self, version: int, value: Any) -> int | None:
        """Set the value if this is its version (0: if there is none); return the new version, or None."""
        return self._kv.put(self.name, value, expected=version)

    async def compare_and_set_async(self, version: int, value: Any) -> int | None:
        """Set the value if this is its version (0: if there is none); return the new version, or None."""
        return await self._kv.put_async(self.name, value, expected=version)

    def update(self, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Set the value to what `change` makes of it; return the new value.

        If somebody else has set it meanwhile, `change` is called again with the newer value. `default`: what it is
        called with where there is no value.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            entry = self.entry()
            value = change(default if entry is None else entry.value)
            if self.compare_and_set(0 if entry is None else entry.version, value) is not None:
                return value
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    async def update_async(self, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Set the value to what `change` makes of it: the asyncio form of `update`. `change` may be a coroutine."""
        pause_s = FIRST_PAUSE_S
        while True:
            entry = await self.entry_async()
            value = change(default if entry is None else entry.value)
            if inspect.isawaitable(value):
                value = await value
            if await self.compare_and_set_async(0 if entry is None else entry.version, value) is not None:
                return value
            await asyncio.sleep(random.uniform(0, pause_s))
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


class Counter:
    """A number that programs add to. It is exact, also with decimal fractions. Each method has a form with `_async`.

    `name`: up to 200 characters; it is the key in `app.kv`. A counter that nobody has used is 0. Methods return an int,
    or a Decimal where there is a fraction. They raise InputError where the value of the key is no number.
    """

    def __init__(self, keeper: Keeper, name: str) -> None:
        self._database = keeper.database
        self.name: str = check_name("name", name)

    def value(self) -> Number:
        """Return the number."""
        return plain_number(self._database.call(None, lambda conn: store.read_number(conn, self.name)))

    async def value_async(self) -> Number:
        """Return the number."""
        return plain_number(await self._database.call_async(None, lambda conn: store.read_number(conn, self.name)))

    def add(self, amount: float | Decimal = 1) -> Number:
        """Add to the number; return the sum. A call whose answer was lost may have added.

        `amount`: may be below 0. A float counts as the decimal number that Python shows for it.
        """
        text = check_amount(amount)
        return plain_number(
            self._database.call(None, lambda conn: store.add_number(conn, self.name, text), maybe=ADDED)
        )

    async def add_async(self, amount: float | Decimal = 1) -> Number:
        """Add to the number; return the sum: the asyncio form of `add`."""
        text = check_amount(amount)
        return plain_number(
            await self._database.call_async(None, lambda conn: store.add_number(conn, self.name, text), maybe=ADDED)
        )


def check_amount(amount: Any) -> str:
    """Return a finite number of up to 1,000 digits as text. Raises InputError."""
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise InputError(f"amount: expected a number, got {amount!r}", "amount")
    if isinstance(amount, int) and amount.bit_length() > 4 * MOST_DIGITS:
        raise InputError(f"amount: has more than {MOST_DIGITS} digits", "amount")
    exact = Decimal(float.__repr__(amount)) if isinstance(amount, float) else Decimal(amount)
    if not exact.is_finite():
        raise InputError(f"amount: expected a finite number, got {amount!r}", "amount")
    if abs(exact.adjusted()) > MOST_DIGITS or len(exact.as_tuple().digits) > MOST_DIGITS:
        raise InputError(f"amount: has more than {MOST_DIGITS} digits", "amount")
    return f"{exact:f}"


def plain_number(exact: Decimal) -> Number:
    """Return a number as an int where it has no fraction."""
    return int(exact) if exact == exact.to_integral_value() else exact
