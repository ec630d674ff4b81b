"""One server for a whole benchmark, and a fresh database for each measurement.

Invariant: durability is the default (fsync and synchronous_commit on), and so are PostgreSQL's other settings. What is
set stands in SETTINGS and in the header of every result. With `--dsn`, the given server is used as it is.
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
    """A running server.

    `dsn`: its role may create databases.
    `pid`: the postmaster's process id; None for a server that this benchmark did not start.
    `hole`: fills the memory before each measurement.
    """

    dsn: str
    pid: int | None = None
    hole: Hole | None = None

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """Yield the DSN of a fresh, empty database; drop it after the block."""
        full = f"bench_{name.replace('-', '_')}_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            # A checkpoint now: no measurement must pay for the writes of the one before.
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
        """Return the version, and the settings that matter."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            found = {name: str(scalar(conn, f"SHOW {name}")) for name in ASKED}
            memory = {} if self.hole is None else {"memory": "filled with page cache"}
            return {"postgresql": str(scalar(conn, "SHOW server_version")), **found, **memory}

    def cpu(self) -> Cpu | None:
        """Return what the server's processes have used so far; None for a server that this benchmark did not start."""
        return None if self.pid is None else Cpu.of_tree(self.pid)


def scalar(conn: psycopg.Connection, query: str, values: list[object] | None = None) -> object:
    """Return the value of an answer with one row and one column."""
    row = conn.execute(query.encode(), values).fetchone()
    return None if row is None else row[0]


def address(dsn: str, database: str) -> str:
    """Return a DSN of another database on the same server, as a URL that every peer's client library can read."""
    parts = {**conninfo_to_dict(dsn), "dbname": database}
    user, password = parts.pop("user", "postgres"), parts.pop("password", None)
    host, port = str(parts.pop("host", "localhost")), parts.pop("port", 5432)
    login = f"{user}:{password}" if password else f"{user}"
    if host.startswith("/"):
        return f"postgresql://{login}@/{database}?host={host}&port={port}"
    return f"postgresql://{login}@{host}:{port}/{database}"


@contextmanager
def server(dsn: str | None, fill_memory: bool = False) -> Iterator[Server]:
    """Yield the given server, or a private one for the block."""
    with hole() if fill_memory else nullcontext() as filler, nullcontext(Server(dsn)) if dsn else private() as found:
        yield replace(found, hole=filler)


@contextmanager
def private() -> Iterator[Server]:
    """Start a server for the block."""
    directory = Path(tempfile.mkdtemp(prefix="pgsched-bench-", dir=os.environ.get("PGSCHED_BENCH_TMP"))).resolve()
    directory.chmod(0o755)  # for root, another account runs the server and must be able to enter
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
    """Leave the last processor free in the block: this process, its children and the server use the others."""
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
    """Let these processes use only these processors; process id 0 is this thread."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)
