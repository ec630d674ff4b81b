"""`--json` for programs: every list is an array, and a setting is printed as it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LISTS = ("job list", "run list", "queue list", "limit list", "backfill list", "alerts", "audit", "run logs 1",
         "job calendar nightly", "lock list", "election list", "kv list", "kv list --keys")  # fmt: skip


@pytest.fixture
def filled(pgsched: Callable[..., Any]) -> Callable[..., Any]:
    """Add a job, a run, a queue and a limit."""
    for line in ("job add nightly --task t --schedule @daily", "job run nightly",
                 "queue set q --concurrency 1", "limit set k --concurrency 1"):  # fmt: skip
        assert pgsched(*line.split()).code == 0, line
    return pgsched


@pytest.mark.few(4)
@pytest.mark.parametrize("command", LISTS)
def test_a_list_is_an_array(filled: Callable[..., Any], command: str) -> None:
    assert isinstance(filled(*command.split(), "--json").json, list)


def test_retention_is_printed_as_it_was_set(pgsched: Callable[..., Any]) -> None:
    asked = {"keep_minutes": "36h", "keep_hours": "800d", "keep_audit": "2000d"}
    options = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", value)]
    for said in (pgsched("retention", "set", *options, "--json").json, pgsched("retention", "show", "--json").json):
        assert {name: said[name] for name in asked} == asked
