"""Count how often this process has tried to connect, by purpose: the basis of the metric for reconnects."""

from __future__ import annotations

from collections import Counter

CONNECT_ATTEMPTS: Counter[str] = Counter()
