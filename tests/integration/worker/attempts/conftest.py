"""Tables of the handlers' own, for those that use them."""

import psycopg
import pytest

from tests.support.apps import contract


@pytest.fixture
def tables(db: psycopg.Connection) -> None:
    db.execute(contract.TABLES)
