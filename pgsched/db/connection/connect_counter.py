"""How often this process has tried to connect, by purpose: what metrics call reconnects."""

from __future__ import annotations

from collections import Counter

TRIED: Counter[str] = Counter()
