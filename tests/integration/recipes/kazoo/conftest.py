"""Fixtures: clients under Kazoo's names, calls in other threads, and a database that does not answer for a while.

The tests of this folder have one test for each sentence of Kazoo's documentation that applies, in our own words.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgsched.recipes.kazoo import KazooClient
from tests.support.sessions import shut
from tests.support.waiting import wait_until

Clients = Callable[..., KazooClient]
Background = Callable[..., Future[Any]]
Outage = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def clients(dsn: str) -> Iterator[Clients]:
    """Return a function that makes a client and starts it; `start=False`: not yet."""
    with contextlib.ExitStack() as opened:

        def make(*, start: bool = True, **options: Any) -> KazooClient:
            client = KazooClient(dsn=dsn, **options)
            opened.callback(client.close)
            if start:
                client.start()
            return client

        yield make


@pytest.fixture
def client(clients: Clients) -> KazooClient:
    """A client whose session is renewed every second."""
    return clients(timeout=3)


@pytest.fixture
def other(clients: Clients) -> KazooClient:
    """A second client, which stands for another process."""
    return clients(timeout=3)


@pytest.fixture
def background() -> Background:
    """Return a function that makes a call in a thread of its own, and returns the future of its result."""

    def begin(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    return begin


@pytest.fixture
def outage(dsn: str, maintenance: psycopg.Connection[Any]) -> Outage:
    """Return a context manager: in its block the database takes no connections, and has none."""
    return partial(shut, maintenance, str(conninfo_to_dict(dsn)["dbname"]))


@pytest.fixture
def expire(connect: Callable[..., psycopg.Connection[Any]]) -> Callable[[KazooClient], None]:
    """Return a function that ends a client's session in the database, and waits until the client has another one."""

    def end(client: KazooClient) -> None:
        session = client.client_id
        assert session is not None
        connect().execute("UPDATE pgsched.sessions SET ended_at = now() WHERE id = %s", [session[0]])
        wait_until(lambda: client.client_id not in (session, None), what="a new session")

    return end
