"""A file after its text was read: plain values, and the line of each of them.

Invariant: every error about a file is one line that begins with the file's name, the line and the path of the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgsched.errors import InputError

Path = tuple[str | int, ...]

MOST_BYTES = 16 * 2**20  # of a file
MOST_VALUES = 2_000_000  # in a file, where each use of an alias counts what it stands for
MOST_TEXT = 64 * 2**20  # characters in the texts of a file, where each use of an alias counts in full
DEEPEST = 250  # levels; arguments of jobs have at most 200
LINES_DEEPEST = 4  # the lines of values below this many levels are those of the value around them
_PLAIN = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file.

    `name`: what errors call the file. `data`: its values; mappings have only texts as keys.
    `lines`: the line of each key and list item, counted from 1, by its path; not of what an alias stands for.
    """

    name: str
    data: Any
    lines: Mapping[Path, int]

    def line(self, path: Path) -> int | None:
        """Return the line of a value, or of the nearest value around it that has one."""
        for length in range(min(len(path), LINES_DEEPEST), 0, -1):
            if (found := self.lines.get(path[:length])) is not None:
                return found
        return None

    def error(self, path: Path, problem: str) -> InputError:
        """Return the error about a value."""
        return file_error(self.name, self.line(path), path, problem)


def file_error(name: str, line: int | None, path: Path, problem: str) -> InputError:
    """Return an error such as `jobs.yaml:12: jobs.nightly.overlap: "drop" is not one of ...`."""
    place = name if line is None else f"{name}:{line}"
    shown = path_text(path)
    return InputError(": ".join(part for part in (place, shown, problem) if part), shown or None)


def path_text(path: Path) -> str:
    """Return a path as text: `jobs.nightly.after`, `pauses[0].what`, `jobs."a b"`; long keys are shortened."""
    parts = []
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        else:
            short = key if len(key) <= 60 else key[:59] + "…"
            shown = short if _PLAIN.fullmatch(short) else json.dumps(short, ensure_ascii=False)
            parts.append(f".{shown}" if parts else shown)
    return "".join(parts)


def decode(name: str, content: bytes) -> str:
    """Return the text of a file. Raises InputError for one that is too large, or is not UTF-8."""
    if len(content) > MOST_BYTES:
        raise InputError(f"{name}: has more than {MOST_BYTES // 2**20} MiB, which is the most for a jobs file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: is not UTF-8: {error.reason} at byte {error.start}") from None
