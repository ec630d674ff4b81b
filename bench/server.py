"""One server for a whole run, and a fresh database for each measurement.

The rule: default durability (fsync and synchronous_commit on) and PostgreSQL's own defaults otherwise; what is set is
in SETTINGS and in the header of every result. With `--dsn` it is the given server as it is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bench.machine import Cpu, children
from bench.memory import Hole, hole
from pgsched.db.embedded.cluster import Cluster
from pgsched.db.embedded.server import bin_dir, readable_binaries, server_account

SETTINGS = {
    "max_connections": "1000",
    "shared_preload_libraries": "pg_stat_statements",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "error",
}
ASKED = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "autovacuum",
         "max_connections", "jit", "shared_preload_libraries")  # fmt: skip
ALL_CORES = os.sched_getaffinity(0)


@dataclass(frozen=True)
class Server:
    """A running server. `dsn` may create databases; `pid` is the postmaster's, None for somebody else's server; `hole`
    fills its memory before each measurement."""

    dsn: str
    pid: int | None = None
    hole: Hole | None = None

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A fresh, empty database; yields its DSN. It is dropped afterwards."""
        full = f"bench_{name.replace('-', '_')}_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            # No measurement pays for the writes of the one before.
            conn.execute("CHECKPOINT")
            if self.hole is not None:
                self.hole.fill()
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(full)))
        try:
            yield address(self.dsn, full)
        finally:
            with psycopg.connect(self.dsn, autocommit=True) as conn:
                conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(full)))

    def about(self) -> dict[str, str]:
        """The version, and the settings that matter."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            found = {name: str(scalar(conn, f"SHOW {name}")) for name in ASKED}
            memory = {} if self.hole is None else {"memory": "filled with page cache"}
            return {"postgresql": str(scalar(conn, "SHOW server_version")), **found, **memory}

    def cpu(self) -> Cpu | None:
        """What the server's processes have used so far; None if they are not ours to look at."""
        return None if self.pid is None else Cpu.of_tree(self.pid)


def scalar(conn: psycopg.Connection, query: str, values: list[object] | None = None) -> object:
    """The one value of a one-row answer."""
    row = conn.execute(query.encode(), values).fetchone()
    return None if row is None else row[0]


def address(dsn: str, database: str) -> str:
    """The same server's other database, as a URL that every client library of the peers reads."""
    parts = {**conninfo_to_dict(dsn), "dbname": database}
    user, password = parts.pop("user", "postgres"), parts.pop("password", None)
    host, port = str(parts.pop("host", "localhost")), parts.pop("port", 5432)
    login = f"{user}:{password}" if password else f"{user}"
    if host.startswith("/"):
        return f"postgresql://{login}@/{database}?host={host}&port={port}"
    return f"postgresql://{login}@{host}:{port}/{database}"


@contextmanager
def server(dsn: str | None, fill_memory: bool = False) -> Iterator[Server]:
    """The given server, or a private one for the time of the block."""
    with hole() if fill_memory else nullcontext() as filler, nullcontext(Server(dsn)) if dsn else private() as found:
        yield replace(found, hole=filler)


@contextmanager
def private() -> Iterator[Server]:
    """A server for the time of the block."""
    directory = Path(tempfile.mkdtemp(prefix="pgsched-bench-", dir=os.environ.get("PGSCHED_BENCH_TMP"))).resolve()
    directory.chmod(0o755)  # the account that runs the server for root must get through
    try:
        account = server_account()
        binaries = bin_dir() if account is None else readable_binaries(bin_dir(), directory, account)
        cluster = Cluster(directory / "data", binaries, account, SETTINGS)
        cluster.create()
        try:
            cluster.start()
            found = cluster.postmaster()
            yield Server(cluster.dsn(), None if found is None else found.pid)
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def core_to_spare(server: Server) -> Iterator[None]:
    """For the time of the block this process, what it starts and the server use all processors but the last."""
    if server.pid is None:
        raise RuntimeError("--spare-core needs a server that this benchmark starts")
    if len(os.sched_getaffinity(0)) < 2:
        raise RuntimeError("--spare-core needs two processors")
    everyone = (0, server.pid, *children(server.pid))
    before = os.sched_getaffinity(0)
    move(everyone, sorted(before)[:-1])
    try:
        yield
    finally:
        move(everyone, before)


def move(pids: Iterable[int], cores: Collection[int]) -> None:
    """Processes, 0: this thread, run on those processors from now on."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)
