"""Counters, gauges and histograms of one process.

Invariant: values come in batches, each batch takes the lock once, and values are read only at a scrape. A snapshot is
plain lists and numbers, so that workers can send theirs to the parent that serves them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from pgsched.telemetry.catalogue import BY_NAME, MANY, MOST, MOST_SERIES, OTHER

Labels = tuple[str, ...]
Sample = tuple[str, Labels, Any]  # name, label values, and a number or a histogram's [counts by bucket, sum]
Source = Callable[[], Iterable[Sample]]


class BoundedLabels:
    """A limit on label values: the first `most` values keep their names, further ones become `other`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return the value, or `other` if there are too many already."""
        known = self._known.get(name)
        if known is None:
            known = OTHER if len(self._known) >= self._most else name
            if known is not OTHER:
                self._known[name] = name
        return known


class Meter:
    """Counters, gauges and histograms by name and label values. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[Any]] = {}
        self._series: Counter[str] = Counter()
        self.sources: list[Source] = []  # called at each scrape, for values that are read and not counted

    def count(self, name: str, labels: Labels = (), by: float = 1) -> None:
        """Add to a counter."""
        key = name, labels
        with self._lock:
            if key not in self._numbers:
                key = self._bounded_key(name, labels)
            self._numbers[key] = self._numbers.get(key, 0) + by

    def observe(self, name: str, values: list[float], labels: Labels = (), weight: int = 1) -> None:
        """Add values to a histogram, each counted `weight` times; this sorts the list."""
        bounds = BY_NAME[name].buckets
        values.sort()
        places = [bisect_right(values, bound) for bound in bounds] if len(values) > 1 else None
        with self._lock:
            kept = self._histograms.get((name, labels))
            if kept is None:
                kept = self._histograms.setdefault(self._bounded_key(name, labels), [[0] * (len(bounds) + 1), 0.0])
            counts = kept[0]
            if places is None:
                counts[bisect_left(bounds, values[0])] += weight
            else:
                for place, (before, upto) in enumerate(pairwise((0, *places, len(values)))):
                    counts[place] += (upto - before) * weight
            kept[1] += sum(values) * weight

    def _bounded_key(self, name: str, labels: Labels) -> tuple[str, Labels]:
        """Return the labels under which new labels are counted: beyond MOST_SERIES, `other`."""
        if self._series[name] < MOST_SERIES:
            self._series[name] += 1
            return name, labels
        whose = BY_NAME[name].labels
        return name, tuple(OTHER if label in MANY else value for label, value in zip(whose, labels, strict=True))

    def snapshot(self) -> list[Sample]:
        """Return all values as they are now."""
        with self._lock:
            found: list[Sample] = [(name, labels, value) for (name, labels), value in self._numbers.items()]
            found += [(name, labels, [list(kept[0]), kept[1]]) for (name, labels), kept in self._histograms.items()]
        for source in self.sources:
            found += source()
        return found
