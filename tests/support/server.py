"""The PostgreSQL server on which the tests run.

Invariant: nothing survives the session that started it, and what a SIGKILLed session left is swept by the next one.

The first of these that exists is used: the server of PGSCHED_TEST_DSN; a throw-away cluster of the programs in the
folder PGSCHED_TEST_BIN; a container of a Docker engine that answers; a throw-away cluster of the embedded wheel. With
PGSCHED_TEST_SCRAM, the throw-away clusters listen on loopback TCP, and ask every login for a password by SCRAM.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Client, Listener
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.chaos.site import folders
from pgsched.db.embedded.cluster import Cluster, StopMode
from pgsched.db.embedded.server import bin_dir, readable_binaries, server_account

IMAGE = "postgres:17"
PASSWORD = "a p@ss/word's \\ 100%"  # each of these characters is special in a URL, a DSN or a settings file
PREFIX = "pgsched-test-"
ROOM = 4 << 30
MEMORY = Path("/dev/shm")
THROW_AWAY = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "max_wal_size": "256MB",
    "password_encryption": "scram-sha-256",
}


@dataclass(frozen=True)
class TestServer:
    """A server for one test session. `dsn` is for maintenance: the role in it may create databases."""

    __test__ = False

    dsn: str
    kind: str
    stop: Callable[[], None]


class SessionServer:
    """The server of one test session. This process starts it when first needed, also for other processes."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._server: TestServer | None = None
        self._listener: Listener | None = None

    @property
    def kind(self) -> str | None:
        return self._server and self._server.kind

    @property
    def dsn(self) -> str:
        with self._lock:
            if self._server is None:
                self._server = start_server()
            return self._server.dsn

    def listen(self) -> str:
        """Return the socket at which other processes of the session can ask for the DSN (see `ask`)."""
        if self._listener is None:
            self._listener = Listener(family="AF_UNIX", backlog=64)
            threading.Thread(target=self._answer, args=[self._listener], daemon=True).start()
        return str(self._listener.address)

    def _answer(self, listener: Listener) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                with listener.accept() as link, contextlib.suppress(OSError):
                    try:
                        link.send((self.dsn, None))
                    except Exception as error:
                        link.send((None, f"{type(error).__name__}: {error}"))

    def close(self) -> None:
        """Drop the session's databases, stop the server, and sweep what killed processes left."""
        if self._listener is not None:
            self._listener.close()
        with self._lock:  # wait for a start that is under way
            if self._server is None:
                return
            try:
                _drop_databases(self._server.dsn, self._session)
            finally:
                self._server.stop()
                sweep()


def ask(address: str) -> str:
    """Return the DSN of the server, asked from the process that listens at this address."""
    with Client(address, "AF_UNIX") as link:
        dsn, problem = link.recv()
    if dsn is None:
        raise RuntimeError(f"no server to test on: {problem}")
    return str(dsn)


def _drop_databases(dsn: str, session: str) -> None:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", [f"pgsched\\_%\\_{session}%"]
        ).fetchall()
        for (name,) in names:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def start_server() -> TestServer:
    if dsn := os.environ.get("PGSCHED_TEST_DSN"):
        return TestServer(dsn, "the server of PGSCHED_TEST_DSN", lambda: None)
    if os.environ.get("PGSCHED_TEST_BIN") or asks_for_passwords():
        return _embedded_server()
    return _docker_server() or _embedded_server()


def _docker_server() -> TestServer | None:
    if not docker_answers():
        return None
    try:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(IMAGE).with_env("POSTGRES_PASSWORD", "test").with_exposed_ports(5432)
        container.with_command("postgres -c max_connections=300 -c fsync=off -c full_page_writes=off")
    except Exception:
        return None
    try:
        container.start()
        address = f"{container.get_container_host_ip()}:{container.get_exposed_port(5432)}"
        dsn = f"postgresql://postgres:test@{address}/postgres"
        _wait_for(dsn)
    except Exception:  # no image, no network, no room or no rights: the embedded wheel does as well
        with contextlib.suppress(Exception):
            container.stop()
        return None
    return TestServer(dsn, f"a container of {IMAGE}", container.stop)


def _wait_for(dsn: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return psycopg.connect(dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def docker_answers() -> bool:
    """Return whether a Docker engine answers; testcontainers itself would try for a long time.

    A socket that accepts the connection but does not answer counts as none.
    """
    target = urlsplit(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    try:
        if target.scheme == "unix":
            link = socket.socket(socket.AF_UNIX)
            link.settimeout(2)
            link.connect(target.path)
        else:
            link = socket.create_connection((target.hostname or "", target.port or 2375), timeout=2)
        with link:
            link.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in link.recv(200)
    except (OSError, ValueError):
        return False


def _embedded_server() -> TestServer:
    sweep()
    place = Place()
    try:
        cluster = PrivateCluster(place.path)
        cluster.start()
    except BaseException:
        place.remove()
        raise

    def stop() -> None:
        cluster.stop("immediate")
        place.remove()

    whose = os.environ.get("PGSCHED_TEST_BIN") or "the embedded wheel"
    passwords = " with passwords" if asks_for_passwords() else ""
    return TestServer(cluster.dsn, f"a throw-away cluster of {whose}{passwords}", stop)


def chosen_programs() -> Path | None:
    """Return the folder of PGSCHED_TEST_BIN; None: the programs of the embedded wheel."""
    chosen = os.environ.get("PGSCHED_TEST_BIN")
    return Path(chosen) if chosen else None


def asks_for_passwords() -> bool:
    """Return whether the throw-away clusters ask for passwords, as PGSCHED_TEST_SCRAM says."""
    return bool(os.environ.get("PGSCHED_TEST_SCRAM"))


def memory() -> str | None:
    """Return the folder whose files are in memory, if there is room for a server.

    There, a new database for each test takes 20 ms. On a disk that other programs use too, it takes several hundred.
    """
    # The server's programs may be copied to that folder, and must be executable there.
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return str(MEMORY) if shutil.disk_usage(MEMORY).free > ROOM else None


class Place:
    """A temporary folder, with a lock that marks it as in use."""

    def __init__(self) -> None:
        self.path = folders.make(PREFIX, memory())

    def remove(self) -> None:
        folders.remove_own(self.path)


def sweep() -> None:
    """Stop and delete what killed sessions, or killed processes of this session, left."""
    for parent in (None, str(MEMORY) if MEMORY.is_dir() else None):
        folders.sweep(PREFIX, parent)


class PrivateCluster:
    """A throw-away PostgreSQL server that a test may stop, kill and start again; `dsn` stays the same."""

    def __init__(self, directory: Path) -> None:
        account = server_account()
        chosen = chosen_programs()
        binaries = chosen or (bin_dir() if account is None else readable_binaries(bin_dir(), directory, account))
        self.cluster = Cluster(directory / "data", binaries, account, THROW_AWAY)
        if chosen:  # an older initdb may not have the option for a locale provider
            self.cluster = replace(self.cluster, locale=("--lc-collate=C", "--lc-ctype=C"))
        self.dsn = ""
        self._port: int | None = None

    def start(self) -> None:
        """Start the server on a socket, and also on loopback TCP if it asks for passwords."""
        if asks_for_passwords():
            self.start_on_tcp()
            return
        self.cluster.create("--no-sync")
        self.cluster.start()
        self.dsn = self.cluster.dsn()

    def start_on_tcp(self) -> None:
        """Start the server on loopback TCP. If it asks for a password, the password is in the DSN."""
        data = self.cluster.data
        self.cluster.create("--no-sync", *self._ask_for_passwords())
        if self._port is None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = free.getsockname()[1]
        options = f"-h 127.0.0.1 -p {self._port} -k {shlex.quote(str(data))}"
        if self.cluster.state() == "stopped":
            start = ["-w", "-l", str(self.cluster.log), "-o", options, "start"]
            code, output = self.cluster.run("pg_ctl", "-D", str(data), *start)
            assert code == 0, output
        password = {"password": PASSWORD} if asks_for_passwords() else {}
        self.dsn = make_conninfo("", host="127.0.0.1", port=self._port, user="postgres", dbname="postgres", **password)

    def _ask_for_passwords(self) -> list[str]:
        """Return the options with which initdb makes a cluster that asks for passwords."""
        if not asks_for_passwords():
            return []
        file = self.cluster.data.with_name("password")
        file.write_text(f"{PASSWORD}\n")
        file.chmod(0o644)  # initdb may run as another account
        return ["--auth=scram-sha-256", f"--pwfile={file}"]

    def stop(self, mode: StopMode = "immediate") -> None:
        self.cluster.stop(mode)

    @property
    def pid(self) -> int:
        """Return the postmaster's process id; fail if the server is not running."""
        found = self.cluster.postmaster()
        assert found is not None, "the private cluster is not running"
        return found.pid
