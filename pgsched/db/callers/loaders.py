"""Read values on a caller's psycopg connection as on our own, whatever its library has set.

Django lets psycopg return JSON as text, and gives instants the zone of its own settings. Our statements read both.

Invariant: after the block the connection reads as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, pq
from psycopg.adapt import AdaptersMap
from psycopg.types.json import set_json_loads

from pgsched.db.connection.json_values import read_json

OIDS = tuple(psycopg.postgres.types[name].oid for name in ("json", "jsonb", "timestamptz"))
FORMATS = (pq.Format.TEXT, pq.Format.BINARY)


class OurContext:
    """The adapters of our own connections: psycopg's defaults, with our way to read JSON."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        set_json_loads(read_json, self)


OURS = OurContext()


def loaders_of(adapters: AdaptersMap) -> list[tuple[int, Any]]:
    """Return what reads the values of OIDS, each with the type's number."""
    found = [(oid, adapters.get_loader(oid, form)) for oid in OIDS for form in FORMATS]
    return [(oid, loader) for oid, loader in found if loader is not None]


@contextmanager
def our_loaders(conn: Connection[Any]) -> Iterator[None]:
    """Read JSON and instants on this connection as on our own, during the block."""
    before = loaders_of(conn.adapters)
    set_loaders(conn, loaders_of(OURS.adapters))
    try:
        yield
    finally:
        set_loaders(conn, before)


def set_loaders(conn: Connection[Any], loaders: list[tuple[int, Any]]) -> None:
    """Let a connection read values by these loaders."""
    for oid, loader in loaders:
        conn.adapters.register_loader(oid, loader)
