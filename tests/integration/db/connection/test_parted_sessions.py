"""The server notices by itself that the host of a session is gone: its locks must not outlive it for hours."""

from __future__ import annotations

import asyncio
import shlex
import socket
from collections.abc import Iterator

import pytest

from pgsched.db.connection.connect import aconnect, connect
from tests.support.server import PrivateCluster

SHOWN = """SELECT current_setting('tcp_keepalives_idle')::int + current_setting('tcp_keepalives_interval')::int
* current_setting('tcp_keepalives_count')::int, current_setting('tcp_user_timeout')"""


@pytest.fixture
def by_tcp(private_cluster: PrivateCluster) -> Iterator[str]:
    """The DSN of a server that is reached by TCP, as most are."""
    cluster = private_cluster.cluster
    cluster.stop("immediate")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = f"-h 127.0.0.1 -p {port} -k {shlex.quote(str(cluster.data))}"
    code, said = cluster.run("pg_ctl", "-D", str(cluster.data), "-w", "-l", str(cluster.log), "-o", options, "start")
    assert code == 0, said
    yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


def test_a_session_whose_host_is_gone_ends_within_half_a_minute(by_tcp: str) -> None:
    with connect(by_tcp) as conn:
        assert conn.execute(SHOWN).fetchone() == (25, "15000")

    async def ask() -> object:
        async with await aconnect(by_tcp, timeout_s=0) as conn:
            return await (await conn.execute(SHOWN)).fetchone()

    assert asyncio.run(ask()) == (25, "15000")


def test_who_says_otherwise_in_the_dsn_is_heard(by_tcp: str) -> None:
    with connect(by_tcp + "?options=-c%20tcp_keepalives_idle%3D600") as conn:
        assert conn.execute("SHOW tcp_keepalives_idle").fetchone() == ("600",)
