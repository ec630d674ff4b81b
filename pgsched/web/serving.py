"""Listening. The rule: it says where it listens only once it does, and who connects is never taken from a header."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from pgsched import gc_tuning
from pgsched.errors import InputError
from pgsched.web.app import make
from pgsched.web.settings import Settings


def serve(settings: Settings, dsn: str, told: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM."""
    listening = listen(settings.host, settings.port)
    name, port = listening.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    config = uvicorn.Config(
        make(replace(settings, dsn=dsn)),
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,  # event streams do not end by themselves
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=500,
        ws="none",
    )
    gc_tuning.last()
    with listening:
        told(f"http://{shown}:{port}/")
        uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """The socket. Raises InputError where there can be none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise InputError(f"host: cannot listen on {host}:{port}: {error.strerror or error}", "host") from None
    return listening
