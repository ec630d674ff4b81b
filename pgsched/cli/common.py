"""What every command shares: the --dsn and --json options, and the way from a DSN to a database that is ready.

The rule: a database that somebody named is never migrated behind their back; the embedded one always is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", metavar="DSN", help="Database. Default: PGSCHED_DSN, DATABASE_URL, else embedded."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the database is."""

    dsn: str
    embedded: bool


def locate(dsn: str | None, app_dsn: str | None = None) -> Place:
    """The database by --dsn, PGSCHED_DSN or DATABASE_URL, that of the app that is served, or by PG* variables; else the
    embedded one, started, with a line that says so."""
    from pgsched.config import find_dsn

    found = find_dsn(dsn, otherwise=app_dsn)
    if found is not None:
        return Place(found, embedded=False)
    from pgsched.db.embedded import server

    where = server.data_dir()
    print(
        f"pgsched: no DSN given: using the embedded PostgreSQL, its data is in {where}"
        " (use another with --dsn or PGSCHED_DSN)",
        file=sys.stderr,
    )
    cluster = server.acquire()
    cluster.keep_running()
    return Place(cluster.dsn, embedded=True)


@contextmanager
def database(dsn: str | None, app_dsn: str | None = None) -> Iterator[str]:
    """The DSN of the database to use; the embedded one is migrated."""
    place = locate(dsn, app_dsn)
    if place.embedded:
        migrate_embedded(place.dsn)
    yield place.dsn


def migrate_embedded(dsn: str, **options: Any) -> tuple[str | None, str]:
    """Migrate the embedded database; one made before 0.1.0 is refused, with the directory to move away."""
    from pgsched.db.embedded import server
    from pgsched.db.schema import migrate
    from pgsched.errors import SchemaTooOld

    try:
        return migrate.upgrade(dsn, **options)
    except SchemaTooOld as error:
        raise SchemaTooOld(f"{error}; or end all that use it, and move {server.data_dir()} away") from error


@contextmanager
def session(dsn: str | None) -> Iterator[Connection[Any]]:
    """A connection to a database of the right schema version."""
    from pgsched.db.connection.connect import connect
    from pgsched.db.schema import version

    with database(dsn) as address, connect(address) as conn:
        version.check(conn)
        yield conn
