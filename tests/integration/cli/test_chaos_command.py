"""`pgsched chaos`: the list of faults and the check of saved histories. Real faults are in tests/e2e/chaos."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgsched.chaos import registry
from pgsched.chaos.history import History, Trouble
from tests.support.made_up import sound
from tests.support.paths import ROOT

pytestmark = pytest.mark.packages

Pgsched = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "saved.jsonl"


def broken() -> History:
    history = sound()
    history.troubles.append(Trouble("no leader\x1b[2J"))
    return history


def test_the_list_names_each_fault_with_its_tier_and_what_it_does(pgsched: Pgsched) -> None:
    listed = pgsched("chaos", "--list", "--json").json
    assert {"worker-killed", "leader-frozen-in-tick", "eight-leaders"} <= {one["fault"] for one in listed}
    assert {one["tier"] for one in listed} == {"quick", "full"}
    assert all(one["says"] for one in listed)
    assert "eight-leaders" in pgsched("chaos", "--list").out


def test_a_saved_history_that_kept_every_promise_exits_with_zero(file: Path, pgsched: Pgsched) -> None:
    sound().save(file)
    said = pgsched("chaos", "--check", str(file))
    assert (said.code, said.out) == (0, "made up: held (5 runs)\n")


def test_a_saved_history_that_broke_a_promise_exits_with_one(file: Path, pgsched: Pgsched) -> None:
    sound().save(file)
    broken().save(file, append=True)
    said = pgsched("chaos", "--check", str(file))
    assert said.code == 1
    assert said.out.splitlines() == [
        "made up: held (5 runs)",
        "made up: VIOLATED (5 runs)",
        r"    fault: no leader\x1b[2J",
    ]
    answers = pgsched("chaos", "--check", str(file), "--json").json
    assert [[one["check"] for one in answer["violations"]] for answer in answers] == [[], ["fault"]]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--faults", "nothing"], "there is no nothing"),
        (["--tier", "middle"], "'middle' is not quick or full"),
        (["--check", "/nowhere/saved.jsonl"], "No such file"),
        (["--check", __file__], "not a line of a saved history"),
        (["--bin", "/nowhere", "--faults", "worker-killed"], "there is no initdb in /nowhere"),
    ],
)
def test_bad_input_gives_one_line(args: list[str], why: str, pgsched: Pgsched) -> None:
    said = pgsched("chaos", *args)
    assert said.code == 2
    assert why in said.err
    assert len(said.err.splitlines()) == 1


def test_a_fault_that_cannot_run_here_is_skipped_with_the_reason(
    pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    said = pgsched("chaos", "--faults", "worker-clock")
    assert said.code == 0
    assert "SKIPPED: no C compiler is installed (apt install gcc libc6-dev)" in said.out
    assert "0 held, 0 violated, 1 skipped" in said.out


def test_chaos_md_has_one_row_for_each_fault_with_its_tier_and_needs() -> None:
    page = (ROOT / "docs" / "concepts" / "chaos.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in page.splitlines() if line.startswith("| `")]
    for name, fault in registry.load_faults().items():
        kinds = [kind for names, kind in rows if f"`{name}`" in names]
        assert kinds == [", ".join([fault.tier, *(["needs " + ", ".join(fault.needs)] if fault.needs else [])])], name
