"""A role with CREATEROLE that owns the database can set up the roles of pgsched without a superuser."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import connect
from pgsched.db.schema import migrate
from pgsched.errors import NotPermitted
from tests.support.server import PrivateCluster

pytestmark = [pytest.mark.long, pytest.mark.scram]


def dsn(cluster: PrivateCluster, user: str, name: str) -> str:
    return make_conninfo(cluster.dsn, user=user, dbname=name, password="x")


def person(admin: psycopg.Connection[Any], name: str, *attributes: str) -> None:
    """Create a login with a database of its own."""
    text = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' " + " ".join(attributes))
    admin.execute(text.format(sql.Identifier(name)))
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(f"db_{name}"), sql.Identifier(name)))


def test_a_role_with_createrole_can_set_up_the_roles(private_cluster: PrivateCluster) -> None:
    with psycopg.connect(private_cluster.dsn, autocommit=True) as admin:
        for name, attributes in (("app", ()), ("plain", ()), ("boss", ("CREATEROLE",)), ("second", ("CREATEROLE",))):
            person(admin, name, *attributes)
        with pytest.raises(NotPermitted, match="as a role with CREATEROLE"):
            migrate.upgrade(dsn(private_cluster, "plain", "db_plain"), with_roles=True)
        boss = dsn(private_cluster, "boss", "db_boss")
        for _ in range(2):  # the second time must work as well
            migrate.upgrade(boss, with_roles=True)
        with psycopg.connect(boss, autocommit=True) as conn:
            conn.execute("GRANT pgsched_producer TO app")
            owners = conn.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'pgsched'").fetchall()
            assert owners == [("pgsched_owner",)]
        with connect(dsn(private_cluster, "app", "db_boss")) as conn:
            assert conn.execute("SELECT pgsched.enqueue('t')").fetchone() == (1,)
            assert conn.execute("SELECT pgsched.cancel(1)").fetchone() == ("cancelled",)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("UPDATE pgsched.runs SET state = 'queued'")
        if admin.info.server_version >= 160_000:  # before, CREATEROLE may grant any role that is no superuser
            with pytest.raises(NotPermitted, match="GRANT pgsched_owner TO second"):
                migrate.upgrade(dsn(private_cluster, "second", "db_second"), with_roles=True)
        admin.execute("GRANT pgsched_owner TO second")
        migrate.upgrade(dsn(private_cluster, "second", "db_second"), with_roles=True)
