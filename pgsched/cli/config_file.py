"""The settings file `pgsched.toml`: options of commands, for those that the command line and environment leave out.

Invariant: a key that no command knows is an error. The file changes nothing but defaults.

Keys are the options without their dashes: `dsn` and `app` for all commands at the top, other options in the table of
their command. The file is searched in the current folder, and above it up to the root of the repository.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgsched.core.text import did_you_mean
from pgsched.errors import InputError
from pgsched.log import redact

NAME = "pgsched.toml"
VARIABLE = "PGSCHED_CONFIG"
SHARED = ("dsn", "app")  # options at the top of the file
DSN_VARIABLES = ("PGSCHED_DSN", "DATABASE_URL")


def find_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the settings file, None if there is none. Raises InputError for one that must not or cannot be read."""
    given = (os.environ if environ is None else environ).get(VARIABLE)
    if given is not None:
        if not given.strip():
            raise InputError(f"{VARIABLE}: it is given, but empty: name a file, or leave it out", VARIABLE)
        if not Path(given).is_file():
            raise InputError(f"{VARIABLE}: there is no file {given}", VARIABLE)
        return Path(given)
    here = Path.cwd()
    if (path := here / NAME).is_file():
        refuse_stranger(path, here.stat().st_uid)
        return path
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    for folder in here.parents if root not in (None, here) else ():
        if (path := folder / NAME).is_file():
            refuse_stranger(path)
            return path
        if folder == root:
            break
    return None


def refuse_stranger(path: Path, *allowed: int) -> None:
    """Raise InputError for a file of another user: its owner would choose what runs here.

    `allowed`: further owners that are right. In the current folder that is the folder's own owner, so that root may
    work in the project of another user. In a folder for all, such as /tmp, it is root.
    """
    owners = {path.stat().st_uid, path.lstat().st_uid}  # the file, and the link to it
    for owner in owners - {os.getuid(), 0, *allowed}:
        raise InputError(
            f"{path} belongs to another user (uid {owner}), so it is not read: set {VARIABLE}={path} if it is right",
            VARIABLE,
        )


def read_file(path: Path) -> dict[str, Any]:
    """Return what the file contains. Raises InputError, with the line, where it is no TOML."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}", VARIABLE) from None


def apply_file(path: Path, command: Any, words: list[str]) -> dict[str, Any]:
    """Return the defaults of the commands, as `default_map` of click takes them; put the DSN into the environment.

    `command`: the command line, in which at least the first of these `words` is built.
    Raises InputError for a key that is not known, or a value of the wrong type.
    """
    given = read_file(path)
    names = {word: command.commands[word] for word in command.commands}
    for key, value in given.items():
        if key not in SHARED and not (isinstance(value, dict) and key in words):
            raise InputError(f"{path}: unknown key {key}{did_you_mean(key, [*SHARED, *words])}", key)
    top = {key: given[key] for key in SHARED if key in given and key != "dsn"}
    found = {word: defaults_of(path, [word], one, given.get(word, {}), top) for word, one in names.items()}
    take_dsn(path, given.get("dsn"))
    return found


def defaults_of(
    path: Path, place: list[str], command: Any, given: Mapping[str, Any], top: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the defaults of one command and of those below it. `place`: its names; `top`: keys for all commands."""
    children = getattr(command, "commands", {})
    options = {name[2:]: option for option in command.params for name in option.opts if name.startswith("--")}
    options.pop("dsn", None)
    found: dict[str, Any] = {}
    shared = {key: one for key, one in top.items() if key in options and options[key].envvar}  # no app of Celery
    for key, value in {**shared, **given}.items():
        where = ".".join([*(place if key in given else ()), key])
        if key in children and isinstance(value, dict):
            continue
        if key not in options:
            hint = "; it stands at the top of the file" if key == "dsn" else did_you_mean(key, [*options, *children])
            raise InputError(f"{path}: unknown key {where}{hint}", key)
        found[options[key].name] = convert(path, where, options[key], value)
    for name, child in children.items():
        found[name] = defaults_of(path, [*place, name], child, given.get(name, {}), top)
    return found


def convert(path: Path, where: str, option: Any, value: Any) -> Any:
    """Return the value of a key as its option takes it. Raises InputError for another type."""
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not option.multiple:
        raise InputError(f"{path}: {where}: expected one value, got a list", where)
    for one in values:
        if option.is_flag is not isinstance(one, bool) or isinstance(one, dict | list):
            expected = "true or false" if option.is_flag else "a text or a number"
            raise InputError(f"{path}: {where}: expected {expected}, got {one!r}", where)
        if not option.is_flag:
            try:
                option.type.convert(str(one), option, None)
            except Exception as error:
                text = error.format_message() if hasattr(error, "format_message") else str(error)
                raise InputError(f"{path}: {where}: {text.partition(': ')[2] or text}", where) from None
    return [str(one) for one in values] if option.multiple else value


def take_dsn(path: Path, dsn: Any) -> None:
    """Let this process and its children use the file's DSN, unless the environment has one."""
    if dsn is None:
        return
    if not isinstance(dsn, str) or not dsn.strip():
        raise InputError(f"{path}: dsn: expected a connection string, got {dsn!r}", "dsn")
    if redact(dsn) != dsn and path.stat().st_mode & stat.S_IROTH:
        text = "holds a password, and every user of this machine can read it: chmod 600"
        print(f"warning: {path} {text} {path}", file=sys.stderr)
    if not any(name in os.environ for name in DSN_VARIABLES):
        os.environ["PGSCHED_DSN"] = dsn
