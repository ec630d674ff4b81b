"""A failed start fails the run with a clear error, and leaves no open record and nothing on the guard's list."""

from __future__ import annotations

import sys

import pytest

from pgsched.core.model import Claim, Result
from pgsched.execute.output.record import Journal, Record
from pgsched.execute.subprocess import child
from pgsched.execute.subprocess.command import CommandExecutor
from pgsched.execute.subprocess.process_groups import Groups
from pgsched.execute.subprocess.program import Processes
from tests.support.executing import claim, execute


class Records(Journal):
    """A journal that remembers its records."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Record] = []

    def record(self, claim: Claim) -> Record:
        self.made.append(super().record(claim))
        return self.made[-1]


@pytest.fixture
def taken_back(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list with one entry for each message to the guard that the last child did not begin."""
    told: list[None] = []
    tell = Groups.not_begun
    monkeypatch.setattr(Groups, "not_begun", lambda groups: (told.append(None), tell(groups)))
    return told


def test_a_child_that_fails_before_its_program_begins_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, taken_back: list[None]
) -> None:
    def refuse(_: int) -> None:
        raise RuntimeError("no such call")

    monkeypatch.setattr(child, "DIE_WITH", refuse)
    records = Records()
    outcome = execute(CommandExecutor(Processes(records)), claim("command", sys.executable, ["-c", ""]))
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error == f"task: cannot start {sys.executable!r}: exception occurred in preexec_fn."
    assert [record.closed for record in records.made] == [True]
    assert len(taken_back) == 1


@pytest.mark.parametrize(("program", "retry"), [("/no/such/program", True), ("a\0b", False)])
def test_a_program_that_cannot_be_started_fails_the_run(program: str, retry: bool, taken_back: list[None]) -> None:
    records = Records()
    outcome = execute(CommandExecutor(Processes(records)), claim("command", program))
    assert (outcome.result, outcome.retry) == (Result.FAILED, retry)
    assert [record.closed for record in records.made] == [True]
    assert len(taken_back) == 1
