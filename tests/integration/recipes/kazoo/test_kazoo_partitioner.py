"""Kazoo's SetPartitioner: what its documentation says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.recipes.kazoo import KazooClient, PartitionState, SetPartitioner
from tests.support.waiting import wait_until

QUEUES = ("queue-1", "queue-2", "queue-3")
SOON: dict[str, Any] = {"time_boundary": 0.1, "max_reaction_time": 0.1}


def acquired(partitioner: SetPartitioner) -> list[str]:
    """Return the part of a member, once it has one."""
    partitioner.wait_for_acquire(20)
    assert partitioner.acquired, partitioner.state
    return list(partitioner)


def release(*partitioners: SetPartitioner) -> None:
    """Do what Kazoo's documentation tells all programs to do: release the set when the party has changed."""
    for one in partitioners:
        wait_until(lambda one=one: one.release, what="the state RELEASE")  # type: ignore[misc]
        one.release_set()


def test_a_single_member_gets_the_whole_set(client: KazooClient) -> None:
    partitioner = client.SetPartitioner("/work", set=QUEUES, **SOON)
    assert partitioner.allocating and list(partitioner) == []
    assert acquired(partitioner) == list(QUEUES)


def test_each_item_goes_to_one_member(client: KazooClient, other: KazooClient) -> None:
    first = client.SetPartitioner("/work", set=QUEUES, identifier="a", **SOON)
    second = other.SetPartitioner("/work", set=QUEUES, identifier="b", **SOON)
    if first.release or acquired(first) == list(QUEUES):
        release(first)
    assert acquired(first) == ["queue-1", "queue-3"]
    assert acquired(second) == ["queue-2"]


@pytest.mark.long
def test_a_member_may_get_nothing(client: KazooClient, other: KazooClient) -> None:
    parts = [one.SetPartitioner("/work", set=("only",), identifier=name, time_boundary=1, max_reaction_time=0.1)
             for one, name in ((client, "a"), (other, "b"))]  # fmt: skip
    assert [acquired(part) for part in parts] == [["only"], []]


def test_the_set_is_divided_again_when_a_member_comes_or_goes(client: KazooClient, other: KazooClient) -> None:
    first = client.SetPartitioner("/work", set=QUEUES, identifier="a", **SOON)
    assert acquired(first) == list(QUEUES)
    second = other.SetPartitioner("/work", set=QUEUES, identifier="b", **SOON)
    wait_until(lambda: first.release)
    assert list(first) == list(QUEUES), "it has its part until it releases it"
    assert not second.acquired
    first.release_set()
    assert list(first) == []
    assert (acquired(first), acquired(second)) == (["queue-1", "queue-3"], ["queue-2"])
    second.finish()
    assert second.failed and list(second) == []
    release(first)
    assert acquired(first) == list(QUEUES)


def test_the_party_must_not_change_for_a_while_before_the_set_is_divided(client: KazooClient) -> None:
    partitioner = client.SetPartitioner("/work", set=QUEUES, time_boundary=60)
    partitioner.wait_for_acquire(timeout=0.1)
    assert partitioner.allocating


def test_a_function_of_the_caller_divides_the_set(client: KazooClient) -> None:
    def last(identifier: str, members: list[str], items: Any) -> list[str]:
        assert (identifier, members) == ("me", ["me"])
        return [items[-1]]

    partitioner = client.SetPartitioner("/work", set=QUEUES, partition_func=last, identifier="me", **SOON)
    assert acquired(partitioner) == ["queue-3"]


def test_the_set_is_divided_no_more_where_the_function_fails(client: KazooClient) -> None:
    partitioner = client.SetPartitioner("/work", set=QUEUES, partition_func=lambda *_: [1 / 0], **SOON)
    wait_until(lambda: partitioner.failed)


@pytest.mark.long
def test_a_member_fails_with_its_session_and_stays_failed(
    client: KazooClient, expire: Callable[[KazooClient], None]
) -> None:
    partitioner = client.SetPartitioner("/work", set=QUEUES, **SOON)
    acquired(partitioner)
    expire(client)
    assert partitioner.failed and partitioner.state == PartitionState.FAILURE
    partitioner.release_set()
    assert partitioner.failed
    wait_until(lambda: list(partitioner) == [])
    assert acquired(client.SetPartitioner("/work", set=QUEUES, **SOON)) == list(QUEUES)


def test_a_member_fails_with_its_client_before_it_has_a_part(client: KazooClient) -> None:
    partitioner = client.SetPartitioner("/work", set=QUEUES, time_boundary=60)
    client.stop()
    assert partitioner.failed


def test_an_event_is_set_at_each_change_of_the_state(client: KazooClient) -> None:
    changed = threading.Event()
    partitioner = client.SetPartitioner("/work", set=QUEUES, state_change_event=changed, **SOON)
    assert changed.wait(20) and partitioner.acquired
    changed.clear()
    partitioner.finish()
    assert changed.wait(20) and partitioner.failed


@pytest.mark.long
def test_who_lost_the_lock_of_an_item_fails(client: KazooClient, db: psycopg.Connection[Any]) -> None:
    partitioner = client.SetPartitioner("/work", set=QUEUES, **SOON)
    acquired(partitioner)
    db.execute("SELECT pgsched.lock_break('work/locks/queue-2')")
    wait_until(lambda: partitioner.failed, 20)


@pytest.mark.parametrize("change", ["release_set", "finish"])
def test_an_item_is_free_when_its_member_has_released_it(client: KazooClient, other: KazooClient, change: str) -> None:
    partitioner = client.SetPartitioner("/work", set=("only",), time_boundary=0.1)
    acquired(partitioner)
    lock = other.Lock("/work/locks/only")
    assert lock.acquire(blocking=False) is False
    getattr(partitioner, change)()
    assert lock.acquire(timeout=10)
