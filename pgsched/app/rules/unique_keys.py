"""Unique keys: their scopes, the templates that declarations hold, and keys made of arguments.

Invariant: the database makes a key of the arguments (`template_key` and `arguments_key` in migrations/1002_surface). It
is only checked here whether it can. A template names arguments that the handler has. A key of a call is no template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal

from pgsched.app.declarations import Duration, duration
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.app.arguments import Parameters

NAMED = re.compile(r"\{([^{}]+)\}")
ALL = "*"  # `unique_by=True`, as the database has it
UNTIL = ("while_active", "while_queued")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A unique scope: one run in each stretch of `period_s` seconds, whether or not it has ended; see `bucket`."""

    period_s: float

    def __str__(self) -> str:
        return f"bucket({self.period_s!r} seconds)"


@dataclass(frozen=True, slots=True)
class Sliding:
    """A unique scope: no second run within `period_s` seconds after one was made; see `sliding`."""

    period_s: float

    def __str__(self) -> str:
        return f"sliding({self.period_s!r} seconds)"


UniqueScope = Literal["while_active", "while_queued"] | Bucket | Sliding


def bucket(period: Duration) -> Bucket:
    """Return the unique scope "one run in each hour, day, ...": `unique_scope=bucket(timedelta(hours=1))`.

    `period`: seconds, a timedelta or a text such as `1h`, at least one second. Buckets lie end to end: hours begin at
    the full hour, days at midnight UTC, weeks on Monday. A run belongs to the bucket in which it is due. Raises
    InputError for a wrong period.
    """
    return Bucket(duration(1)("unique_scope", period).total_seconds())


def sliding(period: Duration) -> Sliding:
    """Return the unique scope "no second run within this time": `unique_scope=sliding(timedelta(hours=1))`.

    `period`: seconds, a timedelta or a text such as `1h`, at least one second, counted from the instant at which the
    run was made, whatever became of it. Raises InputError for a wrong period.
    """
    return Sliding(duration(1)("unique_scope", period).total_seconds())


def check_scope(name: str, value: Any) -> str:
    """Return a unique scope as the database takes it. Raises InputError for any other value."""
    if isinstance(value, Bucket | Sliding):
        return str(value)
    if value not in UNTIL:
        expected = ", ".join(f'"{word}"' for word in UNTIL)
        raise InputError(
            f"{name}: expected {expected}, pgsched.bucket(period) or pgsched.sliding(period), got {value!r}", name
        )
    return UNTIL[UNTIL.index(value)]


def unknown_scope(name: str, text: str) -> InputError:
    """Return the error for a text that is no unique scope, where scopes are given as texts."""
    return InputError(
        f'{name}: "{text[:100]}" is no scope; known are {", ".join(UNTIL)}, bucket(1h), sliding(1h)', name
    )


def check_names(name: str, value: Any) -> list[str] | None:
    """Return the names of arguments that make a key, or ["*"] for all (True); None for False.

    Raises InputError for anything else.
    """
    if isinstance(value, bool):
        return [ALL] if value else None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}: expected a tuple of the names of arguments, or True for all, got {value!r}", name)
    names = list(value)
    if not names or not all(isinstance(one, str) for one in names):
        raise InputError(f"{name}: expected the names of one or more arguments, got {value!r}", name)
    return list(dict.fromkeys(str.__str__(one) for one in names))


def check_template(parameters: Parameters, template: str) -> None:
    """Check the unique key that a declaration holds.

    Raises InputError for an argument that the handler does not have, and for two arguments that would run together.
    """
    for name in NAMED.findall(template):
        check_argument(parameters, "unique_key", name)
    for between in re.findall(r"\}([^{}]*)(?=\{[^{}]+\})", template):
        if not between.strip("0123456789."):
            raise InputError(
                f'unique_key: "{template}" needs a word or a sign between two arguments: 1 and 23 would make the key of'
                " 12 and 3",
                "unique_key",
            )


def check_argument(parameters: Parameters, option: str, name: str) -> None:
    """Raise InputError if the handler has no argument of this name."""
    known = parameters.signature.parameters
    if parameters.as_array:
        if option == "unique_by":
            raise InputError(f"{option}: the arguments of this task have no names: give True, for all of them", option)
        if name.isdecimal():
            return
    if any(p.kind is Parameter.VAR_KEYWORD for p in known.values()) or name in known:
        return
    raise InputError(
        f"{option}: task {parameters.task} has no argument {name[:100]!r}{did_you_mean(name, known)}", option
    )


def check_literal(parameters: Parameters, key: str) -> None:
    """Raise InputError if a key that is given at a call holds an argument's name in braces: it is no template."""
    for name in NAMED.findall(key):
        if name in parameters.signature.parameters:
            raise InputError(
                f'unique_key: "{key[:60]}" holds {{{name}}}, but a key that is given at a call is taken as it is: use'
                f" unique_by=({name!r},), or declare this key by @app.task(unique_key=...)",
                "unique_key",
            )
