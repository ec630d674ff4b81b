"""The output of a benchmark: what happens on stderr, Markdown tables on stdout, all results as JSON beside the plots.

Invariant: a contestant that could not be measured has a row with the reason. None is left out silently.
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


def log_step(text: str) -> None:
    """Print one line on stderr."""
    print(f"[{time.monotonic() - BEGAN:7.1f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def logs_from(level: int) -> Iterator[None]:
    """Send pgsched's logs of this level and above to stderr, so that stdout has only the tables."""
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
    """One measurement: a table for people, and `data` for programs, from which the table was made."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def absent(self, label: str, why: str) -> list[str]:
        """Return the row of a contestant that could not be measured."""
        text = " ".join(why.split()).replace("|", "/")
        return [label, f"not measured: {text[:200]}", *["-"] * (len(self.columns) - 2)]

    def markdown(self) -> str:
        """Return the table. Raises AssertionError for a row with too many or too few cells."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise AssertionError(f"{self.name}: {len(row)} cells for {len(self.columns)} columns: {row}")
        lines = [f"## {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + " --- |" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *[f"- {note}" for note in self.notes], ""])


def header(about: dict[str, dict[str, str]]) -> str:
    """Return versions, settings and machine as a list."""
    lines = [
        f"- **{part}**: " + ", ".join(f"{name} {value}" for name, value in of.items()) for part, of in about.items()
    ]
    return "\n".join(["# pgsched bench", "", *lines, ""])


def write(out: Path, about: dict[str, dict[str, str]], results: Sequence[Result]) -> Path:
    """Write all results as JSON; return the file."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.json"
    every = {
        one.name: {"title": one.title, "columns": one.columns, "rows": one.rows, "notes": one.notes, **one.data}
        for one in results
    }
    file.write_text(json.dumps({"about": about, "results": every}, indent=1))
    return file


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """Format a figure for a table; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]
