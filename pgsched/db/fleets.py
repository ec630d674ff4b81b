"""Remember the fleet that each database must belong to: PGSCHED_FLEET, or the first fleet seen at that address.

Behind a pooler or a proxy, another server may answer without a new connect. So the check is not made per connection.
The important statements carry the expected fleet, and the database refuses another one (pgsched.assert_fleet).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, Connection

from pgsched import config
from pgsched.db.connection.dsn import connection_parameters

ADDRESS = ("host", "hostaddr", "port", "dbname", "user")
Either = Connection[Any] | AsyncConnection[Any]
_addresses: WeakKeyDictionary[Either, str] = WeakKeyDictionary()
_met: dict[str, UUID] = {}


def expected_fleet(conn: Either) -> UUID | None:
    """Return the fleet that the database behind this connection must belong to; None: any.

    Raises InputError where PGSCHED_FLEET is wrong.
    """
    return config.fleet() or _met.get(_address(conn))


def remember_fleet(conn: Either, fleet: UUID | None) -> None:
    """Record that a database of this fleet answered a statement on this connection."""
    if fleet is not None:
        _met.setdefault(_address(conn), fleet)


def _address(conn: Either) -> str:
    address = _addresses.get(conn)
    if address is None:
        given = connection_parameters(conn)
        address = _addresses[conn] = " ".join(given.get(name, "") for name in ADDRESS)
    return address
