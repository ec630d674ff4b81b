"""A worker as process 1 of a container leaves no zombies, obeys signals and passes its exit code on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.paths import ROOT
from tests.support.waiting import wait_until

FLAGS = ("--pid", "--fork", "--mount-proc", "--kill-child")
pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", *FLAGS, "true"], check=False, capture_output=True).returncode != 0,
    reason="no namespaces may be made here",
)


def stat(pid: int) -> list[str]:
    """Return the state, the parent and other fields of a process from /proc, or an empty list if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children(pid: int) -> list[int]:
    everybody = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [one for one in everybody if (found := stat(one)) and found[1] == str(pid)]


def zombies(pid: int) -> list[int]:
    return [one for one in children(pid) if stat(one)[:1] == ["Z"]]


@contextmanager
def contained(dsn: str, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `pgsched ...` as process 1 of a namespace. Yield the process of unshare, which ends with it."""
    with log.open("wb") as sink:
        outer = subprocess.Popen(
            ["unshare", *FLAGS, sys.executable, "-m", "pgsched", *words],
            env=os.environ | {"PGSCHED_DSN": dsn}, cwd=ROOT, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield outer
    finally:
        outer.kill()
        outer.wait()


@pytest.mark.long
def test_nothing_stays_a_zombie_and_a_stop_drains(dsn: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SELECT pgsched.enqueue('orphan') FROM generate_series(1, 3)")
        db.execute(
            "INSERT INTO pgsched.runs (kind, task) SELECT 'shell', 'setsid sleep 0.2 & true' FROM generate_series(1, 3)"
        )
    words = ("worker", "--allow", "task,shell", "--app", "tests.support.apps.contained:app", "--no-leader")
    with contained(dsn, log, *words) as outer, psycopg.connect(dsn, autocommit=True) as db:
        first = wait_until(lambda: children(outer.pid), 30, "process 1, by its outer pid")[0]
        query = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"
        wait_until(lambda: db.execute(query).fetchone() == (6,), 30, "six runs")
        assert len(children(first)) >= 1
        wait_until(lambda: len(children(first)) == 1, 10, "the orphans' end")
        assert zombies(first) == [] and zombies(children(first)[0]) == []
        os.kill(first, signal.SIGTERM)
        assert outer.wait(30) == 0, log.read_text()
    assert "stopped: 6 succeeded" in log.read_text(), "it stopped in good order"


def test_the_exit_code_of_the_container_is_that_of_the_worker(dsn: str, tmp_path: Path) -> None:
    with contained(dsn, tmp_path / "log", "worker", "--lease", "0") as outer:
        assert outer.wait(30) == 2
    assert "lease: 0 is out of range" in (tmp_path / "log").read_text()
