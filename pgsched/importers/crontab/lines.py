"""Read the lines of a crontab: settings of variables, and entries with their command.

Invariant: each line is one setting, one entry, one line that cron refuses, or nothing.

The format is that of crontab(5). cron reads a line as a setting if it can. A command keeps its spaces; `%` ends it, and
begins its input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pgsched.importers.crontab.fields import LineRefused
from pgsched.importers.imported import Reason, Remark

SETTING = re.compile(r"""[ \t]*("[^"]*"|'[^']*'|[^\s='"]+)[ \t]*=[ \t]*(.*)""")
FLAGS = re.compile(r"((?:-[nqs]+[ \t]+)+)(?=\S)")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?(?::[^\s/]+)?(?:/\S+)?")
BLANKS = re.compile(r"[ \t]+")
LONGEST_LINE = 65_536
LONGEST_SHOWN = 300  # characters of a line that is too long
TOO_LONG = f"longer than {LONGEST_LINE} characters"


@dataclass(frozen=True, slots=True)
class Setting:
    """A line `NAME = value`."""

    number: int
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A line with a command. `times`: five fields, or one macro. `flags`: the letters before the command."""

    number: int
    text: str
    times: tuple[str, ...]
    user: str | None
    flags: frozenset[str]
    command: str
    stdin: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cron does not accept."""

    number: int
    text: str
    remark: Remark


def read_crontab(text: str, *, user_column: bool) -> Iterator[Setting | Entry | BadLine]:
    """Yield what the lines of a crontab are. `user_column`: it is of the system, with a user before each command."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#"):
            continue
        if len(stripped) > LONGEST_LINE:
            yield BadLine(number, stripped[:LONGEST_SHOWN], Remark(Reason.REFUSED, TOO_LONG))
            continue
        if match := SETTING.fullmatch(line.rstrip(" \t\r")):
            yield Setting(number, _unquoted(match[1]), _unquoted(match[2]))
            continue
        try:
            yield _entry(number, stripped, user_column)
        except LineRefused as refusal:
            yield BadLine(number, stripped, refusal.remark)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _entry(number: int, line: str, user_column: bool) -> Entry:
    flags: set[str] = set()
    left = line
    if left.startswith("-") and len(left) > 1 and left[1] in "*@0123456789~":  # cronie: write no line to syslog
        flags.add("-")
        left = left[1:]
    fields = 1 if left.startswith("@") else 5
    parts = BLANKS.split(left, maxsplit=fields + user_column)
    if len(parts) <= fields + user_column:
        raise LineRefused(f"a line has {fields} field{'s' * (fields > 1)} for the time"
                          f"{', a user' * user_column} and a command")  # fmt: skip
    times, user = tuple(parts[:fields]), parts[fields] if user_column else None
    if user is not None and not USER.fullmatch(user):
        raise LineRefused(f"{user!r:.60} is not the name of a user")
    command = parts[-1]
    if match := FLAGS.match(command):
        flags.update(letter for letter in match[1] if letter in "nqs")
        command = command[match.end() :]
    if command.startswith("*"):
        raise LineRefused("a command does not begin with *: the line has a field too many")
    program, stdin = split_input(command)
    if not program.strip():
        raise LineRefused("a line needs a command")
    return Entry(number, line, times, user, frozenset(flags), program, stdin)


def split_input(command: str) -> tuple[str, str]:
    """Split a command at its first `%` that has no backslash before it; return the command and its input.

    `\\%` becomes `%`. In the input each `%` is the end of a line, and the last line has an end, too.
    """
    program: list[str] = []
    escaped = False
    for at, char in enumerate(command):
        if escaped:
            program[-1:] = ["%"] if char == "%" else ["\\", char]
            escaped = False
        elif char == "%":
            return "".join(program), _input(command[at + 1 :])
        else:
            program.append(char)
            escaped = char == "\\"
    return "".join(program), ""


def _input(text: str) -> str:
    found: list[str] = []
    escaped = False
    for char in text:
        if escaped and char != "%":
            found.append("\\")
        written = "\n" if char == "%" and not escaped else char
        escaped = written == "\\"
        if not escaped:
            found.append(written)
    if escaped:
        found.append("\\")
    return "".join(found) + ("\n" if found and found[-1] != "\n" else "")
