"""`python -m bench recipes` checks the work that it measures, and names what is missing in one line."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.adapter import Failed
from bench.install import Unavailable
from bench.measures.recipes import zookeeper as server
from bench.measures.recipes.field import COORDINATORS
from bench.measures.recipes.hand_over import HandOver, Turn, times
from bench.measures.recipes.queues import check_once

MS = 1_000_000
TABLES = ("recipes", "recipes-hand-over", "recipes-idle", "recipes-queue")


def turn(asked_ms: int, granted_ms: int, given_back_ms: int, grant: int) -> Turn:
    return asked_ms * MS, granted_ms * MS, given_back_ms * MS, grant


def test_a_hand_over_lasts_from_the_release_to_the_next_grant() -> None:
    turns = [turn(0, 1, 400, 1), turn(1, 403, 500, 2), turn(2, 505, 600, 3), turn(610, 611, 620, 4)]
    # nobody waited for the fourth, and the last ones come when nobody gets in line any more
    assert times("x", turns, 1, 1000 * MS) == HandOver(4.0, 5.0, 2)
    assert times("x", turns, 1, 504 * MS) == HandOver(3.0, 3.0, 1)
    assert times("x", turns, 2, 1000 * MS) == HandOver(5.0, 5.0, 1)


def test_two_holders_at_one_time_fail_the_round() -> None:
    with pytest.raises(Failed, match=r"grant 2 began 1\.000 ms before the end of 1"):
        times("x", [turn(0, 1, 400, 1), turn(1, 399, 500, 2)], 1, 1000 * MS)


@pytest.mark.parametrize("grant", [1, 2])
def test_a_grant_without_a_higher_number_fails_the_round(grant: int) -> None:
    with pytest.raises(Failed, match=f"grant {grant} came after grant 2"):
        times("x", [turn(0, 1, 400, 2), turn(1, 403, 500, grant)], 1, 1000 * MS)


def test_an_item_that_is_lost_or_taken_twice_fails_the_round() -> None:
    check_once("x", [2, 0, 1], 3)
    for taken in ([0, 1], [0, 1, 1, 2], [0, 1, 2, 3]):
        with pytest.raises(Failed, match=f"of 3 items, {len(taken)} were taken"):
            check_once("x", taken, 3)


def test_a_missing_server_is_named_once_and_its_contestants_have_rows(
    server_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "JAR", tmp_path / "zookeeper.jar")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    args = ["recipes", "--quick", "--only", "kazoo,kazoo-locking", "--dsn", server_dsn, "--out", str(tmp_path)]
    assert main(args) == 1
    printed = capsys.readouterr()
    assert printed.out.count("| not measured: ZooKeeper is not installed") == 5
    [line] = [line for line in printed.err.splitlines() if "not measured: recipes" in line]
    assert line.count("apt install zookeeper") == 1


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=r"pip install 'pgsched\[bench\]'"), server.zookeeper():
        pass


def test_other_measurements_do_not_take_the_contestants_of_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--only", "kazoo"]) == 2
    assert main(["recipes", "--only", "raw"]) == 2
    assert capsys.readouterr().err.count("no such contestant") == 2


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_quick_run_measures_everybody_who_is_there(tmp_path: Path) -> None:
    there = server.JAR.exists() and shutil.which("java") and importlib.util.find_spec("kazoo")
    chosen = [one for one in COORDINATORS if there or not one.needs_zookeeper]
    names = ",".join(one.name for one in chosen)
    # without --dsn: a server whose processor time the benchmark can read, with room for all connections
    assert main(["recipes", "--quick", "--only", names, "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [name for name in results if name in TABLES] == [name for name in TABLES if name in results]
    assert set(results) >= set(TABLES[:3])
    for one in chosen:
        assert any(one.name in results[name]["contestants"] for name in results), one.name
