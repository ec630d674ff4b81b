"""The server notices by itself that the host of a session is gone: its locks must not outlive it for hours."""

from __future__ import annotations

import asyncio

import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import aconnect, connect
from tests.support.server import PrivateCluster

pytestmark = pytest.mark.scram

SHOWN = """SELECT current_setting('tcp_keepalives_idle')::int + current_setting('tcp_keepalives_interval')::int
* current_setting('tcp_keepalives_count')::int, current_setting('tcp_user_timeout')"""


@pytest.fixture
def by_tcp(private_cluster: PrivateCluster) -> str:
    """The DSN of a server that is reached by TCP, as most are."""
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


def test_who_says_otherwise_in_the_dsn_is_heard(by_tcp: str) -> None:
    with connect(make_conninfo(by_tcp, options="-c tcp_keepalives_idle=600")) as conn:
        assert conn.execute("SHOW tcp_keepalives_idle").fetchone() == ("600",)
