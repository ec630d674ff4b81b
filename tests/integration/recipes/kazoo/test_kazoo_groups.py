"""Kazoo's Barrier, DoubleBarrier, Counter, Party and ShallowParty: what its documentation says of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pgsched.recipes.kazoo import KazooClient
from pgsched.recipes.kazoo.exceptions import (
    BadArgumentsError,
    ConnectionClosedError,
    SessionExpiredError,
    UnimplementedError,
)
from tests.support.waiting import wait_until

Background = Callable[..., Future[Any]]
Outage = Callable[[], AbstractContextManager[None]]
Expire = Callable[[KazooClient], None]

# ---- barriers


def test_a_barrier_stops_those_who_wait_until_it_is_removed(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    barrier = client.Barrier("/barriers/a")
    barrier.create()
    waiting = background(other.Barrier("/barriers/a").wait)
    assert other.Barrier("/barriers/a").wait(timeout=0.05) is False
    assert not waiting.done()
    assert barrier.remove() is True
    assert waiting.result(10) is True


def test_a_barrier_that_is_not_set_stops_nobody(client: KazooClient) -> None:
    assert client.Barrier("/barriers/a").wait() is True


def test_create_does_nothing_where_the_barrier_is_set(client: KazooClient, other: KazooClient) -> None:
    client.Barrier("/barriers/a").create()
    other.Barrier("/barriers/a").create()
    assert client.Barrier("/barriers/a").remove() is True
    assert client.Barrier("/barriers/a").wait(0) is True


def test_remove_returns_whether_the_barrier_was_set(client: KazooClient) -> None:
    assert client.Barrier("/barriers/a").remove() is False


def test_a_barrier_is_set_while_its_node_exists(client: KazooClient) -> None:
    barrier = client.Barrier("/barriers/a")
    client.create("/barriers/a", makepath=True)
    assert barrier.wait(0) is False
    client.delete("/barriers/a")
    assert barrier.wait(0) is True
    barrier.create()
    assert client.exists("/barriers/a")


def test_who_waits_at_a_barrier_waits_on_over_an_outage(
    client: KazooClient, other: KazooClient, background: Background, outage: Outage
) -> None:
    client.Barrier("/barriers/a").create()
    waiting = background(other.Barrier("/barriers/a").wait)
    with outage():
        wait_until(lambda: client.state == "SUSPENDED")
        assert not waiting.done()
    client.Barrier("/barriers/a").remove()
    assert waiting.result(20) is True


# ---- double barriers


def test_members_of_a_double_barrier_begin_and_end_together(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    first, second = client.DoubleBarrier("/double", 2), other.DoubleBarrier("/double", 2)
    entering = background(first.enter)
    wait_until(lambda: client.exists("/double/barrier"))
    assert not entering.done() and not first.participating
    second.enter()
    entering.result(10)
    assert first.participating and second.participating
    leaving = background(first.leave)
    wait_until(lambda: client.get("/double/barrier")[1].children_count == 1)
    assert not leaving.done()
    second.leave()
    leaving.result(10)
    assert not first.participating and not second.participating


def test_a_member_of_a_double_barrier_has_an_identifier(client: KazooClient) -> None:
    for identifier, data in (("me", b"me"), (None, None)):
        barrier = client.DoubleBarrier("/double", 1, identifier)
        barrier.enter()
        [name] = client.get_children("/double/barrier")
        found = client.get(f"/double/barrier/{name}")[0]
        assert found == data or (data is None and found is not None and b"-" in found)  # the host and the process
        barrier.leave()


@pytest.mark.long
def test_a_member_is_not_in_the_double_barrier_without_its_session(client: KazooClient, expire: Expire) -> None:
    barrier = client.DoubleBarrier("/double", 1)
    barrier.enter()
    expire(client)
    assert not barrier.participating
    with pytest.raises(SessionExpiredError):
        barrier.leave()
    barrier.enter()
    assert barrier.participating, "it may enter again with the new session"


def test_a_double_barrier_survives_an_outage(
    client: KazooClient, other: KazooClient, background: Background, outage: Outage
) -> None:
    first, second = client.DoubleBarrier("/double", 2), other.DoubleBarrier("/double", 2)
    entering = background(first.enter)
    wait_until(lambda: client.exists("/double/barrier"))
    with outage():
        wait_until(lambda: client.state == "SUSPENDED")
    wait_until(lambda: other.connected and client.connected, 20)
    second.enter()
    entering.result(20)
    assert first.participating


def test_a_double_barrier_says_why_it_was_not_entered(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    entering = background(client.DoubleBarrier("/double", 2).enter)
    wait_until(lambda: other.exists("/double/barrier"))
    barrier = other.DoubleBarrier("/double", 3)
    with pytest.raises(BadArgumentsError, match="size"):
        barrier.enter()
    assert not barrier.participating
    client.stop()
    with pytest.raises(ConnectionClosedError):
        entering.result(10)


def test_leave_does_nothing_outside(client: KazooClient) -> None:
    client.DoubleBarrier("/double", 2).leave()


# ---- counters


def test_a_counter_adds_and_subtracts(client: KazooClient) -> None:
    counter = client.Counter("/counters/int")
    assert (counter.value, counter.pre_value, counter.post_value) == (0, None, None)
    counter += 2
    counter -= 1
    assert (counter.value, counter.pre_value, counter.post_value) == (1, 2, 1)
    assert isinstance(counter.value, int) and isinstance(counter.pre_value, int)


def test_a_counter_of_floats_begins_with_its_default(client: KazooClient) -> None:
    counter = client.Counter("/counters/float", default=1.0)
    assert counter.value == 1.0
    counter += 2.0
    assert (counter.value, counter.pre_value, counter.post_value) == (3.0, 1.0, 3.0)
    assert isinstance(counter.value, float) and isinstance(counter.post_value, float)


def test_a_counter_has_one_type(client: KazooClient) -> None:
    counter = client.Counter("/counters/int")
    with pytest.raises(TypeError):
        counter += 2.5
    with pytest.raises(TypeError):
        client.Counter("/counters/text", default="a")  # type: ignore[arg-type]


def test_no_change_of_a_counter_is_lost(client: KazooClient, other: KazooClient, background: Background) -> None:
    def count(one: KazooClient) -> list[float | None]:
        counter = one.Counter("/counters/int", default=100)
        return [(counter + 1).post_value for _ in range(10)]

    seen = [value for one in [background(count, one) for one in (client, other)] for value in one.result(20)]
    assert sorted(seen) == list(range(101, 121))
    assert client.Counter("/counters/int").value == 120


def test_a_counter_is_a_node(client: KazooClient) -> None:
    counter = client.Counter("/counters/int")
    counter += 5
    assert client.get("/counters/int")[0] == b"5"
    client.set("/counters/int", b"40")
    counter += 2
    assert counter.value == 42
    client.create("/counters/empty")
    assert client.Counter("/counters/empty", default=3).value == 3
    client.create("/counters/text", b"2.5")
    half = client.Counter("/counters/text", default=0.0)
    half += 0.5
    assert (half.value, half.pre_value) == (3.0, 2.5)
    client.set("/counters/text", b"many")
    with pytest.raises(ValueError, match="many"):
        half -= 1.0


def test_counters_of_curator_are_refused(client: KazooClient) -> None:
    with pytest.raises(UnimplementedError, match="support_curator"):
        client.Counter("/counters/int", support_curator=True)


# ---- parties


@pytest.mark.parametrize("kind", ["Party", "ShallowParty"])
def test_a_party_has_those_who_have_joined(client: KazooClient, other: KazooClient, kind: str) -> None:
    first, second = getattr(client, kind)("/party", "first"), getattr(other, kind)("/party", "second")
    assert list(first) == [] and len(first) == 0 and not first.participating
    first.join()
    first.join()
    second.join()
    assert sorted(first) == ["first", "second"] and len(second) == 2 and first.participating
    assert first.leave() is True
    assert list(first) == ["second"] and not first.participating
    assert first.leave() is False


def test_a_member_without_an_identifier_is_blank(client: KazooClient, other: KazooClient) -> None:
    client.Party("/party").join()
    other.Party("/party", 7).join()
    assert sorted(client.Party("/party")) == ["", "7"]


@pytest.mark.long
def test_a_member_leaves_with_its_session(client: KazooClient, other: KazooClient, expire: Expire) -> None:
    party = client.Party("/party", "first")
    party.join()
    other.Party("/party", "second").join()
    expire(client)
    wait_until(lambda: list(party) == ["second"])
    assert not party.participating and party.leave() is False
    party.join()
    assert sorted(party) == ["first", "second"]
    other.stop()
    assert list(party) == ["first"]


def test_a_member_stays_over_an_outage(client: KazooClient, outage: Outage) -> None:
    party = client.Party("/party", "first")
    party.join()
    with outage():
        wait_until(lambda: client.state == "SUSPENDED")
        assert party.participating
    assert list(party) == ["first"]
