"""A call that was cancelled leaves nothing behind, also if its statement is at work and ends later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from pgsched import App
from tests.support.recipes.bound_keys import Db, number
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection[Any]]
WAITS = (
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    " AND application_name LIKE 'pgsched enqueue %%'"
)
GIVEN_BACK = (
    "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
    " AND application_name LIKE 'pgsched leases %%' AND query LIKE '%%kv_delete%%'"
)
DONE = (
    "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
    " AND application_name LIKE 'pgsched %%'"
)
CALLS: dict[str, Callable[[App], Awaitable[Any]]] = {
    "party": lambda app: app.party("n/x").join_async(),
    "double barrier": lambda app: app.double_barrier("n/x", 2).enter_async(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_cancelled_call_leaves_nothing_behind(app: App, db: Db, connect: Open, name: str) -> None:
    app.kv.put("n", 1)
    holder = connect(autocommit=False)

    async def main() -> None:
        await CALLS[name](app) if name == "party" else None
        holder.execute("SELECT FROM pgsched.store_roots FOR UPDATE")
        call = asyncio.ensure_future(CALLS[name](app))
        await asyncio.to_thread(wait_until, lambda: number(db, WAITS), 10, "the call to wait for the row")
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await asyncio.to_thread(wait_until, lambda: number(db, GIVEN_BACK), 10, "the keeper's thread to find no key")
        await asyncio.to_thread(holder.rollback)

    asyncio.run(main())
    left = 1 if name == "party" else 0
    wait_until(lambda: number(db, DONE), 10, "the cancelled call to end")
    keys = "SELECT count(*) FROM pgsched.store WHERE session IS NOT NULL"
    wait_until(lambda: number(db, keys) == left, 10, "its key to be deleted")
