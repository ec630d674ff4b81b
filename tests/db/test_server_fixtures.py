"""The fixtures keep what they promise to the other tests."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.server import PrivateCluster
from tests.waiting import wait_until


def test_each_test_gets_a_migrated_database_of_its_own(db: psycopg.Connection, session_name: str) -> None:
    assert db.info.dbname.startswith(f"pgsched_test_{session_name}")
    assert db.execute("SELECT to_regclass('pgsched.jobs') IS NOT NULL").fetchone() == (True,)


def test_an_empty_database_has_no_schema(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('pgsched') IS NULL").fetchone() == (True,)


def test_more_connections_reach_the_same_database(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    other = connect(autocommit=False)
    assert other.info.dbname == db.info.dbname
    assert other.info.backend_pid != db.info.backend_pid


def test_a_private_cluster_keeps_its_data_through_a_crash(private_cluster: PrivateCluster) -> None:
    with psycopg.connect(private_cluster.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        connection.execute("CHECKPOINT")
    before = private_cluster.dsn
    private_cluster.stop("immediate")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(before)
    private_cluster.start()
    assert private_cluster.dsn == before
    with psycopg.connect(private_cluster.dsn) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_waiting_gives_the_value_and_fails_with_the_text() -> None:
    values = iter([0, 0, 7])
    assert wait_until(lambda: next(values)) == 7
    with pytest.raises(pytest.fail.Exception, match=r"waited 0\.05 s for the moon"):
        wait_until(lambda: False, timeout=0.05, what="the moon")
