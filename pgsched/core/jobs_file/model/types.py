"""The types of a file's values: how each is read, compared, shown, and exchanged with the database.

Invariant: a type turns the value of a file and the value of a row into the same Python value, if they mean the same.
The two can then be compared with `==`. What a type refuses, the database refuses as well.

Each type has four functions. `read` takes the value of a file and raises WrongValue with the reason, as the end of a
sentence. `show` returns it as a file has it. `load` and `send` exchange it with the database, as values of JSON.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pgsched.core import payload
from pgsched.core.text import did_you_mean

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
SURROGATES = re.compile(r"[\ud800-\udfff]")
SINK_NAME = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)


class WrongValue(ValueError):
    """A value of a file is not one of its type; the text is the end of a sentence about the value."""


class Type(ABC):
    """A type of values."""

    @abstractmethod
    def read(self, value: Any) -> Any:
        """Return the value that a file's value means. Raises WrongValue."""

    def show(self, value: Any) -> Any:
        """Return the value as a file has it."""
        return value

    def load(self, value: Any) -> Any:
        """Return the value of a row's value."""
        return value

    def send(self, value: Any) -> Any:
        """Return the value as the database takes it, as part of JSON."""
        return value


def shorten_value(value: Any) -> str:
    """Return a value for an error, in the way of JSON, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= 60 else text[:59] + "…"


def expect_text(value: Any) -> str:
    """Return a value that is a text. Raises WrongValue."""
    if not isinstance(value, str):
        scalar = isinstance(value, (int, float, bool, date, datetime))
        raise WrongValue(f"expected text, got {shorten_value(value)}" + (": put it into quotes" if scalar else ""))
    if SURROGATES.search(value):
        raise WrongValue("holds half a surrogate pair, which is not text")
    return value


@dataclass(frozen=True, slots=True)
class Prose(Type):
    """Any text of at most so many characters, such as several lines for people."""

    longest: int

    def read(self, value: Any) -> str:
        """Check the text."""
        text = expect_text(value)
        if len(text) > self.longest:
            raise WrongValue(f"{len(text)} characters, at most {self.longest} are allowed")
        if "\0" in text:
            raise WrongValue("must not contain NUL characters")
        return text


@dataclass(frozen=True, slots=True)
class Text(Prose):
    """A text of one line, not empty, without spaces around it."""

    def read(self, value: Any) -> str:
        """Check the text."""
        text = Prose.read(self, value)
        if not text:
            raise WrongValue("must not be empty")
        if CONTROLS.search(text):
            raise WrongValue("must not contain control characters")
        if text != text.strip(" "):
            raise WrongValue("must not begin or end with a space")
        return text


class SinkName(Type):
    """The name of a sink of alerts, which the processes that deliver them know."""

    def read(self, value: Any) -> str:
        """Check the name."""
        text = expect_text(value)
        if not SINK_NAME.fullmatch(text):
            raise WrongValue(f"{shorten_value(text)} is no name of 1-63 characters a-z, 0-9, - and _")
        return text


@dataclass(frozen=True, slots=True)
class Word(Type):
    """One of these words."""

    words: tuple[str, ...]

    def read(self, value: Any) -> str:
        """Check the word."""
        if value not in self.words:
            hint = did_you_mean(value, self.words) if isinstance(value, str) else ""
            raise WrongValue(f"{shorten_value(value)} is not one of {', '.join(self.words)}{hint}")
        return str(value)


@dataclass(frozen=True, slots=True)
class Whole(Type):
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def read(self, value: Any) -> int:
        """Check the number."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise WrongValue(f"expected a whole number, got {shorten_value(value)}")
        if not self.low <= value <= self.high:
            raise WrongValue(f"{shorten_value(value)} is out of range {self.low}-{self.high}")
        return value


@dataclass(frozen=True, slots=True)
class Number(Type):
    """A number from `low` to `high`."""

    low: float
    high: float

    def read(self, value: Any) -> float:
        """Check the number."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise WrongValue(f"expected a number, got {shorten_value(value)}")
        if not self.low <= value <= self.high:
            raise WrongValue(f"{shorten_value(value)} is out of range {self.low:g}-{self.high:g}")
        return float(value)


class Flag(Type):
    """True or false."""

    def read(self, value: Any) -> bool:
        """Check the value."""
        if not isinstance(value, bool):
            raise WrongValue(f"expected true or false, got {shorten_value(value)}")
        return value


class Instant(Type):
    """A point in time, with an offset: `2026-12-24 12:00+01:00`."""

    def read(self, value: Any) -> datetime:
        """Read the text, or check the datetime that TOML has."""
        found = value
        if isinstance(value, str):
            try:
                found = datetime.fromisoformat(value.strip())
            except ValueError:
                found = None
        if not isinstance(found, datetime):
            raise WrongValue(f"{shorten_value(value)} is not a time such as 2026-12-24 12:00+01:00")
        if found.utcoffset() is None:
            raise WrongValue(f"{shorten_value(value)} has no offset: write it as {found:%Y-%m-%d %H:%M}+00:00, say")
        if not EARLIEST <= found <= LATEST:
            raise WrongValue(f"{shorten_value(value)} is not a time between 1970 and 9000")
        return found.astimezone(UTC)

    def show(self, value: datetime) -> str:
        """Return the time in UTC."""
        return value.isoformat(sep=" ")

    def load(self, value: Any) -> Any:
        """Read the text of a timestamptz."""
        return None if value is None else datetime.fromisoformat(value).astimezone(UTC)

    def send(self, value: datetime) -> str:
        """Return text that PostgreSQL reads as the timestamptz."""
        return value.isoformat()


@dataclass(frozen=True, slots=True, eq=False)
class JsonValue:
    """A value of JSON. Two are equal if jsonb finds them equal: 1 and 1.0 are, 1 and true are not."""

    value: Any
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonValue) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def json_of(value: Any) -> JsonValue:
    """Return the value of JSON that Python has read."""
    return JsonValue(value, json.dumps(_normal(value), sort_keys=True))


def _normal(value: Any) -> Any:
    """Return the value with each whole number as an int, as jsonb compares numbers."""
    if isinstance(value, dict):
        return {key: _normal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normal(inner) for inner in value]
    # by its digits: jsonb reads 6e23 as a 6 with 23 zeros, which is not the binary number nearest to it
    return int(Decimal(repr(value))) if isinstance(value, float) and value.is_integer() else value


class Arguments(Type):
    """The arguments of a job: an object or array of JSON, at most 1 MiB."""

    def read(self, value: Any) -> JsonValue:
        """Check that the value is JSON that can be stored."""
        if not isinstance(value, (dict, list)):
            raise WrongValue(f"expected a mapping or a list, got {shorten_value(value)}")
        payload.encode(value)  # raises ValueError in the same way
        return json_of(value)

    def show(self, value: JsonValue) -> Any:
        """Return the value itself."""
        return value.value

    def load(self, value: Any) -> JsonValue:
        """Take the value; text stands for JSON that Python cannot read."""
        return JsonValue(value, str(value)) if isinstance(value, str) else json_of(value)

    def send(self, value: JsonValue) -> Any:
        """Return the value itself."""
        return value.value


@dataclass(frozen=True, slots=True)
class ListOf(Type):
    """A list of at most `most` and at least `least` values of one type."""

    item: Type
    most: int
    least: int = 0

    def read(self, value: Any) -> tuple[Any, ...]:
        """Read each value."""
        if not isinstance(value, list):
            raise WrongValue(f"expected a list, got {shorten_value(value)}")
        if not self.least <= len(value) <= self.most:
            what = "is empty" if not value else f"{len(value)} values, at most {self.most} are allowed"
            raise WrongValue(what)
        return tuple(self.item.read(one) for one in value)

    def show(self, value: tuple[Any, ...]) -> list[Any]:
        """Return the values."""
        return [self.item.show(one) for one in value]

    def load(self, value: Any) -> Any:
        """Read the values of an array."""
        return None if value is None else tuple(self.item.load(one) for one in value)

    def send(self, value: tuple[Any, ...]) -> list[Any]:
        """Return the values for an array."""
        return [self.item.send(one) for one in value]


@dataclass(frozen=True, slots=True)
class Names(ListOf):
    """The names of other objects, in no order."""

    def read(self, value: Any) -> tuple[str, ...]:
        """Read the names."""
        return tuple(sorted(set(ListOf.read(self, value))))

    def load(self, value: Any) -> tuple[str, ...]:
        """Read the names; none for null."""
        return tuple(sorted(set(value or ())))
