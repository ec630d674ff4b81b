"""bench/RESULTS.md is one page, and its table shows the medians of the raw data beside it."""

from __future__ import annotations

import csv
import re
from statistics import median

from tests.support.paths import ROOT

PAGE = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8")
COLUMNS = {
    "drain, 1 worker process": "drain, 1 worker process: runs/s",
    "drain, 2 worker processes": "drain, 2 worker processes: runs/s",
    "enqueue, one by one": "enqueue, one by one: /s",
    "enqueue, in bulk": "enqueue, in bulk: /s",
    "pick-up, p50": "pick-up, p50: ms",
    "pick-up, p99": "pick-up, p99: ms",
    "tasks of 50 ms, concurrency 100": "tasks of 50 ms: of the ideal",
    "open transaction, last 10 s of 60": "runs/s after 60 s of an open transaction",
}
IDEAL = 2000  # runs per second of tasks of 50 ms, with concurrency 100


def raw() -> dict[tuple[str, str], float]:
    """Return the median of the rounds, by measure and contestant."""
    (name,) = re.findall(r"\]\((results/[\w-]+\.csv)\)", PAGE)
    rounds: dict[tuple[str, str], list[float]] = {}
    with (ROOT / "bench" / name).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rounds.setdefault((row["measure"], row["contestant"]), []).append(float(row["value"]))
    return {key: median(values) for key, values in rounds.items()}


def table() -> list[dict[str, str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_table_shows_the_medians_of_the_raw_data() -> None:
    medians, seen = raw(), 0
    for row in table():
        for measure, column in COLUMNS.items():
            shown, found = row[column], medians.get((measure, row[""]))
            if not shown:
                continue
            assert found is not None, (row[""], column)
            figure = float(shown.removesuffix(" %").replace(",", ""))
            expected = found / IDEAL * 100 if shown.endswith("%") else found
            step = 10 ** -len(shown.removesuffix(" %").partition(".")[2])
            assert abs(figure - expected) <= step, (row[""], column)
            seen += 1
    assert seen > 55


def test_the_results_are_one_page_of_one_machine_and_one_commit() -> None:
    assert len(PAGE.splitlines()) <= 60
    assert len(re.findall(r"^\| ---|^\|---", PAGE, re.MULTILINE)) == 1
    assert len(set(re.findall(r"\bcommit ([0-9a-f]{7,})", PAGE))) == 1
    assert PAGE.count("**Machine:**") == 1
