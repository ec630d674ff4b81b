"""A fixture that creates the tables of the test handlers."""

import psycopg
import pytest

from tests.support.apps import contract


@pytest.fixture
def tables(db: psycopg.Connection) -> None:
    db.execute(contract.TABLES)
