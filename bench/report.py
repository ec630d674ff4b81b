"""What a run prints: progress on stderr, Markdown tables on stdout, everything as JSON beside the plots.

The rule: a contestant that could not be measured has a row that says why; none is left out silently.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

BEGAN = time.monotonic()


def progress(text: str) -> None:
    """One line on stderr."""
    print(f"[{time.monotonic() - BEGAN:7.1f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def logs_from(level: int) -> Iterator[None]:
    """What pgsched logs in this process goes to stderr, from this level on: tables have stdout for themselves."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.reset_defaults() if before is None else structlog.configure(**before)


@dataclass
class Result:
    """One measurement: a table for people, `data` for programs (what the table was made of)."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def absent(self, label: str, why: str) -> list[str]:
        """The row of a contestant that could not be measured."""
        text = " ".join(why.split()).replace("|", "/")
        return [label, f"not measured: {text[:200]}", *["-"] * (len(self.columns) - 2)]

    def markdown(self) -> str:
        """The table. Raises AssertionError for a row that is longer or shorter than it."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise AssertionError(f"{self.name}: {len(row)} cells for {len(self.columns)} columns: {row}")
        lines = [f"## {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + " --- |" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *[f"- {note}" for note in self.notes], ""])


def header(about: dict[str, dict[str, str]]) -> str:
    """Versions, settings and machine, as a list."""
    lines = [
        f"- **{part}**: " + ", ".join(f"{name} {value}" for name, value in of.items()) for part, of in about.items()
    ]
    return "\n".join(["# pgsched bench", "", *lines, ""])


def write(out: Path, about: dict[str, dict[str, str]], results: Sequence[Result]) -> Path:
    """Everything as JSON; returns the file."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.json"
    every = {
        one.name: {"title": one.title, "columns": one.columns, "rows": one.rows, "notes": one.notes, **one.data}
        for one in results
    }
    file.write_text(json.dumps({"about": about, "results": every}, indent=1))
    return file


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """A figure for a table; a dash for none."""
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]
