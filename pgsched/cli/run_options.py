"""Options of `pgsched enqueue`, made from the options of an enqueue (`pgsched.app.options.Options`).

Invariant: each option of an enqueue is a flag here. Its type is that of the field, and its help the line about the
field in the docstring of `Options`, unless FLAGS or HELP says otherwise.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from pgsched.app.options import Options
from pgsched.app.rules.unique_keys import UNTIL, unknown_scope
from pgsched.cli.times import read_instant
from pgsched.core.input_values import parse_option_duration
from pgsched.errors import InputError

FLAGS = {"tags": "--tag"}
HELP = {
    "timeout": "How long one attempt may take: 90s, 10m, 2h.",
    "tags": "A word that is kept with the run (repeatable).",
    "delay": "Due after this time: 90s, 10m, 2h.",
    "at": "Due then: 22:00, tomorrow 6:00, in 2 hours, ISO.",
    "after": "Start when all of these runs have succeeded: an id (repeatable).",
    "after_any": "Start when one of these runs has succeeded: an id (repeatable).",
    "concurrency_key": "The key that shares a concurrency limit.",
    "unique_key": "At most one open run has this key.",
    "unique_by": "The key is made of this argument (repeatable); `all`: of all.",
    "wait_for_room": "How long to wait while the queue is full: 10s.",
}
LINE = re.compile(r"^((?:`\w+`(?:, )?)+): (.+)$", re.MULTILINE)
SCOPE = re.compile(r"(\w+)\((.+)\)")
ALL = "all"

Reader = Callable[[str, Any], Any]  # from the name of an option and its text to the value


def flag_of(name: str) -> str:
    """Return the flag of an option of an enqueue."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def option_parameters() -> list[inspect.Parameter]:
    """Return a keyword parameter for each option of an enqueue, annotated for typer."""
    described = dict(descriptions())
    found = []
    for name, hint in get_type_hints(Options).items():
        kind, metavar, _ = describe_option(hint)
        option = typer.Option(flag_of(name), metavar=metavar, help=HELP.get(name) or described.get(name))
        annotation: Any = Annotated[kind, option]
        found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return found


def descriptions() -> Iterator[tuple[str, str]]:
    """Yield each option with the sentence about it in the docstring of `Options`."""
    for names, text in LINE.findall(inspect.getdoc(Options) or ""):  # Python 3.13 keeps no indentation in __doc__
        sentence = text.replace("`", "")
        for name in re.findall(r"`(\w+)`", names):
            yield name, sentence[0].upper() + sentence[1:]


def read_options(given: Mapping[str, Any]) -> Options:
    """Return the options of these values, as typer gives them. Raises InputError."""
    hints = get_type_hints(Options)
    values = {}
    for name, value in given.items():
        if value is not None and value != []:
            values[name] = describe_option(hints[name])[2](flag_of(name).removeprefix("--"), value)
    return Options(**values)


def describe_option(hint: Any) -> tuple[Any, str | None, Reader]:
    """Return how an option of this type is given: the type for typer, the word for its value, and its reader."""
    members = [*flatten_union(hint)]
    origins = [get_origin(one) for one in members]
    scopes = {one.__name__.lower(): one for one in members if isinstance(one, type) and is_dataclass(one)}
    forms: tuple[tuple[bool, Any, str | None, Reader], ...] = (
        (bool in members, list[str], "NAME", read_names),
        (timedelta in members and datetime in members, str, "TIME", read_time),
        (timedelta in members, str, "TIME", parse_option_duration),
        (datetime in members, str, "TIME", lambda name, text: read_instant(name, text, ahead=True)),
        (bool(scopes), str, "SCOPE", lambda name, text: read_scope(name, text, scopes)),
        (list in origins, list[str], "TEXT", lambda name, texts: list(texts)),
        (int in members, int, None, lambda name, value: value),
        (float in members, float, None, lambda name, value: value),
        (any(origins), list[int], "ID", lambda name, ids: list(ids)),  # runs: the command line knows their ids
        (True, str, None, lambda name, text: text),
    )
    return next((kind | None, metavar, read) for fits, kind, metavar, read in forms if fits)


def flatten_union(hint: Any) -> Iterator[Any]:
    """Yield the members of a union, and of the unions in it; str for the words of a Literal."""
    if get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from flatten_union(one)
    else:
        yield str if get_origin(hint) is Literal else hint


def read_time(name: str, text: str) -> timedelta | datetime:
    """Return a length of time, or an instant in the future."""
    try:
        return parse_option_duration(name, text)
    except InputError:
        found = read_instant(name, text, ahead=True)
        assert found is not None
        return found


def read_names(name: str, texts: list[str]) -> bool | list[str]:
    """Return names; True for `all`."""
    return True if list(texts) == [ALL] else list(texts)


def read_scope(name: str, text: str, scopes: Mapping[str, Any]) -> Any:
    """Return a scope: a word, or one with a period, such as `bucket(1h)`. Raises InputError."""
    name = name.replace("-", "_")  # as the messages of the database and of Python have it
    if text in UNTIL:
        return text
    found = SCOPE.fullmatch(text)
    if found is None or found[1] not in scopes:
        raise unknown_scope(name, text)
    return scopes[found[1]](parse_option_duration(name, found[2]).total_seconds())
