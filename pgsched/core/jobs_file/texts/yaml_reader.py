"""Read YAML: the events of PyYAML's C parser, with the types of the YAML 1.2 core schema.

Invariant: a text means what the core schema says (https://yaml.org/spec/1.2.2/#103-core-schema): `on`, `yes`, `22:00`
and `2026-12-24` are texts. PyYAML itself resolves them as YAML 1.1 does.

The work is bounded, whatever the file holds. Tags, merge keys, keys that are no text and keys given twice are refused.
An alias stands for its value, and counts as many values and as much text as that has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pgsched.core.jobs_file.texts.document import (
    DEEPEST,
    LINES_DEEPEST,
    MOST_TEXT,
    MOST_VALUES,
    Document,
    Path,
    decode,
    file_error,
)
from pgsched.errors import InputError

LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
NULLS = {"", "~", "null", "Null", "NULL"}
FLAGS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
WHOLE = re.compile(r"[-+]?[0-9]{1,400}", re.ASCII)
OCTAL, HEXADECIMAL = re.compile(r"0o[0-7]{1,400}"), re.compile(r"0x[0-9a-fA-F]{1,400}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)")
NOT_A_NUMBER = {".nan", ".NaN", ".NAN"}
FIRST_OF_SPECIALS = set("-+.0123456789~nNtTfF")
Size = tuple[int, int]  # how many values, and how many characters their texts have


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end is not read yet. `key`: of a mapping, the key whose value comes next."""

    value: list[Any] | dict[str, Any]
    path: Path
    anchor: str | None
    key: str | None = None
    size: Size = (1, 0)


@dataclass(slots=True)
class _Reader:
    name: str
    lines: dict[Path, int] = field(default_factory=dict)
    anchors: dict[str, tuple[Any, Size | None]] = field(default_factory=dict)  # None: its value is not read yet
    stack: list[_Open] = field(default_factory=list)
    size: Size = (0, 0)
    found: list[Any] = field(default_factory=list)  # the values of the documents

    def path(self) -> Path:
        """Return the path of the value that comes next."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        return (*top.path, top.key if isinstance(top.value, dict) else len(top.value))  # type: ignore[arg-type]

    def error(self, event: Any, problem: str, path: Path | None = None) -> InputError:
        """Return the error about an event."""
        return file_error(self.name, event.start_mark.line + 1, self.path() if path is None else path, problem)

    def read(self, event: Any) -> None:
        """Take one event of the parser."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self.scalar(event)
        elif kind in (yaml.MappingStartEvent, yaml.SequenceStartEvent):
            self.begin(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            ended = self.stack.pop()
            self.put(event, ended.value, ended.size, ended.anchor)
        elif kind is yaml.AliasEvent:
            self.alias(event)
        elif kind is yaml.DocumentStartEvent and event.tags:
            raise self.error(event, "tags are not supported")

    def begin(self, event: Any, value: list[Any] | dict[str, Any]) -> None:
        """Begin a list or mapping."""
        self.check_event(event)
        path = self.path()
        if self.awaits_key():
            raise self.error(event, "a key must be a text, not a list or mapping", self.stack[-1].path)
        self.counted(event, (1, 0))
        if len(self.stack) >= DEEPEST:
            raise self.error(event, f"is nested more than {DEEPEST} deep", path[:3])
        self.note_line(event, path)
        if event.anchor is not None:
            self.anchors[event.anchor] = (None, None)
        self.stack.append(_Open(value, path, event.anchor))

    def scalar(self, event: Any) -> None:
        """Take a text: a key, or a value."""
        self.check_event(event)
        if self.awaits_key():
            return self.key(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (None, None)
        value = resolve(event.value) if event.implicit[0] else event.value
        if isinstance(value, float) and not _is_finite(value):
            raise self.error(event, f"{event.value} is not a finite number")
        self.note_line(event, self.path())
        size = (1, len(event.value))
        self.counted(event, size)
        return self.put(event, value, size, event.anchor)

    def key(self, event: Any) -> None:
        """Take the key of a mapping: its text as it stands."""
        top = self.stack[-1]
        text = event.value
        if text == "<<" and event.implicit[0]:
            raise self.error(event, "merge keys (<<) are not supported: use defaults, or an alias", top.path)
        if text in top.value:
            raise self.error(event, "is given twice", (*top.path, text))
        size = (1, len(text))
        self.counted(event, size)
        top.size = add_sizes(top.size, size)
        top.key = text
        if len(top.path) < LINES_DEEPEST:
            self.lines[(*top.path, text)] = event.start_mark.line + 1

    def alias(self, event: Any) -> None:
        """Take an alias: the value of its anchor."""
        if self.awaits_key():
            raise self.error(event, "a key must be a text, not an alias", self.stack[-1].path)
        if event.anchor not in self.anchors:
            raise self.error(event, f"there is no anchor &{event.anchor} before this alias")
        value, size = self.anchors[event.anchor]
        if size is None:
            raise self.error(event, f"the alias *{event.anchor} stands inside its own value")
        self.counted(event, size)
        self.note_line(event, self.path())
        self.put(event, value, size, None)

    def put(self, event: Any, value: Any, size: Size, anchor: str | None) -> None:
        """Put a whole value, which is counted, where it belongs."""
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        if not self.stack:
            self.found.append(value)
            return
        top = self.stack[-1]
        top.size = add_sizes(top.size, size)
        if isinstance(top.value, dict):
            top.value[str(top.key)] = value
            top.key = None
        else:
            top.value.append(value)

    def awaits_key(self) -> bool:
        """Check whether the next event is a key."""
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def check_event(self, event: Any) -> None:
        """Refuse tags."""
        if event.tag is not None:
            raise self.error(event, f"tags are not supported: {event.tag[:60]}")

    def counted(self, event: Any, size: Size) -> None:
        """Count values and their text. Raises InputError where the file has too much."""
        self.size = add_sizes(self.size, size)
        if self.size[0] > MOST_VALUES:
            raise self.error(event, f"the file has more than {MOST_VALUES:,} values, aliases counted in full", ())
        if self.size[1] > MOST_TEXT:
            most = f"{MOST_TEXT // 2**20} MiB of text"
            raise self.error(event, f"the file has more than {most}, aliases counted in full", ())

    def note_line(self, event: Any, path: Path) -> None:
        """Keep the line of a list item; that of a mapping's value is the line of its key."""
        if path and isinstance(path[-1], int) and len(path) <= LINES_DEEPEST:
            self.lines[path] = event.start_mark.line + 1


def add_sizes(one: Size, other: Size) -> Size:
    """Return the sum of two sizes."""
    return one[0] + other[0], one[1] + other[1]


def _is_finite(value: float) -> bool:
    return value - value == 0


def read_yaml(name: str, content: bytes) -> Document:
    """Return the values of a YAML file. Raises InputError."""
    reader = _Reader(name)
    for event in _events(name, decode(name, content)):
        if type(event) is yaml.DocumentStartEvent and reader.found:
            raise file_error(name, line_of(event.start_mark), (), "a jobs file is one document")
        reader.read(event)
    return Document(name, reader.found[0] if reader.found else None, reader.lines)


def line_of(mark: Any) -> int | None:
    """Return the line of a place in the text, from 1; None where it is not known."""
    return None if mark is None else int(mark.line) + 1


def _events(name: str, text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=LOADER)
    except yaml.reader.ReaderError as error:
        # the C parser counts bytes
        before = text.encode()[: error.position] if yaml.__with_libyaml__ else text[: error.position].encode()
        line = before.count(b"\n") + 1
        raise file_error(name, line, (), f"is not YAML: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, [error.context, error.problem]))
        raise file_error(name, line_of(mark), (), f"is not YAML: {what}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise file_error(name, None, (), f"is not YAML: {error}") from None


def resolve(text: str) -> Any:
    """Return the value of a plain text as the core schema says: null, bool, int, float, or the text itself."""
    if text in NULLS:
        return None
    if text[0] not in FIRST_OF_SPECIALS:
        return text
    if text in FLAGS:
        return FLAGS[text]
    whole = _whole(text)
    if whole is not None:
        return whole
    if FLOAT.fullmatch(text):
        return float(text)
    if found := INFINITE.fullmatch(text):
        return float(f"{found[1]}inf")
    return float("nan") if text in NOT_A_NUMBER else text


def _whole(text: str) -> int | None:
    """Return the value of a text that is a whole number; None for any other."""
    for form, base in ((WHOLE, 10), (OCTAL, 8), (HEXADECIMAL, 16)):
        if form.fullmatch(text):
            return int(text[2:] if base != 10 else text, base)
    return None
