"""Take values of known types out of a manifest.

Invariant: a value of another type is refused with its path, as the API server would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRUE, FALSE = {"true", "True", "TRUE", "yes", "Yes", "on", "On", "y"}, {"false", "False", "FALSE", "no", "No", "off",
                                                                       "Off", "n"}  # fmt: skip
BIGGEST = 2**31 - 1
MOST_LISTED = 1000  # values of one list; an alias may name it ten thousand times


class FieldRefused(Exception):
    """A value is not of the type that the API has."""


class Fields:
    """A mapping of a manifest, with its path."""

    def __init__(self, value: Any, path: str = "") -> None:
        if value is not None and not isinstance(value, Mapping):
            raise FieldRefused(f"{path or 'the document'} is no mapping")
        self._values: Mapping[str, Any] = value or {}
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def _where(self, name: str) -> str:
        return f"{self._path}.{name}".lstrip(".")

    def names(self) -> list[str]:
        """Return the names of the fields that have a value."""
        return [name for name in self._values if name in self]

    def at(self, *names: str) -> Fields:
        """Return the mapping at a path below; an empty one where there is none."""
        found = self
        for name in names:
            found = Fields(found._values.get(name), found._where(name))
        return found

    def text(self, name: str) -> str | None:
        """Return a text; None where there is none."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise FieldRefused(f"{self._where(name)} is no text")
        return value

    def number(self, name: str) -> int | None:
        """Return a whole number that is not negative; None where there is none."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 12 or int(text) > BIGGEST:
            raise FieldRefused(f"{self._where(name)}: {text!r:.40} is no number from 0 to {BIGGEST}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return a boolean; False where there is none."""
        text = self.text(name)
        if text is None or text in FALSE:
            return False
        if text not in TRUE:
            raise FieldRefused(f"{self._where(name)}: {text!r:.40} is neither true nor false")
        return True

    def _listed(self, name: str) -> list[Any]:
        values = self._values.get(name) or []
        if not isinstance(values, list):
            raise FieldRefused(f"{self._where(name)} is no list")
        if len(values) > MOST_LISTED:
            raise FieldRefused(f"{self._where(name)} has more than {MOST_LISTED} values")
        return values

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; an empty one where there is none."""
        values = self._listed(name)
        if not all(one is None or isinstance(one, str) for one in values):
            raise FieldRefused(f"{self._where(name)} is no list of texts")
        return [one or "" for one in values]

    def list(self, name: str) -> list[Fields]:
        """Return a list of mappings; an empty one where there is none."""
        values = self._listed(name)
        return [Fields(one, f"{self._where(name)}[{number}]") for number, one in enumerate(values)]
