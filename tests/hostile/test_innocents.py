"""When workers are killed, runs that had not started are not charged, and a run that kills its worker is found."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.fleet import QUICK, Fleet, Member, fleet_on, one
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

DYING = "SELECT count(*) FROM pgsched.runs WHERE task = 'die' AND phase < 3"
OPEN = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
CRASHED = (
    "SELECT DISTINCT (r.args ->> 'n')::int, w.pid FROM pgsched.attempts a JOIN pgsched.runs r ON r.id = a.run_id"
    " JOIN pgsched.workers w ON w.id = a.worker_id WHERE a.outcome = 'crashed'"
)
MOST_MB = 200


class Scene:
    """Workers with the app of tests/support/apps/poison.py, and the file into which its handlers write."""

    def __init__(self, fleet: Fleet, db: psycopg.Connection, marks: Path) -> None:
        self.fleet = fleet
        self.db = db
        self.marks = marks
        marks.touch()

    def launch(self, *options: str) -> Member:
        """Start a worker without waiting for it, because it may be dead before it is seen at work."""
        return self.fleet.launch(*QUICK, *options, app="tests.support.apps.poison:app")

    def start(self, count: int, *options: str) -> list[Member]:
        started = [self.launch(*options) for _ in range(count)]
        self.fleet.await_start(*started)
        return started

    def add(self, task: str, first: int, last: int, **columns: object) -> None:
        names = "".join(f", {name}" for name in columns)
        self.db.execute(
            f"INSERT INTO pgsched.runs (task, args{names}) SELECT %s, %s || jsonb_build_object('n', n)"
            f"{', %s' * len(columns)} FROM generate_series(%s::int, %s::int) n",
            [task, Jsonb({"path": str(self.marks)}), *columns.values(), first, last],
        )

    def starts(self) -> list[tuple[int, int]]:
        """Return (number of the run, process id) for each start."""
        found = [line.split() for line in self.marks.read_text().splitlines()]
        return [(int(n), int(pid)) for n, pid in found]

    def charged_in_vain(self) -> set[tuple[int, int]]:
        """Return the crashes that were charged to runs which their worker had never started."""
        return set(self.db.execute(CRASHED).fetchall()) - set(self.starts())

    def all_ended(self, timeout: float = 60.0) -> None:
        wait_until(lambda: one(self.db, OPEN) == 0, timeout, "all runs to end")


@pytest.fixture
def scene(dsn: str, db: psycopg.Connection, tmp_path: Path) -> Iterator[Scene]:
    with fleet_on(dsn, tmp_path) as fleet:
        yield Scene(fleet, db, tmp_path / "marks")


def test_runs_that_a_killed_worker_had_not_started_are_not_charged(scene: Scene) -> None:
    scene.add("mark", 1, 5000)
    (victim,) = scene.start(1, "--no-leader")
    wait_until(lambda: len(scene.starts()) > 1500, what="the worker to be warm")
    claims = "SELECT count(*) FROM pgsched.runs WHERE state = 'running'"

    def stopped_with_claims() -> bool:
        """Stop the worker; let it go on where it has few claims, because it was about to ask for more."""
        victim.freeze()
        if one(scene.db, claims) > 50:
            return True
        victim.thaw()
        return False

    wait_until(stopped_with_claims, what="the worker to be stopped while it has many claims")
    victim.kill()
    scene.start(1)
    scene.all_ended()
    assert scene.charged_in_vain() == set()
    states = scene.db.execute("SELECT state, max(crashes), max(attempt) FROM pgsched.runs GROUP BY 1").fetchall()
    assert [state for state, _, _ in states] == ["succeeded"]


def test_a_run_that_kills_its_worker_is_found_and_no_other_run_is_charged(scene: Scene) -> None:
    scene.add("mark", 1, 500)
    scene.add("die", 0, 0)
    scene.add("mark", 501, 1500)
    outcomes = (
        "SELECT coalesce(array_agg(outcome ORDER BY a.finished_at), '{}') FROM pgsched.attempts a"
        " JOIN pgsched.runs r ON r.id = a.run_id WHERE r.task = 'die'"
    )

    def buried() -> bool:
        if sum(member.alive for member in scene.fleet.members) < 2 and one(scene.db, DYING):
            scene.launch()
        return bool(one(scene.db, OPEN) == 0)

    wait_until(buried, 90, "the end of all")
    assert {member.process.poll() for member in scene.fleet.members} <= {None, -signal.SIGKILL}
    assert scene.charged_in_vain() == set()
    others = scene.db.execute("SELECT DISTINCT state FROM pgsched.runs WHERE task = 'mark'").fetchall()
    assert others == [("succeeded",)]
    deaths = sum(not member.alive for member in scene.fleet.members)
    known_at_once, found = ["crashed"] * 3, one(scene.db, outcomes)
    assert found in (["interrupted", *known_at_once], known_at_once), "a heartbeat may have seen the first one"
    assert deaths == len(found)


def test_runs_with_one_attempt_that_never_began_go_back_and_run_once(scene: Scene) -> None:
    scene.add("wait", 1, 20, max_attempts=1)
    (victim,) = scene.start(1, "--no-leader", "--concurrency", "4")
    wait_until(lambda: len(scene.starts()) == 4, what="all places to be taken")
    assert one(scene.db, "SELECT count(*) FROM pgsched.runs WHERE state = 'running'") == 4
    victim.kill()
    Path(f"{scene.marks}.go").touch()
    scene.start(1)
    scene.all_ended()
    assert Counter(n for n, _ in scene.starts()).most_common(1)[0][1] == 1, "none runs twice"
    states = dict(scene.db.execute("SELECT state, count(*) FROM pgsched.runs GROUP BY 1").fetchall())
    assert states == {"dead": 4, "succeeded": 16}
    assert scene.charged_in_vain() == set()


def test_a_worker_holds_few_large_arguments_at_once(scene: Scene) -> None:
    scene.add("mark", 1, 2000)
    scene.db.execute(
        "INSERT INTO pgsched.runs (task, args) SELECT 'large', jsonb_build_object('data', repeat('0123456789', 100000))"
        " FROM generate_series(1, 300)"
    )
    (worker,) = scene.start(1)
    scene.all_ended()
    status = Path(f"/proc/{worker.pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"{int(peak) >> 10} MB at the peak")
    assert int(peak) >> 10 <= MOST_MB
