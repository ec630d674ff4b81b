"""The overview page shows all states, and exactly the changes of state that `core.lifecycle` allows."""

from __future__ import annotations

import re
from itertools import product

from pgsched.core.lifecycle import CHANGES, ENDED_STATES, FIRST_STATES, OPEN_STATES
from pgsched.core.model import State
from tests.support.docs.reading import read
from tests.support.paths import ROOT

PAGE = "docs/concepts/overview.md"


def drawn() -> list[tuple[str, str]]:
    """Return the changes of state that the diagram draws as arrows."""
    (text,) = (block.text for block in read(PAGE).blocks if block.language == "mermaid")
    assert ";" not in text, "it ends a line of Mermaid"
    return re.findall(r"^ *(\S+) --> (\w+)(?::.*)?$", text, re.MULTILINE)


def told() -> list[tuple[str, str]]:
    """Return the changes of state that the table below the diagram names."""
    table = (ROOT / PAGE).read_text().partition("| from | to | when |\n")[2].partition("\n\n")[0]
    rows = ([re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:3]] for row in table.splitlines()[1:])
    return [change for begins, ends in rows for change in product(begins, ends)]


def test_diagram_and_table_together_show_every_change_once() -> None:
    changes = {(begin, end) for begin, ends in CHANGES.items() for end in ends}
    assert {*drawn(), *told()} == changes | {("[*]", state) for state in FIRST_STATES}
    assert {*drawn()} & {*told()} == set()
    assert len(drawn()) == len({*drawn()})


def test_the_table_explains_each_state() -> None:
    table = (ROOT / PAGE).read_text().partition("| state | means |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)` \| ", table, re.MULTILINE)
    assert sorted(named) == sorted(State)


def test_every_state_is_open_or_ended() -> None:
    assert sorted((*OPEN_STATES, *ENDED_STATES)) == sorted(State)
    assert {*CHANGES} == {*State}
