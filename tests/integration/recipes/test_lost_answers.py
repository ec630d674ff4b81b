"""A call that got no answer says what it may have done; one that only reads, or was never sent, says nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from pgsched import App
from pgsched.chaos.site.proxy import Proxy
from pgsched.errors import CHANGED, RUN_MADE, DatabaseUnreachable

TRIES = 3
# for each call: the statement whose answer is lost, how often it is sent, and what the error says
CALLS: dict[str, tuple[Callable[[App], Any], str, int, str]] = {
    "enqueue": (lambda app: app.enqueue("t"), "INSERT INTO pgsched.runs", 1, RUN_MADE),
    "cancel": (lambda app: app.run(1).cancel(), "pgsched.cancel", 1, CHANGED),
    "put": (lambda app: app.kv.put("a", 1), "kv_put", 1, "the key may have been written or deleted"),
    "bind": (lambda app: app.party("p").join(), "kv_put", TRIES, "the key may have been written or deleted"),
    "add": (lambda app: app.counter("a").add(), "kv_add", 1, "the amount may have been added"),
    "put an item": (lambda app: app.item_queue("q").put(1), "item_put", 1, "the item may have been put"),
    "get an item": (
        lambda app: app.item_queue("q").get(1), "item_get", TRIES, "items may have been got: they are given back",
    ),
    "acquire": (
        lambda app: app.lock("a").acquire(), "lock_acquire", TRIES, "the lock may have been taken: it is given back",
    ),
    "read": (lambda app: app.kv.get("a"), "kv_get", 1, ""),
    "list": (lambda app: app.lock("a").line(), "lock_line", 1, ""),
}  # fmt: skip


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


@pytest.fixture
def far(proxy: Proxy) -> Iterator[App]:
    """An App that reaches the database through the proxy."""
    app = App("far", dsn=proxy.dsn)
    yield app
    app.close()


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_an_answer_says_what_it_may_have_done(far: App, proxy: Proxy, name: str) -> None:
    call, statement, times, maybe = CALLS[name]
    far.lock("warm").acquire()  # with the session that the others use
    loss = proxy.lose_answer(statement, times=times)
    with pytest.raises(DatabaseUnreachable) as raised:
        call(far)
    assert loss.done == times
    text = str(raised.value)
    assert text.endswith(maybe) if maybe else "may have" not in text


def test_a_call_that_was_sent_once_says_so_although_the_last_try_was_not(far: App, proxy: Proxy) -> None:
    far.lock("warm").acquire()
    proxy.lose_answer("lock_acquire")
    proxy.refuse()  # new connections
    with pytest.raises(DatabaseUnreachable, match="the lock may have been taken"):
        far.lock("a").acquire()
    proxy.heal()


def test_where_there_is_no_connection_nothing_was_done(far: App, proxy: Proxy) -> None:
    proxy.refuse()
    for call in (lambda: far.enqueue("t"), lambda: far.kv.put("a", 1)):
        with pytest.raises(DatabaseUnreachable) as raised:
            call()
        assert "may have" not in str(raised.value)
    proxy.heal()


def test_asyncio_programs_are_told_the_same(far: App, proxy: Proxy) -> None:
    async def ask(call: Callable[[], Awaitable[Any]]) -> str:
        with pytest.raises(DatabaseUnreachable) as raised:
            await call()
        return str(raised.value)

    async def main() -> None:
        proxy.lose_answer("kv_put")
        assert (await ask(lambda: far.kv.put_async("a", 1))).endswith("written or deleted")
        proxy.lose_answer("INSERT INTO pgsched.runs")
        assert (await ask(lambda: far.enqueue_async("t"))).endswith(RUN_MADE)
        await far.close_async()

    asyncio.run(main())
