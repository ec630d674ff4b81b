"""docs/how-to/operations.md: the sizing table follows from the measured bytes."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text()
DAY_S, AT_ONCE, PEAK, CONNECTIONS = 86_400, 8, 5, 5


def rows(heading: str) -> list[list[str]]:
    table = PAGE[PAGE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def figure(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix(" GB"))


def near(told: str, counted: float) -> bool:
    """Check that a shown figure equals a computed one within the precision of its digits."""
    digits = len(re.sub(r"\D", "", told).lstrip("0"))
    return abs(figure(told) - counted) <= counted * {1: 0.5, 2: 0.05}.get(digits, 0.01)


def test_the_table_follows_from_the_measured_bytes() -> None:
    slot = next(row for row in rows("| bytes of each |") if row[0] == "slot of a job")
    size, wal = figure(slot[1]), figure(slot[4])
    table = rows("| runs a day |")
    assert len(table) == 4
    for a_day, a_second, week, day, wal_a_day, at_work, processes, connections in table:
        runs = figure(a_day)
        assert near(a_second, runs / DAY_S)
        assert near(week, 7 * runs * size / 1e9) and near(day, runs * size / 1e9) and near(wal_a_day, runs * wal / 1e9)
        busy = PEAK * runs / DAY_S
        assert abs(figure(at_work) - busy) < 1
        assert figure(processes) == max(2, -(-busy // AT_ONCE))
        assert figure(connections) == CONNECTIONS * figure(processes)
