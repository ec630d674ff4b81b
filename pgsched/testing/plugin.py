"""The test kit's pytest fixtures.

pytest loads this module by itself (entry point pytest11), so it imports nothing else until a fixture is used. Name the
app in pytest's configuration (`pgsched_app = "package.module:app"`), or override the fixture `pgsched_app`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    from pgsched.client.application import App
    from pgsched.testing import DatabaseClock, Recorder

    Prepare = Callable[[psycopg.Connection[Any]], object]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of the test kit to pytest's configuration."""
    parser.addini("pgsched_app", "the app under test: package.module:app")
    parser.addini(
        "pgsched_test_dsn",
        "the server on which tests may create databases, if PGSCHED_TEST_DSN is not set; otherwise the embedded one",
    )


@contextmanager
def plain_failures(source: str) -> Iterator[None]:
    """Let what pgsched refuses fail the test with one line that names where the setting came from."""
    from pgsched.errors import PgschedError

    try:
        yield
    except PgschedError as error:
        problem = str(error).replace("PGSCHED_DSN", "PGSCHED_TEST_DSN")
        raise pytest.fail.Exception(f"pgsched: {source}: {problem}", pytrace=False) from None


@pytest.fixture
def pgsched_app(request: pytest.FixtureRequest) -> App:
    """Return the app under test."""
    from pgsched.app.base import HINT, import_app
    from pgsched.client.application import App
    from pgsched.errors import InputError, PgschedError

    path = str(request.config.getini("pgsched_app") or "")
    if not path:
        pytest.fail(
            'pgsched: which app is under test? Set pgsched_app = "package.module:app" in pytest\'s configuration'
            " ([tool.pytest.ini_options] of pyproject.toml), or override the fixture pgsched_app",
            pytrace=False,
        )
    with plain_failures(f'pgsched_app = "{path}" in pytest\'s configuration'):
        try:
            found = import_app(path)
        except InputError as error:
            if isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, PgschedError):
                raise error.__cause__ from None  # an error of the app's own code: pytest shows where
            raise InputError(str(error).replace(HINT, "")) from None
    assert isinstance(found, App)
    return found


@pytest.fixture
def pgsched_recorder(pgsched_app: App) -> Iterator[Recorder]:
    """Record what the app enqueues, and send it to no database; yield the recorder."""
    from pgsched.testing import record

    with record(pgsched_app) as recorder:
        yield recorder


@pytest.fixture
def pgsched_inline(pgsched_app: App) -> Iterator[Recorder]:
    """Run what the app enqueues at once, without a database; yield the recorder."""
    from pgsched.testing import inline

    with inline(pgsched_app) as recorder:
        yield recorder


def server_source(config: pytest.Config) -> tuple[str, str]:
    """Return the DSN of the server for tests ("": the embedded one), and where it comes from."""
    if found := os.environ.get("PGSCHED_TEST_DSN", "").strip():
        return found, "PGSCHED_TEST_DSN"
    if found := str(config.getini("pgsched_test_dsn") or "").strip():
        return found, "pgsched_test_dsn in pytest's configuration"
    return "", "the embedded server (PGSCHED_TEST_DSN is not set)"


@pytest.fixture(scope="session")
def pgsched_server_dsn(request: pytest.FixtureRequest) -> str:
    """Return the DSN of a server on which the tests' databases are created."""
    found, source = server_source(request.config)
    if not found:
        from pgsched.db.embedded.server import acquire

        with plain_failures(source):
            found = acquire().dsn
    return found


@pytest.fixture(scope="session")
def pgsched_prepare() -> Prepare:
    """Override it to make your own tables: return a function that gets a psycopg connection to the tests' template.

    The function is called once in a session, not for each test; what it does is committed.
    """
    return lambda conn: None


@pytest.fixture(scope="session")
def pgsched_template(
    request: pytest.FixtureRequest, pgsched_server_dsn: str, pgsched_prepare: Prepare
) -> Iterator[str]:
    """Yield the name of the database that is copied for each test: migrated, and with what pgsched_prepare makes."""
    from pgsched.testing.database import fresh_database

    with (
        plain_failures(server_source(request.config)[1]),
        fresh_database(pgsched_server_dsn, prepare=pgsched_prepare) as (name, _),
    ):
        yield name


@pytest.fixture
def pgsched_dsn(request: pytest.FixtureRequest, pgsched_server_dsn: str, pgsched_template: str) -> Iterator[str]:
    """Yield the DSN of a database of the test's own, a copy of `pgsched_template`; drop it afterwards."""
    from pgsched.testing.database import fresh_database

    with (
        plain_failures(server_source(request.config)[1]),
        fresh_database(pgsched_server_dsn, pgsched_template) as (_, dsn),
    ):
        yield dsn


@pytest.fixture
def pgsched_database(pgsched_app: App, pgsched_dsn: str) -> Iterator[App]:
    """Yield the app, with `pgsched_dsn` as its database."""
    before, pgsched_app.dsn = pgsched_app.dsn, pgsched_dsn
    pgsched_app.close()
    yield pgsched_app
    pgsched_app.close()
    pgsched_app.dsn = before


@pytest.fixture
def pgsched_clock(pgsched_database: App) -> DatabaseClock:
    """Return a clock that lets time pass in the test's database."""
    from pgsched.testing import DatabaseClock

    return DatabaseClock(pgsched_database)
