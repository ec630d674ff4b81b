"""Kazoo's watches of nodes, DataWatch and ChildrenWatch: what its documentation says of them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from pgsched.recipes.kazoo import KazooClient, KazooException, WatchedEvent
from tests.support.waiting import wait_until

Outage = Callable[[], AbstractContextManager[None]]
Expire = Callable[[KazooClient], None]


class Calls:
    """A function that a watch calls: `next()` waits for the values of the next call."""

    def __init__(self, answer: Any = None) -> None:
        self._calls: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.answer = answer

    def one(self, value: Any) -> Any:
        self._calls.put((value,))
        return self.answer

    def two(self, first: Any, second: Any) -> Any:
        self._calls.put((first, second))
        return self.answer

    def three(self, first: Any, second: Any, third: Any) -> Any:
        self._calls.put((first, second, third))
        return self.answer

    def next(self) -> tuple[Any, ...]:
        return self._calls.get(timeout=10)

    def is_empty(self) -> bool:
        return self._calls.empty()


def kind_of(calls: Calls) -> tuple[str, str]:
    (event,) = calls.next()
    assert isinstance(event, WatchedEvent) and event.state == "CONNECTED"
    return event.type, event.path


# ---- watches that are called once


@pytest.mark.parametrize(
    ("change", "kind"), [(lambda one: one.set("/app", b"x"), "CHANGED"), (lambda one: one.delete("/app"), "DELETED")]
)
@pytest.mark.parametrize("reads", ["get", "exists"])
def test_a_watch_of_a_node_is_called_when_it_is_set_or_deleted(
    client: KazooClient, other: KazooClient, reads: str, change: Callable[[KazooClient], Any], kind: str
) -> None:
    client.create("/app")
    calls = Calls()
    getattr(client, reads)("/app", watch=calls.one)
    other.create("/apple")
    other.create("/app/child")
    other.delete("/app/child")
    change(other)
    assert kind_of(calls) == (kind, "/app")


def test_a_watch_is_called_once(client: KazooClient) -> None:
    client.create("/app")
    calls, later = Calls(), Calls()
    client.get("/app", watch=calls.one)
    client.set("/app", b"x")
    assert kind_of(calls) == ("CHANGED", "/app")
    client.get("/app", watch=later.one)
    client.set("/app", b"y")
    assert kind_of(later) == ("CHANGED", "/app")
    assert calls.is_empty()


def test_a_watch_of_no_node_is_called_when_it_is_made(client: KazooClient, other: KazooClient) -> None:
    calls, deep = Calls(), Calls()
    assert client.exists("/app", watch=calls.one) is None
    assert client.exists("/app/a/b", watch=deep.one) is None
    other.create("/app/a/b", makepath=True)
    assert kind_of(calls) == ("CREATED", "/app")
    assert kind_of(deep) == ("CREATED", "/app/a/b")


def test_a_watch_of_children_is_called_when_one_is_made_or_deleted(client: KazooClient, other: KazooClient) -> None:
    client.create("/app/a", makepath=True)
    calls = Calls()
    client.get_children("/app", watch=calls.one)
    other.set("/app/a", b"x")  # the data of a child are another matter
    other.create("/app/a/deep")
    other.set("/app", b"x")
    other.create("/app/b")
    assert kind_of(calls) == ("CHILD", "/app")
    client.get_children("/app", watch=calls.one)
    other.delete("/app/a/deep")
    other.delete("/app/a")
    assert kind_of(calls) == ("CHILD", "/app")
    assert calls.is_empty() and client.get_children("/app") == ["b"]


def test_a_watch_of_children_is_called_when_the_node_is_deleted(client: KazooClient) -> None:
    client.create("/app")
    calls = Calls()
    client.get_children("/app", watch=calls.one)
    client.delete("/app")
    assert kind_of(calls) == ("DELETED", "/app")


def test_a_watch_is_called_when_an_ephemeral_node_goes_with_its_session(
    client: KazooClient, other: KazooClient
) -> None:
    other.create("/app/mine", makepath=True, ephemeral=True)
    node, children = Calls(), Calls()
    client.exists("/app/mine", watch=node.one)
    client.get_children("/app", watch=children.one)
    other.stop()
    assert kind_of(node) == ("DELETED", "/app/mine")
    assert kind_of(children) == ("CHILD", "/app")


def test_a_watch_survives_an_outage_and_the_loss_of_the_session(
    client: KazooClient, other: KazooClient, outage: Outage, expire: Expire
) -> None:
    client.create("/app")
    calls = Calls()
    client.get("/app", watch=calls.one)
    with outage():
        wait_until(lambda: client.state == "SUSPENDED")
    wait_until(lambda: client.connected, 20)
    expire(client)
    other.set("/app", b"x")
    assert kind_of(calls) == ("CHANGED", "/app")


@pytest.mark.long
def test_a_watch_is_called_for_changes_that_were_skipped(client: KazooClient, db: psycopg.Connection[Any]) -> None:
    client.create("/app/a", makepath=True)
    node, children, none = Calls(), Calls(), Calls()
    client.get("/app/a", watch=node.one)
    client.get_children("/app", watch=children.one)
    client.exists("/app/none", watch=none.one)
    db.execute("SELECT pgsched.kv_put('app/a', '1'); SELECT pgsched.kv_put('app/b', '1')")
    db.execute("SELECT pgsched.kv_put('app/c', to_jsonb(n)) FROM generate_series(1, 3000) AS n")
    assert kind_of(node) == ("CHANGED", "/app/a")
    assert kind_of(children) == ("CHILD", "/app")
    assert none.is_empty()


def test_a_watch_sees_what_changed_just_after_the_read(client: KazooClient, other: KazooClient) -> None:
    client.create("/app")
    for number in range(30):
        calls = Calls()
        client.get("/app", watch=calls.one)
        other.set("/app", str(number).encode())
        assert kind_of(calls) == ("CHANGED", "/app")


def test_an_error_of_a_watch_function_does_not_stop_the_others(client: KazooClient) -> None:
    client.create("/app")
    calls = Calls()
    client.get("/app", watch=lambda _: 1 / 0)
    client.get("/app", watch=calls.one)
    client.set("/app", b"x")
    assert kind_of(calls) == ("CHANGED", "/app")


# ---- DataWatch


def test_a_data_watch_is_called_now_and_after_each_change(client: KazooClient, other: KazooClient) -> None:
    client.create("/app", b"first")
    calls = Calls()
    client.DataWatch("/app", calls.two)
    assert calls.next()[0] == b"first"
    for data in (b"second", b"third"):
        other.set("/app", data)
        found, stat = calls.next()
        assert found == data and stat.data_length == len(data)


def test_a_data_watch_is_a_decorator(client: KazooClient) -> None:
    client.create("/app", b"first")
    calls = Calls()

    @client.DataWatch("/app")
    def watch_node(data: bytes, stat: Any) -> None:
        calls.two(data, stat.version)

    assert calls.next() == (b"first", 0)
    client.set("/app", b"second")
    assert calls.next() == (b"second", 1)


def test_a_data_watch_gets_none_while_there_is_no_node(client: KazooClient) -> None:
    calls = Calls()
    client.DataWatch("/app", calls.two)
    assert calls.next() == (None, None)
    client.create("/app", b"x")
    assert calls.next()[0] == b"x"
    client.delete("/app")
    assert calls.next() == (None, None)
    client.create("/app", b"x")
    assert calls.next()[0] == b"x"


def test_a_data_watch_gets_the_event_as_third_argument(client: KazooClient) -> None:
    client.create("/app")
    calls = Calls()
    client.DataWatch("/app", calls.three)
    assert calls.next()[2] is None, "there was no event at the first call"
    client.set("/app", b"x")
    event = calls.next()[2]
    assert (event.type, event.path) == ("CHANGED", "/app")


@pytest.mark.parametrize("kind", ["DataWatch", "ChildrenWatch"])
def test_a_function_that_returns_false_is_called_no_more(client: KazooClient, kind: str) -> None:
    client.create("/app")
    ended, control = Calls(answer=False), Calls()
    getattr(client, kind)("/app", ended.two if kind == "DataWatch" else ended.one)
    ended.next()
    getattr(client, kind)("/app", control.two if kind == "DataWatch" else control.one)
    control.next()
    client.set("/app", b"x")
    client.create("/app/child")
    control.next()
    assert ended.is_empty()


@pytest.mark.parametrize("kind", ["DataWatch", "ChildrenWatch"])
def test_an_object_watches_for_one_function(client: KazooClient, kind: str) -> None:
    client.create("/app")
    watch = getattr(client, kind)("/app")
    watch(lambda *_: None)
    with pytest.raises(KazooException):
        watch(lambda *_: None)


@pytest.mark.long
def test_a_data_watch_survives_a_new_session_and_a_restart(
    client: KazooClient, other: KazooClient, expire: Expire
) -> None:
    client.create("/app", b"first")
    calls = Calls()
    client.DataWatch("/app", calls.two)
    calls.next()
    expire(client)
    other.set("/app", b"second")
    assert calls.next()[0] == b"second"
    client.restart()
    other.set("/app", b"third")
    assert calls.next()[0] == b"third"


def test_watches_get_nothing_from_a_client_that_was_stopped(client: KazooClient, other: KazooClient) -> None:
    client.create("/app")
    calls, control = Calls(), Calls()
    client.DataWatch("/app", calls.two)
    calls.next()
    client.stop()
    other.DataWatch("/app", control.two)
    control.next()
    other.set("/app", b"x")
    control.next()
    assert calls.is_empty()


# ---- ChildrenWatch


def test_a_children_watch_is_called_now_and_after_each_change(client: KazooClient, other: KazooClient) -> None:
    client.create("/app/a", makepath=True)
    calls = Calls()

    @client.ChildrenWatch("/app")
    def watch_children(children: list[str]) -> None:
        calls.one(sorted(children))

    assert calls.next() == (["a"],)
    other.create("/app/b")
    assert calls.next() == (["a", "b"],)
    other.set("/app/a", b"x")
    other.delete("/app/a")
    assert calls.next() == (["b"],)


def test_a_children_watch_needs_a_node(client: KazooClient) -> None:
    calls, control = Calls(), Calls()
    client.ChildrenWatch("/app", calls.one)
    client.create("/app")
    client.ChildrenWatch("/app", control.one)
    control.next()
    client.create("/app/a")
    control.next()
    assert calls.is_empty()


def test_a_children_watch_gets_the_event_if_it_wants_it(client: KazooClient) -> None:
    client.create("/app")
    calls = Calls()
    client.ChildrenWatch("/app", calls.two, send_event=True)
    assert calls.next() == ([], None)
    client.create("/app/a")
    children, event = calls.next()
    assert (children, event.type, event.path) == (["a"], "CHILD", "/app")


@pytest.mark.long
def test_a_children_watch_ends_with_the_session_if_it_is_to(
    client: KazooClient, other: KazooClient, expire: Expire
) -> None:
    client.create("/app")
    ends, goes_on = Calls(), Calls()
    client.ChildrenWatch("/app", ends.one, allow_session_lost=False)
    client.ChildrenWatch("/app", goes_on.one)
    assert ends.next() == goes_on.next() == ([],)
    expire(client)
    other.create("/app/a")
    assert goes_on.next() == (["a"],)
    assert ends.is_empty()
