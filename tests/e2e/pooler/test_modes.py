"""pgsched detects a pooler and its mode when it connects, and uses as much as each mode allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched.db.connection import pooler, routes, sealed
from pgsched.db.connection.connect import BY_KEY, aconnect, connect
from pgsched.db.connection.handler_pool import IdleConnections
from pgsched.db.connection.pooler import Pooler
from pgsched.errors import DatabaseUnreachable, InputError
from tests.support.bouncer import Bouncer

pytestmark = pytest.mark.scram

Pooled = Callable[..., Bouncer]
ASKED = {"statement_timeout": "7s", "lock_timeout": "7s", "enable_seqscan": "off"}
OF_TRANSACTIONS = sealed.STYLES | sealed.RIGHTS | sealed.OURS | ASKED
OURS = tuple((OF_TRANSACTIONS | {"DateStyle": "ISO, MDY"}).values())
SHOW = "SELECT " + ", ".join(f"current_setting('{name}')" for name in OF_TRANSACTIONS)


def shown(conn: psycopg.Connection[Any]) -> Any:
    return conn.execute(SHOW.encode()).fetchone()


def test_no_pooler_is_seen_where_there_is_none(dsn: str) -> None:
    with connect(dsn) as conn:
        assert pooler.pooler_of(conn) is None
        assert not routes.pooled(dsn)


@pytest.mark.parametrize("ignored", ["extra_float_digits", "extra_float_digits,options"])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_each_mode_is_seen_and_every_statement_has_its_settings(pooled: Pooled, mode: str, ignored: str) -> None:
    bouncer = pooled(pool_mode=mode, ignore_startup_parameters=ignored)

    async def ask() -> Any:
        async with await aconnect(bouncer.dsn, timeout_s=7, settings=BY_KEY) as conn:
            return pooler.pooler_of(conn), await (await conn.execute(SHOW.encode())).fetchone()

    with connect(bouncer.dsn, timeout_s=7, settings=BY_KEY) as conn:
        assert pooler.pooler_of(conn) is Pooler(mode)
        assert shown(conn) == OURS
        with conn.transaction(), conn.transaction():
            assert shown(conn) == OURS
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        assert shown(conn) == OURS
        with pytest.raises(ValueError), conn.transaction():
            raise ValueError
        assert shown(conn) == OURS
    assert asyncio.run(ask()) == (Pooler(mode), OURS)


def test_a_pool_of_one_connection_is_detected_as_transaction_mode(pooled: Pooled) -> None:
    with connect(pooled(default_pool_size=1).dsn) as conn:
        assert pooler.pooler_of(conn) is Pooler.TRANSACTION


def test_transaction_mode_is_detected_in_a_busy_pool(pooled: Pooled) -> None:
    bouncer = pooled(default_pool_size=4, server_round_robin=1)
    others = [psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None) for _ in range(3)]
    for other in others:
        other.execute("BEGIN")
    for other in others[:2]:
        other.execute("COMMIT")
    with connect(bouncer.dsn) as conn:
        assert pooler.pooler_of(conn) is Pooler.TRANSACTION
    for other in others:
        other.close()


def test_statement_mode_is_refused_in_one_clear_line(pooled: Pooled) -> None:
    bouncer = pooled(pool_mode="statement")
    with pytest.raises(InputError) as caught:
        connect(bouncer.dsn)
    assert caught.value.exit_code == 2
    assert "statement mode" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError):
        asyncio.run(aconnect(bouncer.dsn))


def test_options_of_a_dsn_are_refused_in_one_clear_line(pooled: Pooled) -> None:
    bouncer = pooled()
    with pytest.raises(InputError) as caught:
        connect(f"{bouncer.dsn} options='-c work_mem=1MB'")
    assert "takes no options of a DSN" in str(caught.value) and "\n" not in str(caught.value)


def test_a_pooler_that_is_down_is_a_database_that_cannot_be_reached(pooled: Pooled) -> None:
    bouncer = pooled()
    connect(bouncer.dsn).close()
    bouncer.stop()
    with pytest.raises(DatabaseUnreachable):
        connect(bouncer.dsn)
    bouncer.start()
    connect(bouncer.dsn).close()


def test_a_change_from_session_to_transaction_mode_is_detected(pooled: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooler, "SESSION_HOLDS_S", -1.0)
    bouncer = pooled(pool_mode="session")
    with connect(bouncer.dsn) as conn:
        assert pooler.pooler_of(conn) is Pooler.SESSION
    bouncer.stop()
    bouncer.settings["pool_mode"] = "transaction"
    bouncer.start()
    with connect(bouncer.dsn) as conn:
        assert pooler.pooler_of(conn) is Pooler.TRANSACTION


def test_statements_are_prepared_only_where_the_pooler_tracks_them(pooled: Pooled) -> None:
    bouncer = pooled(default_pool_size=3)
    version = str(bouncer.ask("SHOW VERSION")[0]["version"]).split()[1]
    counts = tuple(int(part) for part in version.split(".")[:2]) >= (1, 21)
    with connect(bouncer.dsn) as one, connect(bouncer.dsn) as two:
        assert routes.known[bouncer.dsn].prepares is (counts and bouncer.counts_statements())
        for number in range(20):  # the two connections take turns with the sessions of the pool
            with two.transaction():
                two.execute("SELECT %s::int", [number])
                assert one.execute("SELECT %s::int", [number]).fetchone() == (number,)


@pytest.mark.long
def test_session_mode_is_still_assumed_while_no_other_session_is_free(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooler, "SESSION_HOLDS_S", -1.0)
    bouncer = pooled(pool_mode="session", default_pool_size=3)
    with connect(bouncer.dsn) as conn, psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None) as other:
        assert pooler.pooler_of(conn) is Pooler.SESSION
        other.execute("SELECT 1")
        with connect(bouncer.dsn) as last:
            assert pooler.pooler_of(last) is Pooler.SESSION


def test_a_kept_session_is_reset_each_time_a_handler_gets_it(pooled: Pooled, db: psycopg.Connection[Any]) -> None:
    db.execute(f"ALTER DATABASE \"{db.info.dbname}\" SET IntervalStyle = 'iso_8601'".encode())
    idle = IdleConnections(pooled(pool_mode="session").dsn)
    for _ in range(2):
        with idle.lend() as conn:
            assert pooler.pooler_of(conn) is Pooler.SESSION
            assert conn.execute("SELECT interval '1 hour', current_setting('IntervalStyle')").fetchone() == (
                timedelta(hours=1),
                "postgres",
            )
