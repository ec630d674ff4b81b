"""Plots as PNG and SVG, where matplotlib is installed (`pip install 'pgsched[bench]'`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import Result


def draw(out: Path, results: Sequence[Result]) -> None:
    """Nothing yet."""
