"""The server itself ends a session whose host is gone, because locks must not outlive the host for hours."""

from __future__ import annotations

import asyncio

import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import aconnect, connect
from tests.support.server import PrivateCluster

pytestmark = [pytest.mark.long, pytest.mark.scram]

SHOWN = """SELECT current_setting('tcp_keepalives_idle')::int + current_setting('tcp_keepalives_interval')::int
* current_setting('tcp_keepalives_count')::int, current_setting('tcp_user_timeout')"""


@pytest.fixture
def by_tcp(private_cluster: PrivateCluster) -> str:
    """Return the DSN of a server that is reached by TCP, as most servers are."""
    private_cluster.stop()
    private_cluster.start_on_tcp()
    return private_cluster.dsn


def test_a_session_whose_host_is_gone_ends_within_half_a_minute(by_tcp: str) -> None:
    with connect(by_tcp) as conn:
        assert conn.execute(SHOWN).fetchone() == (25, "15000")

    async def ask() -> object:
        async with await aconnect(by_tcp, timeout_s=0) as conn:
            return await (await conn.execute(SHOWN)).fetchone()

    assert asyncio.run(ask()) == (25, "15000")


def test_keepalive_settings_of_the_dsn_are_used(by_tcp: str) -> None:
    with connect(make_conninfo(by_tcp, options="-c tcp_keepalives_idle=600")) as conn:
        assert conn.execute("SHOW tcp_keepalives_idle").fetchone() == ("600",)
