"""`pgsched lock list`, `show` and `break`, and `election list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.cli.commands.coordination import locks as commands
from pgsched.db.queries.recipes import lock_lists
from tests.support.cli.said import Said
from tests.support.recipes.holding import asked, back, opened

Pgsched = Callable[..., Said]


@pytest.fixture(autouse=True)
def line(db: psycopg.Connection[Any]) -> None:
    """Let one session hold `payroll`, two hold places of `gpu`, one lead; and others wait."""
    sessions = [opened(db, name=name) for name in ("web-1", "web-2", "web-3")]
    asked(db, "payroll", sessions[0], note="November")
    asked(db, "payroll", sessions[1])
    asked(db, "payroll", sessions[2], note="on \x1b[2J hold")
    for session in sessions:
        asked(db, "gpu", session, capacity=2)
    asked(db, "leader", sessions[1], kind="election")
    asked(db, "leader", sessions[0], kind="election")
    asked(db, "old", sessions[0])
    db.execute("DELETE FROM pgsched.lock_places WHERE lock = 'old'")
    back(db, "1 day", "payroll")


def test_locks_are_listed_with_their_holders(pgsched: Pgsched) -> None:
    lines = [text.split("  ") for text in pgsched("lock", "list").out.splitlines()]
    assert [[cell.strip() for cell in line if cell][:3] for line in lines] == [
        ["LOCK", "KIND", "HELD BY"],
        ["gpu", "semaphore of 2", "web-1 +1"],
        ["leader", "election", "web-2"],
        ["payroll", "lock", "web-1"],
    ]
    assert lines[3][-1].strip() == "2, for 1d"


def test_names_that_nobody_uses_now_are_listed_when_asked_for(pgsched: Pgsched) -> None:
    found = pgsched("lock", "list", "--all", "--json").json
    assert [row["name"] for row in found] == ["gpu", "leader", "old", "payroll"]
    assert found[2] | {"owner": "", "used_at": ""} == {
        "name": "old", "owner": "", "kind": "lock", "capacity": None, "holders": 0, "waiting": 0, "holder": None,
        "fence": None, "held_since": None, "lease_until": None, "waiting_since": None, "used_at": "",
    }  # fmt: skip


def test_of_a_long_note_the_beginning_is_read(pgsched: Pgsched, db: psycopg.Connection[Any]) -> None:
    asked(db, "long", opened(db), note="x" * 60_000)
    (holder,) = pgsched("lock", "show", "long", "--json").json["holders"]
    assert holder["note"] == "x" * 300


def test_a_list_may_be_of_one_prefix_and_says_that_there_is_more(
    pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [row["name"] for row in pgsched("lock", "list", "--prefix", "pay", "--json").json] == ["payroll"]
    assert pgsched("lock", "list", "--prefix", "PAY").out == "no session holds a lock or waits for one\n"
    said = pgsched("lock", "list", "--limit", "2")
    assert said.err == "note: there are more than 2: see --prefix and --limit\n"
    monkeypatch.setattr(lock_lists, "PAGE", 1)
    assert len(pgsched("lock", "list", "--json").json) == 3


def test_elections_are_listed_with_their_leaders(pgsched: Pgsched, db: psycopg.Connection[Any]) -> None:
    (row,) = pgsched("election", "list", "--json").json
    assert (row["name"], row["holder"], row["waiting"]) == ("leader", "web-2", 1)
    said = pgsched("election", "list")
    assert said.out.splitlines()[0].split() == ["ELECTION", "LEADER", "TERM", "SINCE", "WAITING"]
    assert said.out.splitlines()[1].split()[:3] == ["leader", "web-2", str(row["fence"])]
    # a name that is asked for as a lock from then on
    asked(db, "leader", opened(db), kind="lock")
    assert pgsched("election", "list").out == "no election has a leader or candidates\n"


def test_one_lock_is_shown_with_its_line_in_order(pgsched: Pgsched) -> None:
    found = pgsched("lock", "show", "payroll", "--json").json
    assert [one["session"] for one in found["holders"]] == ["web-1"]
    assert [one["session"] for one in found["waiting"]] == ["web-2", "web-3"]
    assert found["holders"][0]["note"] == "November"
    lines = pgsched("lock", "show", "payroll").out.splitlines()
    assert lines[:5] == [f"lock       {found['name']}", "kind       lock", f"owner      {found['owner']}",
                         "holders    1", "waiting    2"]  # fmt: skip
    assert lines[7].split() == ["STATE", "SESSION", "SINCE", "LEASE", "FENCE", "MODE", "NOTE"]
    assert [text.split()[:4] for text in lines[8:]] == [
        ["holds", "web-1", "1d", "ago"], ["waits", "web-2", "1d", "ago"], ["waits", "web-3", "1d", "ago"],
    ]  # fmt: skip
    assert lines[8].endswith(f"{found['holders'][0]['fence']}      exclusive  November")
    assert lines[10].endswith("on \\x1b[2J hold"), "no text moves the cursor"


def test_a_lock_that_nobody_holds_has_no_line(pgsched: Pgsched) -> None:
    assert "STATE" not in pgsched("lock", "show", "old").out


@pytest.mark.parametrize("command", ["show", "break"])
def test_a_misspelled_name_is_not_found(command: str, pgsched: Pgsched) -> None:
    said = pgsched("lock", command, "payrol", *(["--yes"] if command == "break" else []))
    assert (said.code, said.err) == (8, 'error: there is no lock "payrol"; did you mean payroll?\n')
    said = pgsched("lock", "show", "quite another")
    assert said.err == 'error: there is no lock "quite another"; `pgsched lock list --all` shows those that there are\n'


def test_a_broken_lock_goes_to_the_next_in_line_and_into_the_audit(pgsched: Pgsched) -> None:
    before = pgsched("lock", "show", "payroll", "--json").json["fence"]
    assert pgsched("lock", "break", "payroll", "--yes").out == "payroll was taken from 1 holder\n"
    found = pgsched("lock", "show", "payroll", "--json").json
    assert [one["session"] for one in found["holders"]] == ["web-2"]
    assert pgsched("audit", "lock", "payroll").out.splitlines()[1].endswith(f"fence: {before}; session: web-1")


def test_one_of_several_holders_loses_its_place(pgsched: Pgsched) -> None:
    fences = [one["fence"] for one in pgsched("lock", "show", "gpu", "--json").json["holders"]]
    said = pgsched("lock", "break", "gpu", "--fence", str(fences[1]), "--yes", "--json")
    assert said.json == {"name": "gpu", "broken": 1}
    left = [one["fence"] for one in pgsched("lock", "show", "gpu", "--json").json["holders"]]
    assert (left[0], len(left)) == (fences[0], 2), "the third one has the free place"
    assert (
        pgsched("lock", "break", "gpu", "--fence", str(fences[1])).out
        == "no session holds gpu with fence " + str(fences[1]) + "\n"
    )


def test_breaking_is_asked_for_first(pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch) -> None:
    said = pgsched("lock", "break", "gpu")
    assert said.code == 2
    assert said.err == 'error: take "gpu" from 2 holders? Add --yes; `pgsched lock show` shows who holds it\n'
    monkeypatch.setattr(commands.sys.stdin, "isatty", lambda: True)
    answers = iter([False, True])
    monkeypatch.setattr(commands.typer, "confirm", lambda *_, **__: next(answers))
    said = pgsched("lock", "break", "gpu")
    assert (said.code, "web-1" in said.out) == (1, True)
    assert len(pgsched("lock", "show", "gpu", "--json").json["waiting"]) == 1, "nothing was done"
    assert pgsched("lock", "break", "gpu").code == 0
    assert len(pgsched("lock", "show", "gpu", "--json").json["waiting"]) == 0


def test_a_lock_that_nobody_holds_is_broken_without_a_question(pgsched: Pgsched) -> None:
    assert pgsched("lock", "break", "old").out == "no session holds old\n"
