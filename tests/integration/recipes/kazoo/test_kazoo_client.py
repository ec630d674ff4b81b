"""Kazoo's client and its states: what its documentation says of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pgsched import DatabaseUnreachable, PgschedError
from pgsched.recipes.kazoo import KazooClient, KazooRetry, KazooState, KazooTimeoutError, KeeperState
from pgsched.recipes.kazoo.exceptions import (
    BadArgumentsError,
    ConfigurationError,
    ConnectionClosedError,
    ConnectionLoss,
    RetryFailedError,
)
from tests.support.waiting import wait_until

Outage = Callable[[], AbstractContextManager[None]]
Clients = Callable[..., KazooClient]


def listening(client: KazooClient) -> list[str]:
    """Return the list of states that the client reports from now on."""
    states: list[str] = []
    client.add_listener(states.append)
    return states


def test_a_new_client_is_lost_until_it_is_started(clients: Clients) -> None:
    client = clients(start=False)
    states = listening(client)
    assert client.state == KazooState.LOST and not client.connected
    assert client.client_state == KeeperState.CLOSED and client.client_id is None
    with pytest.raises(ConnectionClosedError):
        client.Lock("/locks/a").acquire()
    client.start()
    assert client.state == KazooState.CONNECTED and client.connected
    assert client.client_state == KeeperState.CONNECTED
    assert states == ["CONNECTED"]


def test_start_does_nothing_where_the_client_is_connected(client: KazooClient) -> None:
    session = client.client_id
    client.start()
    assert client.client_id == session and session is not None


def test_start_can_be_waited_for_elsewhere(clients: Clients) -> None:
    client = clients(start=False)
    assert client.start_async().wait(15)
    assert client.connected


def test_start_fails_when_its_time_is_over(clients: Clients, outage: Outage) -> None:
    client = clients(start=False)
    with outage(), pytest.raises(KazooTimeoutError) as failed:
        client.start(timeout=0.2)
    assert isinstance(failed.value, client.handler.timeout_exception)
    assert client.state == KazooState.LOST
    client.start()


def test_start_says_at_once_what_no_retry_can_help(empty_dsn: str) -> None:
    client = KazooClient(dsn=empty_dsn)
    with pytest.raises(PgschedError, match="migrate"):
        client.start(timeout=60)
    client.close()


def test_stop_ends_the_session(client: KazooClient) -> None:
    states = listening(client)
    client.stop()
    client.stop()
    assert client.state == KazooState.LOST and states == ["LOST"]
    with pytest.raises(ConnectionClosedError):
        client.Lock("/locks/a").acquire()


def test_stop_ends_attempts_to_connect_again(client: KazooClient, outage: Outage) -> None:
    with outage():
        wait_until(lambda: client.state == KazooState.SUSPENDED)
        client.stop()
        assert client.state == KazooState.LOST


def test_restart_opens_a_new_session(client: KazooClient) -> None:
    session = client.client_id
    client.restart()
    assert client.connected and client.client_id != session


def test_a_broken_connection_suspends_and_the_same_session_goes_on(client: KazooClient, outage: Outage) -> None:
    states, session = listening(client), client.client_id
    lock = client.Lock("/locks/a")
    lock.acquire()
    with outage():
        wait_until(lambda: client.state == KazooState.SUSPENDED)
        assert client.client_state == KeeperState.CONNECTING
    wait_until(lambda: client.connected, 20)
    assert states == ["SUSPENDED", "CONNECTED"]
    assert client.client_id == session and lock.is_acquired


@pytest.mark.long
def test_a_session_that_ends_during_an_outage_is_lost_and_followed_by_another(clients: Clients, outage: Outage) -> None:
    client = clients(timeout=1)
    states, session = listening(client), client.client_id
    lock = client.Lock("/locks/a")
    lock.acquire()
    with outage():
        wait_until(lambda: client.state == KazooState.LOST)
        assert not lock.is_acquired
    wait_until(lambda: client.connected, 20)
    assert states == ["SUSPENDED", "LOST", "CONNECTED"]
    assert client.client_id not in (session, None)


def test_a_session_that_the_database_has_ended_is_followed_by_another(
    clients: Clients, expire: Callable[[KazooClient], None]
) -> None:
    client = clients(timeout=1)
    states = listening(client)
    expire(client)
    wait_until(lambda: states == ["SUSPENDED", "LOST", "CONNECTED"], what="the states")


def test_a_listener_that_returns_true_is_removed(client: KazooClient) -> None:
    states: list[str] = []

    @client.add_listener
    def once(state: str) -> bool:
        states.append(state)
        return True

    client.restart()
    assert states == ["LOST"]


def test_a_listener_can_be_removed(client: KazooClient) -> None:
    states: list[str] = []
    client.add_listener(states.append)
    client.remove_listener(states.append)
    client.restart()
    assert states == []


def test_a_listener_that_fails_does_not_stop_the_others(client: KazooClient) -> None:
    client.add_listener(lambda _: 1 / 0)
    states = listening(client)
    client.stop()
    assert states == ["LOST"]


def test_a_listener_can_be_called(client: KazooClient) -> None:
    with pytest.raises(ConfigurationError):
        client.add_listener("no function")


def test_a_listener_starts_a_thread_for_what_takes_long(client: KazooClient) -> None:
    ended = client.handler.event_object()
    client.add_listener(lambda state: client.handler.spawn(ended.set) and None)
    client.stop()
    assert ended.wait(10)


def test_a_call_during_an_outage_fails_and_retry_repeats_it(
    client: KazooClient, outage: Outage, background: Callable[..., Future[Any]]
) -> None:
    lock = client.Lock("/locks/a", "me")
    lock.acquire()
    with outage():
        with pytest.raises(ConnectionLoss) as failed:
            lock.contenders()
        assert isinstance(failed.value, DatabaseUnreachable)
        with pytest.raises(RetryFailedError):
            KazooRetry(max_tries=2, delay=0.01)(lock.contenders)
        waiting = background(client.retry, lock.contenders)
        wait_until(lambda: client.state == KazooState.SUSPENDED)
    assert waiting.result(20) == ["me"]


def test_retry_ends_when_the_client_is_stopped(client: KazooClient, outage: Outage, background: Any) -> None:
    lock = client.Lock("/locks/a")
    with outage():
        waiting = background(client.retry, lock.contenders)
        client.stop()
        with pytest.raises((RetryFailedError, ConnectionClosedError)):
            waiting.result(20)


@pytest.mark.parametrize("options", [{"hosts": "127.0.0.1:2181"}, {"read_only": True}, {"default_acl": []}])
def test_what_the_client_has_not_is_refused_by_name(dsn: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        KazooClient(dsn=dsn, **options)


def test_wrong_arguments_are_refused(dsn: str) -> None:
    with pytest.raises(TypeError, match="colour"):
        KazooClient(dsn=dsn, colour="red")
    with pytest.raises(BadArgumentsError, match="ttl"):
        KazooClient(dsn=dsn, timeout=0.1)
    with pytest.raises(ConfigurationError, match="hosts"):
        KazooClient("127.0.0.1:2181")


def child(client: KazooClient, found: Any) -> None:
    try:
        client.Lock("/locks/a").acquire()
    except ConnectionClosedError:
        found.put((client.state, client.connected))
    client.start()
    found.put(client.Lock("/locks/a").acquire(blocking=False))
    found.put(client.Lock("/locks/b").acquire(blocking=False))
    client.stop()
    os._exit(0)


def test_a_child_process_has_a_client_that_is_not_started(client: KazooClient) -> None:
    lock = client.Lock("/locks/a")
    lock.acquire()
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    process = context.Process(target=child, args=(client, found))
    process.start()
    assert [found.get() for _ in range(3)] == [("LOST", False), False, True]
    process.join(10)
    assert lock.is_acquired and client.connected
