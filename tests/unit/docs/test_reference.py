"""The generated pages of docs/reference are up to date, and help texts show only commands that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pgsched import errors
from pgsched.config import ENVIRONMENT
from tests.support.docs.grammar import faults, tree
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_equals_what_the_code_generates(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `python -m tools.reference`"


def test_every_variable_and_exception_is_on_its_page() -> None:
    configuration, exceptions = PAGES["configuration.md"](), PAGES["exceptions.md"]()
    assert {name for name in ENVIRONMENT if f"| `{name}` |" not in configuration} == set()
    raised = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)}
    assert len(raised) > 15
    assert {name for name in raised if f"| `{name}` |" not in exceptions} == set()


def test_only_bodies_with_the_columns_of_a_job_are_shortened() -> None:
    lines = PAGES["http-api.md"]().splitlines()
    short = {line.split("`")[1] for line in lines if "[column of a job]" in line}
    assert short == {"POST /jobs", "PATCH /jobs/{job}"}


def helps(command: Any) -> list[str]:
    """Return the help texts of a command and of its subcommands."""
    return [command.help or "", *(text for child in getattr(command, "commands", {}).values() for text in helps(child))]


def test_examples_in_help_texts_are_commands_that_exist() -> None:
    lines = [
        line
        for text in helps(tree())
        for line in re.findall(r"^(?: *|Example: )(pgsched .*)$", text.replace("\\\n", ""), re.MULTILINE)
    ]
    assert len(lines) > 40
    assert [fault for line in lines for fault in faults(line.partition(" | ")[0].partition(" -- ")[0])] == []
