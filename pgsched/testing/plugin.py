"""The test kit's pytest fixtures.

pytest loads this module by itself (entry point pytest11), so it imports nothing else until a fixture is used. Name the
app in pytest's configuration (`pgsched_app = "package.module:app"`), or override the fixture `pgsched_app`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pgsched.client.application import App
    from pgsched.testing import DatabaseClock, Recorder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of the test kit to pytest's configuration."""
    parser.addini("pgsched_app", "the app under test: package.module:app")
    parser.addini("pgsched_test_dsn", "a server on which tests may create databases (else PGSCHED_TEST_DSN, embedded)")


@pytest.fixture
def pgsched_app(request: pytest.FixtureRequest) -> App:
    """Return the app under test."""
    from pgsched.app.base import import_app
    from pgsched.client.application import App

    path = str(request.config.getini("pgsched_app") or "")
    if not path:
        pytest.fail('pgsched: set pgsched_app = "package.module:app" for pytest, or override the fixture pgsched_app')
    found = import_app(path)
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


@pytest.fixture(scope="session")
def pgsched_server_dsn(request: pytest.FixtureRequest) -> str:
    """Return the DSN of a server on which the tests' databases are created."""
    found = str(request.config.getini("pgsched_test_dsn") or os.environ.get("PGSCHED_TEST_DSN") or "")
    if not found:
        from pgsched.db.embedded.server import acquire

        found = acquire().dsn
    return found


@pytest.fixture(scope="session")
def pgsched_template(pgsched_server_dsn: str) -> Iterator[str]:
    """Yield the name of the migrated database that is copied for each test."""
    from pgsched.testing.database import fresh_database

    with fresh_database(pgsched_server_dsn) as (name, _):
        yield name


@pytest.fixture
def pgsched_dsn(pgsched_server_dsn: str, pgsched_template: str) -> Iterator[str]:
    """Yield the DSN of a database of the test's own, with the pgsched schema; drop it afterwards."""
    from pgsched.testing.database import fresh_database

    with fresh_database(pgsched_server_dsn, pgsched_template) as (_, dsn):
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
