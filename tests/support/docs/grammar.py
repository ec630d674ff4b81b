"""Check command lines against the program's own command tree, without running them."""

from __future__ import annotations

import functools
import re
import shlex
from typing import Any

import typer.main

from pgsched.cli import make_app


@functools.cache
def tree() -> Any:
    return typer.main.get_command(make_app())


@functools.cache
def all_options() -> frozenset[str]:
    """Return every option of every command."""

    def of(command: Any) -> set[str]:
        found = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        for child in getattr(command, "commands", {}).values():
            found |= of(child)
        return found

    return frozenset(of(tree()) | {"--help", "-h"})


def faults(line: str) -> list[str]:
    """Return what is wrong with a command line `pgsched noun verb --option`; the verb may be a list of verbs."""
    try:
        given = shlex.split(line.replace("…", "..."), comments=True)
    except ValueError as error:
        return [f"{line}: {error}"]
    found: list[str] = []
    commands, rest = [tree()], given[1:]
    while rest and all(hasattr(command, "commands") for command in commands) and not rest[0].startswith("-"):
        named, rest = rest[0], rest[1:]
        while named.endswith(",") and rest:  # add, list, show
            named, rest = named + rest[0], rest[1:]
        names = [name for name in re.split("[,/]", named) if name]
        children = [getattr(command, "commands", {}).get(name) for command in commands for name in names]
        if None in children:
            if named == "...":
                break
            return [f"{line}: there is no command {named}"]
        commands = children
    for word in rest[: rest.index("--")] if "--" in rest else rest:  # behind it is the command of `lock run`
        option = word.partition("=")[0]
        if option.startswith("--") and not any(takes(command, option) for command in commands):
            found.append(f"{line}: there is no option {option}")
    return found


def takes(command: Any, option: str) -> bool:
    own = {name for known in command.params for name in (*known.opts, *known.secondary_opts)} | {"--help"}
    children = getattr(command, "commands", {})
    return option in own or ("start" in children and takes(children["start"], option))
