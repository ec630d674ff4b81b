"""Read TOML by tomllib, and find the lines of its keys, which tomllib does not tell.

The lines are found by a second look at the text: table headers, and keys at the beginning of a line. Where a text of
several lines looks like that, an error may name a wrong line, and nothing else goes wrong.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from pgsched.core.jobs_file.texts.document import (
    DEEPEST,
    LINES_DEEPEST,
    MOST_VALUES,
    Document,
    Path,
    decode,
    file_error,
)

HEADER = re.compile(r"\s*(\[\[?)(.*?)\]\]?\s*(?:#.*)?")
KEY = re.compile(r"""\s*((?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[\w-]+|"[^"\n]*"|'[^'\n]*'))*)\s*=""")
# A part of a key, or a text or word that looks like one: each takes all that it can, so that a line is read once.
PART = re.compile(r"""(?:"(?:[^"\\]|\\.)*+"?|'[^']*+'?|[\w-]++)""")
DOTTED = re.compile(rf"{PART.pattern}(?:[ \t]*+\.[ \t]*+{PART.pattern})*+")
MOST_KEPT = 20_000_000  # parts of beginnings of dotted keys, about 8 bytes each
QUOTES = ('"""', "'''")


def read_toml(name: str, content: bytes) -> Document:
    """Return the values of a TOML file. Raises InputError."""
    text = decode(name, content)
    check_keys(name, text)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(found[1]) if found and found[1] else len(text.splitlines())
        problem = str(error)[: found.start()] if found else str(error)
        raise file_error(name, line, (), f"is not TOML: {problem}") from None
    except RecursionError:
        raise file_error(name, None, (), f"is nested more than {DEEPEST} deep") from None
    except ValueError as error:  # a number of thousands of digits
        problem = str(error).partition(":")[0]
        raise file_error(name, None, (), f"is not TOML: {problem}") from None
    check_size(name, data)
    return Document(name, data, find_lines(text, data))


def check_keys(name: str, text: str) -> None:
    """Raise InputError for keys that tomllib would need much memory for: it keeps each beginning of a dotted key.

    A text or number that looks like a dotted key counts as one, which matters only where there are very many.
    """
    header, kept = 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        for found in DOTTED.finditer(line) if "." in line else ():
            if "." not in found[0]:
                continue
            parts = len(PART.findall(found[0]))
            if parts > DEEPEST:
                raise file_error(name, number, (), f"has a key of more than {DEEPEST} parts")
            if line.lstrip().startswith("["):
                header = max(header, parts)
            else:
                kept += (header + parts) * (parts - 1)
        if kept > MOST_KEPT:
            raise file_error(name, number, (), "has too many long dotted keys: use tables")


def check_size(name: str, data: Any) -> None:
    """Raise InputError for too many values, or too many levels."""
    count, level = 0, [data]
    for _ in range(DEEPEST):
        count += len(level)
        if count > MOST_VALUES:
            raise file_error(name, None, (), f"the file has more than {MOST_VALUES:,} values")
        level = [
            inner
            for value in level
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise file_error(name, None, (), f"is nested more than {DEEPEST} deep")


def find_lines(text: str, data: Any) -> dict[Path, int]:
    """Return the line of each key that begins a line or stands in a table's header, by path."""
    lines: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}  # of the tables of each array
    for number, line in outside_long_texts(text):
        if header := HEADER.fullmatch(line):
            table = table_path(key_parts(header[2]), counts, header[1] == "[[")
            add_lines(lines, table, number)
        elif (key := KEY.match(line)) is not None:
            add_lines(lines, (*table, *key_parts(key[1])), number)
    return {path: number for path, number in lines.items() if exists(path, data)}


def outside_long_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, without those that continue a text of several lines."""
    inside = ""
    for number, line in enumerate(text.split("\n"), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        yield number, line
        inside = next((quotes for quotes in QUOTES if line.count(quotes) % 2), "")


def key_parts(text: str) -> Path:
    """Return the parts of a dotted key; none if it is no key."""
    try:
        found: Any = tomllib.loads(f"{text} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    parts: list[str] = []
    while isinstance(found, dict) and len(parts) < LINES_DEEPEST:
        ((key, found),) = found.items()
        parts.append(key)
    return tuple(parts)


def table_path(parts: Path, counts: dict[Path, int], is_item: bool) -> Path:
    """Return the path of a table, with the places in arrays of tables."""
    path: Path = ()
    for at, part in enumerate(parts):
        path = (*path, part)
        if is_item and at == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def add_lines(lines: dict[Path, int], path: Path, number: int) -> None:
    """Keep the line of a path, and of those around it that have none."""
    for length in range(1, min(len(path), LINES_DEEPEST) + 1):
        lines.setdefault(path[:length], number)


def exists(path: Path, data: Any) -> bool:
    """Check whether the values have this path."""
    for key in path:
        if isinstance(key, int):
            if not isinstance(data, list) or key >= len(data):
                return False
            data = data[key]
        elif isinstance(data, dict) and key in data:
            data = data[key]
        else:
            return False
    return True
