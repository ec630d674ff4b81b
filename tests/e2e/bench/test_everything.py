"""Every measurement of `python -m bench` works: a small run ends well and prints only tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import MEASUREMENTS, main
from bench.plots import PLOTS
from bench.report import Result
from tests.support.paths import ROOT

ELSEWHERE = {"drain", "console", "recipes"}  # tested by test_bench.py, test_console.py and test_recipes.py beside this
TOO_LONG = {"crowd", "limits", "prune", "jobs-file"}  # or they need a machine of their own
QUICK = [
    "tick", "history", "schedules", "size", "piled-up", "many-queues", "costs", "enqueue", "latency", "pinned",
    "ten-minutes", "slow", "every-second", "roles", "idle", "awaited",
]  # fmt: skip
LINES = ("#", "|", "- ")


@pytest.mark.long
def test_a_small_run_prints_whole_tables_and_nothing_else(tmp_path: Path) -> None:
    check_tables(("enqueue", "schedules"), tmp_path, "--seconds", "1", "--n", "200")


@pytest.mark.long
@pytest.mark.timeout(420)
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_run_prints_whole_tables_and_nothing_else(name: str, tmp_path: Path) -> None:
    check_tables((name,), tmp_path, "--seconds", "2")


def check_tables(names: tuple[str, ...], tmp_path: Path, *size: str) -> None:
    """Make the measurements, and check that all end well and print only tables."""
    # without --dsn the benchmark starts its own server, with pg_stat_statements and room for many connections
    command = [sys.executable, "-m", "bench", *names, "--quick", *size, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert set(names) <= set(results)
    for name, one in results.items():
        assert one["rows"], name
        assert {len(row) for row in one["rows"]} == {len(one["columns"])}, name
    for name in results.keys() & PLOTS:
        assert all((tmp_path / f"{name}.{kind}").stat().st_size > 1000 for kind in ("png", "svg")), name
    other = [line for line in done.stdout.splitlines() if line and not line.startswith(LINES)]
    assert other == []
    assert done.stdout.count("\n## ") == len(results)


@pytest.mark.long
def test_every_measurement_is_run_by_a_test_or_too_long() -> None:
    assert sorted([*ELSEWHERE, *TOO_LONG, *QUICK]) == sorted(MEASUREMENTS)


@pytest.mark.long
def test_a_row_with_too_few_cells_is_not_printed() -> None:
    with pytest.raises(AssertionError, match="2 cells for 3 columns"):
        Result("some", "Some", ["", "a", "b"], [["x", "1"]]).markdown()


@pytest.mark.long
def test_an_unknown_contestant_is_refused_before_a_server_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--only", "nonsense", "--dsn", "host=/nowhere"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "nonsense: no such contestant" in line


@pytest.mark.long
def test_a_failed_measurement_is_named_and_does_not_end_the_run(
    server_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[Result]:
        raise OSError("no room")

    def absent(*_: object) -> list[Result]:
        return [
            Result(
                "idle", "Idle", ["", "a"], [["x", "1"]], data={"absent": {"pgsched": "it ended", "oban": "none here"}}
            )
        ]

    monkeypatch.setitem(MEASUREMENTS, "tick", broken)
    monkeypatch.setitem(MEASUREMENTS, "idle", absent)
    assert main(["tick", "idle", "--dsn", server_dsn, "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "| x | 1 |" in said.out
    last = said.err.splitlines()[-1]
    assert last == "bench: not measured: tick: OSError: no room; idle: pgsched: it ended; idle: oban: none here"
