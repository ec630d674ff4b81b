"""Kazoo's Counter, on the numbers of the store."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pgsched.errors import InputError
from pgsched.recipes.kazoo.exceptions import UnimplementedError
from pgsched.recipes.kazoo.paths import name_of
from pgsched.recipes.shared_values import Counter as SharedCounter
from pgsched.recipes.shared_values import Number

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.client import KazooClient


class Counter:
    """A number that programs add to, as in `counter += 2`.

    `default`: the value of a counter that nobody has changed; its type, int or float, is that of the counter.
    `pre_value`, `post_value`: the number before and after the last change by this object; None before the first.
    """

    def __init__(self, client: KazooClient, path: str, default: float = 0, support_curator: bool = False) -> None:
        if support_curator:
            raise UnimplementedError("support_curator: Curator cannot read the database")
        if type(default) not in (int, float):
            raise TypeError(f"default: expected an int or a float, got {type(default).__name__}")
        self.client = client
        self.path = path
        self.default = default
        self.default_type = type(default)
        self.pre_value: float | None = None
        self.post_value: float | None = None
        self._name = name_of(path)
        self._has_begun = default == 0  # the database takes a counter that does not exist for 0

    @property
    def value(self) -> float:
        """The number. Raises ValueError where the node has data that are none."""

        def read() -> Any:
            entry = self.client.parts.store.get(self._name)
            return self.default if entry is None else self._number_of(entry.value)

        number: float = self.client.retry(self.client.perform, read)
        return number

    def __add__(self, value: float) -> Counter:
        """Add to the number, and return this object. Raises ConnectionLoss where the answer was lost."""
        return self._change(value)

    def __sub__(self, value: float) -> Counter:
        """Subtract from the number, and return this object. Raises ConnectionLoss where the answer was lost."""
        return self._change(-value)

    def _change(self, value: float) -> Counter:
        if not isinstance(value, self.default_type):
            raise TypeError(f"expected a value of type {self.default_type.__name__}, got {type(value).__name__}")
        total = self.client.perform(lambda: self._add(value))
        self.pre_value = self.default_type(total - exact(value))
        self.post_value = self.default_type(total)
        return self

    def _add(self, value: float) -> Number:
        shared = SharedCounter(self.client.parts.keeper, self._name)
        if not self._has_begun:
            self._begin()
        try:
            return shared.add(value)
        except InputError:  # perhaps somebody has set it to text
            self._begin()
            return shared.add(value)

    def _begin(self) -> None:
        """Write the number of a counter that does not exist, or that is kept as text."""
        store = self.client.parts.store
        entry = store.get(self._name)
        if entry is None:
            store.put(self._name, self.default, expected=0)
        elif entry.value is None or isinstance(entry.value, str):
            store.put(self._name, self._number_of(entry.value), expected=entry.version)
        self._has_begun = True

    def _number_of(self, value: Any) -> float:
        """Return the number of a value of the store; the default for an empty one."""
        return self.default if value is None or value == "" else self.default_type(value)


def exact(value: float) -> Decimal:
    """Return the decimal number that Python shows for a number."""
    return Decimal(float.__repr__(value)) if isinstance(value, float) else Decimal(value)
