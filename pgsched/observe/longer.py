"""How it has been going for longer than rows are kept: from the minutes and hours that were counted.

The rule: counts are exact; a percentile is found between the two bounds of its bin, so it is wrong by a factor of two
at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pgsched.db import rollups
from pgsched.db.connect import Connection
from pgsched.db.query import Row
from pgsched.observe.rates import STRETCHES, Stretch

FIRST_S = 0.001  # the upper bound of the first bin; each next one is twice as high
# Seconds of each of STRETCHES stretches, whole minutes or, above three days in all, whole hours.
LONGER = {"6h": 360.0, "24h": 1440.0, "7d": 10_800.0, "30d": 43_200.0}
HOURS_FROM_S = 3600.0


def stretches(conn: Connection[Any], span: str) -> list[Stretch]:
    """The last STRETCHES stretches of a range, oldest first. The newest goes on; its last seconds are to be counted."""
    width_s = LONGER[span]
    now = rollups.look(conn).now
    newest = datetime.fromtimestamp(now.timestamp() // width_s * width_s, now.tzinfo)
    begin = newest - timedelta(seconds=width_s * (STRETCHES - 1))
    sorted_in: list[list[Row]] = [[] for _ in range(STRETCHES)]
    for row in rollups.read(conn, "hour" if width_s >= HOURS_FROM_S else "minute", begin):
        place = int((row["from_at"] - begin).total_seconds() // width_s)
        if 0 <= place < STRETCHES:
            sorted_in[place].append(row)
    return [
        stretch(rows, begin + timedelta(seconds=width_s * n), min(begin + timedelta(seconds=width_s * (n + 1)), now))
        for n, rows in enumerate(sorted_in)
    ]


def stretch(rows: Sequence[Row], from_at: datetime, until_at: datetime) -> Stretch:
    """The figures of one stretch."""
    waits, lates = added(rows, "waits"), added(rows, "lates")
    seconds = max((until_at - from_at).total_seconds(), 0.1)
    return Stretch(
        from_at=from_at,
        until_at=until_at,
        per_s=sum(row["started"] for row in rows) / seconds,
        dead=float(sum(row["runs"] for row in rows if row["state"] == "dead")),
        missed=float(sum(row["runs"] for row in rows if row["state"] == "missed")),
        retried=float(sum(row["retried"] for row in rows)),
        wait_50=percentile(waits, 0.5),
        wait_95=percentile(waits, 0.95),
        late_50=percentile(lates, 0.5),
        late_95=percentile(lates, 0.95),
        late_max=max((row["late_max_s"] for row in rows if row["late_max_s"] is not None), default=None),
        sampled=False,
    )


def added(rows: Sequence[Row], column: str) -> list[int]:
    """The bins of these rows together."""
    return [sum(bins) for bins in zip(*(row[column] for row in rows), strict=True)]


def percentile(bins: Sequence[int], share: float) -> float | None:
    """Seconds below which that share of them lies; None for none."""
    wanted, below = sum(bins) * share, 0.0
    for n, count in enumerate(bins):
        if count and below + count >= wanted:
            low, high = (0.0, FIRST_S) if n == 0 else (FIRST_S * 2 ** (n - 1), FIRST_S * 2**n)
            return low + (high - low) * max(0.0, wanted - below) / count
        below += count
    return None
