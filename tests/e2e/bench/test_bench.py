"""The benchmark measures what it says: each run is made exactly once, a failed contestant is named, figures add up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.__main__ import main
from bench.adapter import Failed, Seen
from bench.contestants import ALL, PEERS, PGSCHED, RAW, STATEMENTS, Contestant
from bench.install import LOCKS, Unavailable, command
from bench.measures import commits as dating
from bench.measures.commits import EVERY_S, SLACK_NS, STEP_NS, Commits, ahead_ns, wall_ns
from bench.measures.drain import QUIET_NS, check_once, exactly_once, figures, jobs, started_by, stuck, when
from bench.measures.pinned import per_second
from bench.report import median
from bench.rounds import interleaved, ratios
from tests.support.paths import ROOT

SECOND = 1_000_000_000


@pytest.mark.long
def test_a_quick_drain_compares_pgsched_with_the_raw_ceiling(
    server_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drain", "--quick", "--workers", "1", "--n", "1500", "--dsn", server_dsn, "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "results.json").read_text())
    assert set(written["about"]) == {"run", "machine", "server"}
    drain = written["results"]["drain"]
    assert drain["absent"] == {}
    for name in (RAW.name, PGSCHED.name):
        [one] = drain["contestants"][name]["rounds"]
        assert one["finished"] == one["runs"] == 1500
        assert one["rate"] > 0 and one["steady"] > 0
    assert all((tmp_path / f"drain.{kind}").stat().st_size > 1000 for kind in ("png", "svg"))
    assert drain["contestants"][RAW.name]["ratio"] == 1
    assert drain["contestants"][PGSCHED.name]["ratio"] > 0
    printed = capsys.readouterr().out
    assert "| raw SQL ceiling |" in printed and "| pgsched |" in printed


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_cpu_cost_of_a_run_stays_within_its_bounds(tmp_path: Path) -> None:
    """A run costs at most 1.7 times the CPU time of its statements in a bare loop, and 2.8 times the raw loop's.

    Medians of five rounds are usually 1.0 to 1.15 times and 1.6 to 1.85 times. On a machine whose two processors slow
    each other down they are 1.33 to 1.55 times and 1.84 to 2.36 times. If the first five rounds exceed the bounds, five
    more are added. (tests/unit/worker/attempts/test_runner.py counts calls.)
    """
    command = [sys.executable, "-m", "bench", "costs", "--n", "20000", "--rounds", "5", "--out", str(tmp_path)]
    found: dict[str, list[dict[str, float]]] = {RAW.name: [], STATEMENTS.name: [], PGSCHED.name: []}
    times = (0.0, 0.0)
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=280)
        costs = json.loads((tmp_path / "results.json").read_text())["results"]["costs"]
        for name in found:
            found[name] += costs[name]
        times = tuple(median(ratios(found, PGSCHED.name, one.name, whole)) for one in (STATEMENTS, RAW))
        if times[0] <= 1.7 and times[1] <= 2.8:
            return
    pytest.fail(f"a run costs {times[0]:.2f} times what its statements do in a bare loop, {times[1]:.2f} times the raw")


def whole(costs: dict[str, float]) -> float:
    """Return the CPU time of the worker and of the server together."""
    return costs["worker process"] + costs["server"]


@pytest.mark.timeout(420)
@pytest.mark.long
def test_the_drain_rate_keeps_its_share_of_the_bare_statements(server_dsn: str, tmp_path: Path) -> None:
    """Claims and settlements that do not overlap cost waiting time and no CPU time: only the drain rate shows that.

    At this size a round reaches 0.62 to 0.89 of the rate of its own statements in a bare loop. Of the raw ceiling it
    reaches 0.41 to 0.57. The best of nine rounds is at least 0.73 and 0.53. With batches of 500 the best is 0.51 and
    0.38, with batches of 100 it is 0.15 and 0.11.
    """
    args = ["drain", "--workers", "1", "--n", "15000", "--rounds", "3", "--only", "raw,statements,pgsched"]
    best = (0.0, 0.0)
    for _ in range(3):
        assert main([*args, "--dsn", server_dsn, "--out", str(tmp_path)]) == 0
        contestants = json.loads((tmp_path / "results.json").read_text())["results"]["drain"]["contestants"]
        rounds = {name: found["rounds"] for name, found in contestants.items()}
        # the best ratio is that of the round which other work on the machine disturbed least
        shares = (max(ratios(rounds, PGSCHED.name, one.name, itemgetter("rate"))) for one in (STATEMENTS, RAW))
        best = tuple(map(max, best, shares))
        if best[0] >= 0.62 and best[1] >= 0.43:
            return
    pytest.fail(f"pgsched drained {best[0]:.2f} of what its statements do in a bare loop, {best[1]:.2f} of the ceiling")


@pytest.mark.long
def test_bulk_enqueue_keeps_its_share_of_a_bare_copy(server_dsn: str, tmp_path: Path) -> None:
    """The usual share is 0.3 to 0.5. A trigger for each row, or rows sent one by one, cost more than half of it."""
    args = ["enqueue", "--n", "100000", "--rounds", "3", "--only", "raw,pgsched"]
    shares: list[float] = []
    for _ in range(2):
        assert main([*args, "--dsn", server_dsn, "--out", str(tmp_path)]) == 0
        rounds = json.loads((tmp_path / "results.json").read_text())["results"]["enqueue"]["contestants"]
        shares += ratios(rounds, PGSCHED.name, RAW.name, itemgetter("bulk"))
        if median(shares) >= 0.22:
            return
    pytest.fail(f"100,000 runs are enqueued at {median(shares):.2f} of the rate of a bare COPY")


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drian"]) == 2
    assert "drian" in capsys.readouterr().err


def test_a_job_run_twice_or_never_fails_the_round() -> None:
    check_once(PGSCHED, [Seen(seen=bytes([1, 0, 1])), Seen(seen=bytes([0, 1, 0]))], 3)
    with pytest.raises(Failed, match="number 1: 2 times"):
        check_once(PGSCHED, [Seen(seen=bytes([1, 1, 1])), Seen(seen=bytes([0, 1, 0]))], 3)
    with pytest.raises(Failed, match="number 2: 0 times"):
        check_once(PGSCHED, [Seen(seen=bytes([1, 1, 0]))], 3)


def test_a_run_that_is_not_finished_in_the_database_fails_the_round(db: psycopg.Connection) -> None:
    with pytest.raises(Failed, match="the database has 0"):
        exactly_once(db, PGSCHED, [Seen(seen=bytes([1]))], 1)


def test_work_that_ends_without_being_run_fails_the_round_at_once(db: psycopg.Connection) -> None:
    class Worker:
        contestant = PGSCHED
        points: ClassVar[list[tuple[int, int]]] = []
        dump = staticmethod(Seen)
        last_words = staticmethod(lambda: "no such task")

    long_ago = time.monotonic_ns() - 2 * QUIET_NS
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('noop')")
    assert not stuck(db, [Worker()], long_ago)  # type: ignore[list-item]
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now()")
    assert not stuck(db, [Worker()], time.monotonic_ns())  # type: ignore[list-item]
    with pytest.raises(Failed, match="after only 0 runs; no such task"):
        stuck(db, [Worker()], long_ago)  # type: ignore[list-item]


def test_a_contestant_that_cannot_be_installed_is_named_with_the_reason() -> None:
    missing = replace(ALL[-1], least_python=(9, 0))
    with pytest.raises(Unavailable, match=r"needs Python 9\.0"):
        command(missing)
    found, absent = interleaved("test", [missing], 2, command, str)
    assert found == {} and "needs Python 9.0" in absent[missing.name]


def test_rates_start_when_the_last_worker_is_at_work() -> None:
    # two processes, 100 runs a second each; the second begins one second later
    first = [(0, 0), (100, SECOND), (200, 2 * SECOND), (300, 3 * SECOND)]
    second = [(0, SECOND), (100, 2 * SECOND), (200, 3 * SECOND)]
    seen = [Seen(count=300, first_ns=0), Seen(count=200, first_ns=SECOND)]
    got = figures([first, second], seen, 3 * SECOND, 500, None)
    assert got.seconds == pytest.approx(2)
    assert got.rate == pytest.approx(200)
    assert when([first, second], 200) == pytest.approx(1.5 * SECOND, rel=1e-3)


def test_starts_between_two_points_are_interpolated() -> None:
    points = [(0, 0), (100, SECOND), (300, 2 * SECOND)]
    assert [started_by(points, at * SECOND) for at in (-1, 0, 0.5, 1.5, 9)] == [0, 0, 50, 200, 300]
    assert per_second(points, 0, 2) == [100, 200]


def test_a_slow_contestant_gets_its_share_of_the_jobs_but_not_too_few() -> None:
    slow = replace(PGSCHED, share=0.1)
    assert [jobs(slow, n) for n in (100_000, 5000, 500)] == [10_000, 1000, 500]


def test_a_contestant_that_fails_does_not_end_the_others() -> None:
    def measure(one: Contestant) -> int:
        if one is RAW:
            raise BrokenPipeError("gone")
        return 1

    found, absent = interleaved("test", [RAW, PGSCHED], 2, measure, str)
    assert found == {PGSCHED.name: [1, 1]} and absent == {RAW.name: "gone"}


def test_each_round_begins_with_another_contestant() -> None:
    asked: list[str] = []
    interleaved("test", [RAW, STATEMENTS, PGSCHED], 3, lambda one: asked.append(one.name), str)
    assert [asked[first : first + 3] for first in (0, 3, 6)] == [
        ["raw", "statements", "pgsched"],
        ["statements", "pgsched", "raw"],
        ["pgsched", "raw", "statements"],
    ]


def test_each_contestant_has_its_own_name() -> None:
    assert len({one.name for one in ALL}) == len(ALL)


@pytest.mark.parametrize("one", PEERS, ids=attrgetter("name"))
def test_every_package_of_a_peer_is_pinned(one: Contestant) -> None:
    assert one.lock is not None
    lock = LOCKS / one.lock
    if lock.is_dir():
        packages = json.loads((lock / "package-lock.json").read_text())["packages"]
        [(name, version)] = packages.pop("")["dependencies"].items()
        assert packages[f"node_modules/{name}"]["version"] == version
        assert all("integrity" in package for package in packages.values())
        return
    lines = lock.read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), lines
    assert any(line.startswith(f"{one.name}==") for line in lines)
    # psycopg's documentation recommends psycopg-binary, and pgsched uses it as well
    names = {line.partition("==")[0] for line in lines}
    assert "psycopg" not in names or "psycopg-binary" in names


def test_runs_are_counted_for_each_process() -> None:
    seen = [Seen(count=3), Seen(count=1)]
    assert figures([[(0, 0), (3, SECOND)], [(0, 0), (1, SECOND)]], seen, SECOND, 4, None).by_process == [3, 1]


def test_commit_times_come_from_the_server_and_not_from_the_client(dsn: str, db: psycopg.Connection) -> None:
    if db.info.server_version < 150000:
        pytest.skip("pg_walinspect came with PostgreSQL 15")
    db.execute("CREATE TABLE one (i int) PARTITION BY RANGE (i); CREATE TABLE other (i int)")
    db.execute("CREATE TABLE part PARTITION OF one FOR VALUES FROM (0) TO (100)")
    sent: list[int] = []
    early: list[int] = []
    late: list[int] = []
    heard: list[int] = []
    with Commits(dsn, replace(RAW, table="one")) as commits:
        db.execute("INSERT INTO one VALUES (1)")  # the commit of the warm-up
        for i in range(5):
            sent.append(time.monotonic_ns())
            db.execute("INSERT INTO other VALUES (%s)", [i])
            with db.transaction(force_rollback=True):
                db.execute("INSERT INTO one VALUES (%s)", [i])
            with db.transaction():
                db.execute("INSERT INTO one VALUES (%s)", [i])
                time.sleep(0.02)
                early.append(time.monotonic_ns())
            late.append(time.monotonic_ns())
            time.sleep(4 * EVERY_S if i == 2 else 0.02)
            heard.append(time.monotonic_ns())
            if i == 2:
                db.execute("TRUNCATE part")
                time.sleep(4 * EVERY_S)
        for began, at, ended in zip(early, commits.instants(sent, heard), late, strict=True):
            assert began - SLACK_NS <= at <= ended + SLACK_NS
        with pytest.raises(Failed, match="the commit of job 0 is"):
            commits.instants(heard, heard)
        with pytest.raises(Failed, match="7 jobs, 6 commits"):
            commits.instants([0] * 7, heard)


def test_commit_times_are_refused_when_the_clock_was_set(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if db.info.server_version < 150000:
        pytest.skip("pg_walinspect came with PostgreSQL 15")
    db.execute("CREATE TABLE one (i int)")
    with Commits(dsn, replace(RAW, table="one")) as commits:
        monkeypatch.setattr(dating, "ahead_ns", lambda: ahead_ns() + 2 * STEP_NS)
        with pytest.raises(Failed, match=r"set by 0\.1\d\d ms"):
            commits.instants([], [])


def test_a_role_that_cannot_read_commits_gets_the_reason(dsn: str, db: psycopg.Connection) -> None:
    role = f"plain_{uuid.uuid4().hex[:8]}"
    db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    try:
        with pytest.raises(Failed, match="by a superuser and PostgreSQL 15"), Commits(plain(dsn, role), RAW):
            pass
    finally:
        db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def plain(dsn: str, role: str) -> str:
    """Return the DSN with a role that has no rights."""
    return make_conninfo(dsn, options=f"-c role={role}")


def test_commit_times_are_read_to_the_microsecond() -> None:
    assert wall_ns("1970-01-01 00:17:30.001002") == 1_050 * SECOND + 1_002_000
    assert wall_ns("1970-01-01 00:16:40") == 1_000 * SECOND
