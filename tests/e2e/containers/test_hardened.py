"""pgsched works in hardened containers: nothing can be written, and the user is a number without a name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.hostile.ordinary_user import USER, works
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

READ_ONLY = """mount --make-rprivate /
for m in / /tmp /var/tmp /dev/shm; do mount --bind $m $m && mount -o remount,bind,ro $m || exit 99; done"""
WORKER = "--allow task,shell,command,sql --app tests.support.apps.contained:app --no-leader --poll 0.1"


def queued(dsn: str) -> int:
    """Enqueue runs of several kinds, and return how many there are."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SELECT pgsched.enqueue('thread'), pgsched.enqueue('process')")
        db.execute(
            "INSERT INTO pgsched.runs (kind, task, args) VALUES"
            " ('shell', 'cat', '{\"stdin\": \"hello\"}'), ('command', 'true', '{}'), ('sql', 'SELECT 1', '{}')"
        )
    return 5


def states(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as db:
        return {str(task): str(state) for task, state in db.execute("SELECT task, state FROM pgsched.runs")}


@pytest.mark.skipif(not works("unshare", "-m"), reason="no namespaces may be made here")
def test_a_worker_needs_no_directory_that_it_may_write_to(dsn: str, tmp_path: Path) -> None:
    count = queued(dsn)
    script = (
        f'{READ_ONLY}\n! touch /tmp/x 2>/dev/null || exit 98; exec "$0" -m pgsched worker {WORKER} --max-runs {count}'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable],
        env=os.environ | {"PGSCHED_DSN": dsn}, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(states(dsn).values()) == {"succeeded"}, done.stderr


@pytest.mark.skipif(not works(*USER), reason="only root may become somebody else")
def test_a_user_without_a_name_or_home_runs_everything(dsn: str) -> None:
    count = queued(dsn)
    env = {"PATH": os.environ["PATH"], "PGSCHED_LOG": "debug", "PGSCHED_DSN": dsn, "PYTHONDONTWRITEBYTECODE": "1"}
    for command in ("check", "job list", "run list", f"worker {WORKER} --max-runs {count}"):
        for home in ({"HOME": "/nonexistent"}, {"HOME": ""}, {}):
            words = [*USER, sys.executable, "-m", "pgsched", *command.split()]
            done = subprocess.run(words, env=env | home, capture_output=True, text=True, timeout=60, cwd=ROOT)
            assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr + done.stdout
            if command.startswith("worker"):
                break
    assert set(states(dsn).values()) == {"succeeded"}, done.stderr
