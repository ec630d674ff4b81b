"""The benchmark measures what it says: everything is run exactly once, a broken contestant is named, figures add up."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest

from bench.__main__ import main
from bench.adapter import Failed, Seen
from bench.contestants import ALL, PGSCHED, RAW, STATEMENTS
from bench.drain import QUIET_NS, check_once, exactly_once, figures, jobs, started_by, stuck, when
from bench.install import Unavailable, command
from bench.pinned import per_second
from bench.rounds import interleaved, ratios

SECOND = 1_000_000_000


def test_a_quick_drain_compares_pgsched_with_the_raw_ceiling(
    server_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drain", "--quick", "--workers", "1", "--n", "1500", "--dsn", server_dsn, "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "results.json").read_text())
    assert set(written["about"]) == {"pgsched", "machine", "server"}
    drain = written["results"]["drain"]
    assert drain["absent"] == {}
    for name in (RAW.name, PGSCHED.name):
        [one] = drain["contestants"][name]["rounds"]
        assert one["finished"] == one["runs"] == 1500
        assert one["rate"] > 0 and one["steady"] > 0
    assert drain["contestants"][RAW.name]["ratio"] == 1
    assert drain["contestants"][PGSCHED.name]["ratio"] > 0
    printed = capsys.readouterr().out
    assert "| raw SQL ceiling |" in printed and "| pgsched |" in printed


@pytest.mark.slow
def test_pgsched_keeps_its_share_of_what_its_statements_allow(server_dsn: str, tmp_path: Path) -> None:
    """0.78 to 0.9 of its own statements in a bare loop, and 0.4 to 0.55 of the raw ceiling, at this size. A task for
    each run makes 0.63 and 0.32 of it, batches of 100 0.48 and 0.27. Nine rounds at most: a machine may have bad ones.
    """
    args = ["drain", "--workers", "1", "--n", "15000", "--rounds", "3", "--only", "raw,statements,pgsched"]
    best = (0.0, 0.0)
    for _ in range(3):
        assert main([*args, "--dsn", server_dsn, "--out", str(tmp_path)]) == 0
        contestants = json.loads((tmp_path / "results.json").read_text())["results"]["drain"]["contestants"]
        rounds = {name: found["rounds"] for name, found in contestants.items()}
        # the round that other work on the machine disturbed least
        shares = (max(ratios(rounds, PGSCHED.name, one.name, itemgetter("rate"))) for one in (STATEMENTS, RAW))
        best = tuple(map(max, best, shares))
        if best[0] >= 0.68 and best[1] >= 0.34:
            return
    pytest.fail(f"pgsched drained {best[0]:.2f} of what its statements do in a bare loop, {best[1]:.2f} of the ceiling")


@pytest.mark.slow
def test_bulk_enqueue_keeps_its_share_of_a_bare_copy(server_dsn: str, tmp_path: Path) -> None:
    """About 0.3: a trigger that is called for each row, or rows that go one by one, cost more than half of it."""
    args = ["enqueue", "--n", "20000", "--rounds", "3", "--only", "raw,pgsched"]
    assert main([*args, "--dsn", server_dsn, "--out", str(tmp_path)]) == 0
    rounds = json.loads((tmp_path / "results.json").read_text())["results"]["enqueue"]["contestants"]
    assert max(ratios(rounds, PGSCHED.name, RAW.name, itemgetter("bulk"))) >= 0.15


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drian"]) == 2
    assert "drian" in capsys.readouterr().err


def test_a_job_run_twice_or_never_fails_the_round() -> None:
    check_once(PGSCHED, [Seen(seen=bytes([1, 0, 1])), Seen(seen=bytes([0, 1, 0]))], 3)
    with pytest.raises(Failed, match="number 1: 2 times"):
        check_once(PGSCHED, [Seen(seen=bytes([1, 1, 1])), Seen(seen=bytes([0, 1, 0]))], 3)
    with pytest.raises(Failed, match="number 2: 0 times"):
        check_once(PGSCHED, [Seen(seen=bytes([1, 1, 0]))], 3)


def test_a_run_that_the_database_does_not_have_as_finished_fails_the_round(db: psycopg.Connection) -> None:
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


def test_a_contestant_that_cannot_be_had_is_named_with_the_reason() -> None:
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


def test_what_was_started_between_two_lines_is_told_by_proportion() -> None:
    points = [(0, 0), (100, SECOND), (300, 2 * SECOND)]
    assert [started_by(points, at * SECOND) for at in (-1, 0, 0.5, 1.5, 9)] == [0, 0, 50, 200, 300]
    assert per_second(points, 0, 2) == [100, 200]


def test_a_slow_contestant_gets_its_share_of_the_jobs_but_not_too_few() -> None:
    slow = replace(PGSCHED, share=0.1)
    assert [jobs(slow, n) for n in (100_000, 5000, 500)] == [10_000, 1000, 500]


def test_contestants_have_pinned_versions_and_a_name_each() -> None:
    assert len({one.name for one in ALL}) == len(ALL)
    for one in ALL:
        assert all("==" in text or "@" in text for text in one.requirements), one.name
