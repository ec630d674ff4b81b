"""pgsched connects without settings to a proxy that refuses them at the start (AWS RDS Proxy: psycopg2#1577).

Each proxy refuses them with a text of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.db.connection import pooler, routes
from pgsched.db.connection.connect import aconnect, connect
from pgsched.db.connection.sealed import SEARCH_PATH
from pgsched.errors import DatabaseUnreachable, PgschedError
from tests.support.hostile.short_life import command

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
RDS = "Feature not supported: RDS Proxy currently doesn\u2019t support command-line options."
BOUNCER = "unsupported startup parameter: options"


def start_packet(client: socket.socket) -> tuple[int, bytes]:
    """Return the code and the bytes of a client's start packet, which follows its requests for encryption."""
    while True:
        (size,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
        body = client.recv(size - 4, socket.MSG_WAITALL)
        (code,) = struct.unpack("!I", body[:4])
        if code not in (SSL, GSS):
            return code, struct.pack("!I", size) + body
        client.sendall(b"N")


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def serve(client: socket.socket, server: str | tuple[str, int], words: str, refusing: bytes) -> None:
    """Serve one connection: refuse it if its first packet contains `refusing`, otherwise pass it on."""
    with client, contextlib.suppress(OSError, struct.error):
        code, packet = start_packet(client)
        if code == CANCEL:
            return
        if refusing in packet:
            fields = b"SFATAL\0VFATAL\0C0A000\0M" + words.encode() + b"\0\0"
            client.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)
            return
        with socket.socket(socket.AF_UNIX if isinstance(server, str) else socket.AF_INET) as there:
            there.connect(server)
            there.sendall(packet)
            back = threading.Thread(target=pump, args=(client, there), daemon=True)
            back.start()
            pump(there, client)
            back.join()


@contextmanager
def proxy(dsn: str, words: str, refusing: bytes = b"\0options\0") -> Iterator[str]:
    """Yield the DSN of a proxy in front of a server."""
    given = conninfo_to_dict(dsn)
    host, port = str(given["host"]), int(given.get("port") or 5432)
    server = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=serve, args=(client, server, words, refusing), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield make_conninfo(dsn, host="127.0.0.1", port=listener.getsockname()[1], sslmode="disable")
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "known", {})


@pytest.mark.parametrize("words", [RDS, BOUNCER, "options are not supported here"])
def test_settings_are_set_afterwards_when_a_proxy_refuses_them(dsn: str, words: str) -> None:
    async def ask(through: str) -> tuple[str] | None:
        async with await aconnect(through) as conn:
            return await (await conn.execute("SHOW search_path")).fetchone()

    with proxy(dsn, words) as through:
        with connect(through) as conn:
            assert pooler.pooler_of(conn) is not None
            assert conn.execute("SHOW search_path").fetchone() == (SEARCH_PATH,)
        assert asyncio.run(ask(through)) == (SEARCH_PATH,)
        assert command("status", "--dsn", through).code == 0


def test_a_refusal_that_does_not_depend_on_settings_is_passed_on(dsn: str) -> None:
    with (
        proxy(dsn, "no more options for you", b"user") as through,
        pytest.raises(PgschedError, match="no more options"),
    ):
        connect(through)


def test_a_refusal_for_another_reason_is_not_tried_again(dsn: str) -> None:
    with proxy(dsn, "sorry, too many clients already") as through, pytest.raises(DatabaseUnreachable):
        connect(through)
    assert not routes.pooled(through)
