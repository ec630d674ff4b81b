"""Messages on stderr: errors and notes, as lines of text, and under --json as lines of JSON.

Invariant: control characters are escaped, so that no text from the database can control a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence

from pgsched.control_characters import escape_controls

CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_format = {"json": False}  # of this command


def choose_format(args: Sequence[str]) -> None:
    """Choose text or JSON for the messages of a command line: JSON if --json is among its options."""
    options = args[: args.index("--")] if "--" in args else args
    _format["json"] = "--json" in options


def print_note(text: str) -> None:
    """Print a note about something that was done nevertheless."""
    write_line(json.dumps({"note": text}) if _format["json"] else f"note: {escape_controls(text)}")


def print_remark(text: str) -> None:
    """Print a line that is not the result of the command: what it waits for, or how to go on."""
    write_line(json.dumps({"note": text}) if _format["json"] else escape_controls(text))


def print_error(text: str, exit_code: int, code: str, field: str | None = None) -> int:
    """Print an error as one line and return `exit_code`.

    `code`: the kind of error for programs, such as not_found. `field`: the option or column that is wrong.
    """
    text = " ".join(text.split())
    error = {"code": code, "message": text, "field": field, "exit_code": exit_code}
    try:
        write_line(json.dumps({"error": error}) if _format["json"] else f"error: {escape_controls(text)}")
    except BrokenPipeError:
        return silence_stdout()
    return exit_code


def code_of(error: BaseException) -> str:
    """Return the code of an error: the name of its class in small letters, such as `not_found`."""
    return CAPITAL.sub("_", type(error).__name__).lower()


def write_line(line: str) -> None:
    """Write a line to stderr at once."""
    print(line, file=sys.stderr, flush=True)


def silence_stdout() -> int:
    """Send further output to /dev/null after the reader has gone (`pgsched run list | head`); return 1.

    Python flushes stdout at exit: the flush then finds an open file and prints no error.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
