"""A process of the previous release and the new schema: at work while it comes, or started after it.

The release comes out of git; a checkout without history skips this, and says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import psycopg
import pytest

from pgsched.db.schema import migrate, version
from tests.support.apps import ledger
from tests.support.fleet import Fleet, Member
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

RELEASE, ITS_VERSION = "181638229c5fc4a9846e4a8204ebbc10d9a8c99e", "0003"
TOO_OLD, TOO_NEW = 5, 6


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous release's files."""
    place = tmp_path_factory.mktemp("released")
    if shutil.which("git") is None:
        pytest.skip("no git here: the previous release is not tried")
    archive = place / "release.zip"
    made = subprocess.run(["git", "archive", "-o", str(archive), RELEASE], cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"the previous release is not tried: this checkout has no history ({made.stderr.strip()})")
    with ZipFile(archive) as files:  # tarfile wants a filter, which Python has only since 3.11.4
        files.extractall(place)
    return place


class Old(Fleet):
    """Workers of the release."""

    def __init__(self, dsn: str, folder: Path, release: Path) -> None:
        super().__init__(dsn, folder)
        self.release = release

    def launch(self, *options: str) -> Member:
        log = self.folder / f"old-{len(self.members)}.log"
        command = [sys.executable, "-m", "pgsched", "worker", "--app", "tests.support.apps.ledger:app", *options]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")} | {"PGSCHED_DSN": self.dsn}
        with log.open("wb") as sink:
            process = subprocess.Popen(command, cwd=self.release, env=env, stdout=sink, stderr=sink)
        self.members.append(Member(process, log))
        return self.members[-1]


def old_pgsched(release: Path, dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")} | {"PGSCHED_DSN": dsn}
    command = [sys.executable, "-m", "pgsched", *arguments]
    return subprocess.run(command, cwd=release, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def old(empty_dsn: str, tmp_path: Path, released: Path) -> Iterator[Old]:
    """A database that the release has made, and workers of the release."""
    made = old_pgsched(released, empty_dsn, "migrate")
    assert made.returncode == 0, made.stderr
    with psycopg.connect(empty_dsn) as db:
        assert version.current(db) == ITS_VERSION
    ledger.install(empty_dsn)
    fleet = Old(empty_dsn, tmp_path, released)
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.mark.parametrize("command", ["worker", "worker --processes 2", "status", "job list", "migrate"])
def test_what_is_started_after_the_migration_refuses(old: Old, command: str) -> None:
    migrate.upgrade(old.dsn)
    ended = old_pgsched(old.release, old.dsn, *command.split())
    assert ended.returncode == TOO_NEW, ended.stderr
    assert f"version {version.SCHEMA_VERSION}, newer than {ITS_VERSION}: upgrade this pgsched" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_new_worker_refuses_the_old_schema(old: Old, tmp_path: Path) -> None:
    new = Fleet(old.dsn, tmp_path)
    try:
        assert new.launch().ended(30) == TOO_OLD
    finally:
        new.end()


def test_workers_that_run_while_the_schema_moves_lose_nothing(old: Old) -> None:
    """They go on, or end with their own exit code. All that was enqueued before, during and after it ends, once."""
    stop = threading.Event()
    ids: list[int] = []

    def enqueue() -> None:
        with psycopg.connect(old.dsn, autocommit=True) as db:
            while not stop.wait(0.01):
                found = db.execute("SELECT pgsched.enqueue('note')").fetchone()
                assert found is not None
                ids.append(found[0])

    old.start(2, "--lease", "5")
    with psycopg.connect(old.dsn, autocommit=True) as db:

        def succeeded() -> int:
            row = db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'").fetchone()
            assert row is not None
            return int(row[0])

        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('often', 'note', '@every 1s')")
        feeding = threading.Thread(target=enqueue)
        feeding.start()
        try:
            wait_until(lambda: succeeded() > 100, 60, "the old workers to work")
            assert migrate.upgrade(old.dsn) == (ITS_VERSION, version.SCHEMA_VERSION)
            after = succeeded()
            wait_until(lambda: succeeded() > after + 100 or not any(m.alive for m in old.members), 60, "more of it")
        finally:
            stop.set()
            feeding.join()
        slots = "SELECT count(*) FROM pgsched.runs WHERE origin = 'schedule' AND state = 'succeeded'"
        planned = db.execute(slots).fetchone()
        wait_until(lambda: db.execute(slots).fetchone() > planned or not any(m.alive for m in old.members),
                   30, "a leader that goes on")  # fmt: skip
        for member in old.members:
            if member.alive:
                member.signal(signal.SIGTERM)
                assert member.ended(30) == 0, "it went on, and drained"
            else:
                assert member.process.returncode in (TOO_OLD, TOO_NEW)
        db.execute("UPDATE pgsched.jobs SET paused = true")
        with_new = Fleet(old.dsn, old.folder)
        try:
            with_new.start(1, "--lease", "5")
            unended = "SELECT count(*) FROM pgsched.runs WHERE finished_at IS NULL"
            wait_until(lambda: db.execute(unended).fetchone() == (0,), 60, "everything to end")
        finally:
            with_new.end()
        became = "SELECT state, count(*) FROM pgsched.runs WHERE id = ANY (%s) GROUP BY 1"
        assert db.execute(became, [ids]).fetchall() == [("succeeded", len(ids))]
        twice = "SELECT run_id FROM public.ledger WHERE event = 'end' GROUP BY run_id HAVING count(*) > 1"
        assert db.execute(twice).fetchall() == []
