"""Flags of `pgsched enqueue`: one for each option of an enqueue, with its type and its help."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer.main

from pgsched import bucket
from pgsched.app.options import Options
from pgsched.cli import make_app
from pgsched.cli.run_options import flag_of, read_options
from pgsched.errors import InputError

COMMAND: Any = typer.main.get_command(make_app("enqueue")).commands["enqueue"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Options)])
def test_every_option_of_an_enqueue_is_a_flag_with_a_help(name: str) -> None:
    found = [option for option in COMMAND.params if flag_of(name) in option.opts]
    assert len(found) == 1 and found[0].name == name and found[0].help


def test_values_are_read_as_their_types() -> None:
    given = {
        "queue": "mail", "priority": 3, "timeout": "90s", "delay": "1h 30m", "tags": ["a", "b"], "after": [4, 5],
        "unique_scope": "bucket(1h)", "on_conflict": None, "after_any": [], "wait_for_room": "2.5",
    }  # fmt: skip
    assert read_options(given) == Options(
        queue="mail", priority=3, timeout=timedelta(seconds=90), delay=timedelta(minutes=90), tags=["a", "b"],
        after=[4, 5], unique_scope=bucket(3600), wait_for_room=timedelta(seconds=2.5),
    )  # fmt: skip
    assert read_options({"unique_scope": "while_active"}) == Options(unique_scope="while_active")
    at = read_options({"at": "in 2 hours"}).at
    assert at is not None and timedelta(hours=1) < at - datetime.now(UTC) <= timedelta(hours=2)


@pytest.mark.parametrize(
    ("given", "field"), [({"timeout": "soon"}, "timeout"), ({"at": "soon"}, "at"), ({"delay": "9" * 12}, "delay")]
)
def test_a_wrong_value_names_its_flag(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        read_options(given)
    assert refused.value.field == field
