"""The page draws and explains the states that there are, and the changes that `core.lifecycle` allows."""

from __future__ import annotations

import re

from pgsched.core.lifecycle import CHANGES, ENDED_STATES, FIRST_STATES, OPEN_STATES
from pgsched.core.model import State
from tests.support.docs.reading import read
from tests.support.paths import ROOT

PAGE = "docs/concepts/overview.md"


def drawn() -> list[tuple[str, str]]:
    """The arrows of the diagram. One that begins at a group begins at each of its states."""
    (text,) = (block.text for block in read(PAGE).blocks if block.language == "mermaid")
    groups = {name: inside.split() for name, inside in re.findall(r"state (\w+) \{([^}]*)\}", text)}
    return [
        (begin, end)
        for named, end in re.findall(r"^ *(\S+) --> (\w+)(?::.*)?$", text, re.MULTILINE)
        for begin in groups.get(named, [named])
    ]


def test_the_diagram_draws_the_changes_that_there_are() -> None:
    changes = {(begin, end) for begin, ends in CHANGES.items() for end in ends}
    assert {*drawn()} == changes | {("[*]", state) for state in FIRST_STATES}
    assert len(drawn()) == len({*drawn()})


def test_the_table_explains_each_state() -> None:
    named = re.findall(r"^\| `(\w+)` \| ", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert sorted(named) == sorted(State)


def test_every_state_is_open_or_ended() -> None:
    assert sorted((*OPEN_STATES, *ENDED_STATES)) == sorted(State)
    assert {*CHANGES} == {*State}
