"""Read manifests: YAML or JSON with several documents, as `kubectl` takes them.

Invariant: the work is bounded, whatever a file holds: so many values, so deep. An alias is the value that it names, and
never a copy.

Scalars stay texts, because each field of a manifest knows its type; an empty one, `~` and `null` are None. Merge keys
(`<<`) are followed. The parser of PyYAML gives events, so that no text makes it recurse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
MOST_VALUES, DEEPEST = 500_000, 100
NULLS = {"", "~", "null", "Null", "NULL"}
MERGE = "<<"


class ManifestError(Exception):
    """A file that is no manifest. `line`: where."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class Manifest:
    """One document. `line`: where it begins."""

    line: int
    value: Any


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end is not read yet. `key`: of a mapping, the key whose value comes next."""

    value: list[Any] | dict[str, Any]
    anchor: str | None
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    anchors: dict[str, Any] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)
    count: int = 0
    line: int = 0
    whole: Any = None

    def take(self, event: Any) -> None:
        """Take one event of the parser."""
        self.line = event.start_mark.line + 1
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self.add(None if event.implicit[0] and event.value in NULLS else event.value, event.anchor)
        elif kind is yaml.AliasEvent:
            if event.anchor not in self.anchors:
                raise ManifestError(self.line, f"*{event.anchor:.60} names no value that is complete")
            self.add(self.anchors[event.anchor], None)
        elif kind in (yaml.MappingStartEvent, yaml.SequenceStartEvent):
            if len(self.stack) >= DEEPEST:
                raise ManifestError(self.line, f"values are nested more than {DEEPEST} deep")
            self.stack.append(_Open({} if kind is yaml.MappingStartEvent else [], event.anchor))
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            ended = self.stack.pop()
            self.add(ended.value, ended.anchor)

    def add(self, value: Any, anchor: str | None) -> None:
        """Put a complete value where it belongs: into the list or mapping that is open."""
        self.grow(1)
        if anchor is not None:
            self.anchors[anchor] = value
        if not self.stack:
            self.whole = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            if value is not None and not isinstance(value, str):
                raise ManifestError(self.line, "a key is no text")
            top.key = value or ""
        else:
            self.put(top.value, top.key, value)
            top.key = None

    def put(self, mapping: dict[str, Any], key: str, value: Any) -> None:
        """Put a value under a key; a merge adds what the mapping does not have."""
        if key == MERGE:
            for one in value if isinstance(value, list) else [value]:
                if not isinstance(one, dict):
                    raise ManifestError(self.line, "<< needs a mapping")
                self.grow(len(one))
                mapping.update({name: item for name, item in one.items() if name not in mapping})
            return
        mapping[key] = value

    def grow(self, count: int) -> None:
        """Count values. Raises ManifestError beyond the limit."""
        self.count += count
        if self.count > MOST_VALUES:
            raise ManifestError(self.line, f"more than {MOST_VALUES} values")


def read_documents(text: str) -> Iterator[Manifest]:
    """Yield the documents of a file. Raises ManifestError at the first that cannot be read."""
    builder = _Builder()
    line = 1
    try:
        for event in yaml.parse(text, Loader=LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                line, builder.whole = event.end_mark.line + 1, None
                builder.anchors.clear()
            elif isinstance(event, yaml.DocumentEndEvent):
                yield Manifest(line, builder.whole)
            else:
                builder.take(event)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark.line + 1 if error.problem_mark is not None else line
        raise ManifestError(at, _explain(text, at, str(error.problem or error.context or "is no YAML"))) from None
    except yaml.YAMLError as error:
        raise ManifestError(line, " ".join(str(error).split())[:200]) from None


def _explain(text: str, line: int, problem: str) -> str:
    if "{{" in text:
        return "this is a template: render it first, such as by `helm template`"
    return f"no YAML: {problem}"
