"""Options and database access that all commands share: --dsn, --json, and sessions on a ready database.

Invariant: a database that an operator named is never migrated here. The embedded database always is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.messages import print_note, print_remark

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", metavar="DSN", help="Database. Default: PGSCHED_DSN, DATABASE_URL, else embedded."),
]
Apps = Annotated[
    list[str] | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        envvar="PGSCHED_APP",
        help="Where the tasks are: package.module:app (repeatable).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The database that a command uses: its DSN, and whether it is the embedded PostgreSQL."""

    dsn: str
    embedded: bool


def find_database(dsn: str | None, app_dsn: str | None = None) -> Cluster:
    """Find the database to use, and start the embedded PostgreSQL if nothing names a database.

    The first that is given counts: `dsn` (--dsn), PGSCHED_DSN, `app_dsn` (the DSN of the app that is served),
    DATABASE_URL, PG* variables of libpq. A line on stderr announces the embedded PostgreSQL.
    Raises InputError for a DSN that is given and empty.
    """
    from pgsched.config import find_dsn

    found = find_dsn(dsn, otherwise=app_dsn)
    if found is not None:
        return Cluster(found, embedded=False)
    from pgsched.db.embedded import server

    where = server.data_dir()
    print_remark(
        f"pgsched: no DSN given: using the embedded PostgreSQL, its data is in {where}"
        " (use another with --dsn or PGSCHED_DSN)"
    )
    cluster = server.acquire()
    cluster.keep_running()
    return Cluster(cluster.dsn, embedded=True)


@contextmanager
def migrated_database(dsn: str | None, app_dsn: str | None = None) -> Iterator[str]:
    """Yield the DSN of the database to use, after migrating it if it is the embedded one."""
    place = find_database(dsn, app_dsn)
    if place.embedded:
        migrate_embedded(place.dsn)
    yield place.dsn


def migrate_embedded(dsn: str, **options: Any) -> tuple[str | None, str]:
    """Migrate the embedded database; return its schema versions before and after.

    `options`: passed to `migrate.upgrade`.
    Raises SchemaTooOld for a database made before 0.1.0, with the directory to move away.
    """
    from pgsched.db.embedded import server
    from pgsched.db.schema import migrate
    from pgsched.errors import SchemaTooOld

    try:
        return migrate.upgrade(dsn, **options)
    except SchemaTooOld as error:
        raise SchemaTooOld(f"{error}; or end all that use it, and move {server.data_dir()} away") from error


@contextmanager
def session(dsn: str | None) -> Iterator[Connection[Any]]:
    """Yield a connection to the database, after checking that its schema version is this program's.

    Raises SchemaTooOld or SchemaTooNew for another version.
    """
    with session_at(dsn) as (conn, _):
        yield conn


@contextmanager
def session_at(dsn: str | None) -> Iterator[tuple[Connection[Any], str]]:
    """Yield a connection as `session` does, and the DSN of its database for further connections."""
    from pgsched.db.connection.connect import connect
    from pgsched.db.schema import version

    with migrated_database(dsn) as address, connect(address) as conn:
        version.check_version(conn)
        yield conn, address


def print_with_notes(job: Mapping[str, Any], json: bool, text: str) -> None:
    """Print the notes about a change of a job, and then the job: all of it under --json, else `text`."""
    from pgsched.cli.output.printing import print_json

    for note in job["notes"]:
        print_note(note)
    print_json(job) if json else print(text)
