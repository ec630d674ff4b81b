"""A connection that was lent before a fork stays the parent's, however the child leaves the block."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack

import pytest

from pgsched.db.connection.handler_pool import IdleConnections

ANSWERS, FAILED = "SELECT pg_backend_pid()", 99


def in_child(work: Callable[[], bool]) -> bool:
    """Call `work`, which must not raise, in a forked process, and return its result."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = int(work())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return bool(code)


@pytest.mark.parametrize("left", ["SELECT 1", "BEGIN"])
def test_a_child_neither_keeps_nor_closes_a_lent_connection(dsn: str, left: str) -> None:
    pool = IdleConnections(dsn)
    with ExitStack() as block:
        conn = block.enter_context(pool.lend())
        conn.execute(left.encode())

        def leave() -> bool:
            block.close()
            with pool.lend() as other:
                return other.info.backend_pid == conn.info.backend_pid

        assert not in_child(leave)
        assert conn.execute(ANSWERS).fetchone() == (conn.info.backend_pid,)
        conn.execute("ROLLBACK")
    with pool.lend() as again:
        assert again is conn
    asyncio.run(pool.close())


def test_a_child_does_not_close_the_idle_connections_of_its_parent(dsn: str) -> None:
    pool = IdleConnections(dsn)
    with pool.lend() as conn:
        pass

    def close() -> bool:
        asyncio.run(pool.close())
        return True

    assert in_child(close)
    with pool.lend() as again:
        assert again is conn
    asyncio.run(pool.close())


@pytest.mark.parametrize("left", ["SELECT 1", "BEGIN"])
def test_a_child_neither_keeps_nor_closes_a_connection_of_an_event_loop(dsn: str, left: str) -> None:
    pool = IdleConnections(dsn)

    async def main() -> None:
        async with AsyncExitStack() as block:
            conn = await block.enter_async_context(pool.lend_async())
            await conn.execute(left.encode())
            child = os.fork()
            if child == 0:
                try:
                    await block.aclose()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)  # noqa: ASYNC222 - the child ends at once
            assert await (await conn.execute(ANSWERS)).fetchone() == (conn.info.backend_pid,)
            await conn.execute("ROLLBACK")
        await pool.close()

    asyncio.run(main())
