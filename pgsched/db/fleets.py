"""Of which fleet a database is to be: of PGSCHED_FLEET, or of the one that this process met first by that address.

Behind a pooler or a proxy another server may answer without a new connect. So no connection is asked: the statements
that count carry the fleet, and the database refuses one that is not its own (pgsched.assert_fleet).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, Connection

from pgsched import config
from pgsched.db.connection.dsn import in_use

ADDRESS = ("host", "hostaddr", "port", "dbname", "user")
Either = Connection[Any] | AsyncConnection[Any]
_addresses: WeakKeyDictionary[Either, str] = WeakKeyDictionary()
_met: dict[str, UUID] = {}


def expected(conn: Either) -> UUID | None:
    """The fleet that the database behind this connection must be of; None: any, as none is known yet. Raises
    InputError."""
    return config.fleet() or _met.get(_address(conn))


def met(conn: Either, fleet: UUID | None) -> None:
    """A statement was answered by a database of this fleet."""
    if fleet is not None:
        _met.setdefault(_address(conn), fleet)


def _address(conn: Either) -> str:
    address = _addresses.get(conn)
    if address is None:
        given = in_use(conn)
        address = _addresses[conn] = " ".join(given.get(name, "") for name in ADDRESS)
    return address
