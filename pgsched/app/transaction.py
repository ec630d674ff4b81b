"""The handler's transaction, which commits its writes and the success of its run together.

Invariant: only the owner of the run can commit. The claim is asserted at the beginning. So a former owner fails before
it works, and the claim cannot be taken away while the transaction lasts. The settlement is the last statement. As
everywhere, it is fenced by the token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any
from uuid import UUID

from pgsched.app.control import AttemptState
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.queries.runs import handler_transaction
from pgsched.errors import TaskError


class Transaction:
    """One transaction that settles a run, for `with` or `async with`; `run.transaction()` returns it."""

    def __init__(self, own: AttemptState, run_id: int, token: UUID, conn: Any) -> None:
        self._own = own
        self._run_id = run_id
        self._token = token
        self._conn = conn
        self._sync: AbstractContextManager[Connection[Any]] | None = None
        self._async: AbstractAsyncContextManager[AsyncConnection[Any]] | None = None

    def __enter__(self) -> Connection[Any]:
        self._sync = self._within()
        return self._sync.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(kind, error, where)

    async def __aenter__(self) -> AsyncConnection[Any]:
        self._async = self._within_async()
        return await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, where)

    @contextmanager
    def _within(self) -> Iterator[Connection[Any]]:
        self._own.begin()
        done = False
        try:
            with handler_transaction.handler_connection(self._conn, self._dsn) as conn:
                handler_transaction.assert_claim(conn, self._run_id, self._token)
                self._own.conn = conn
                yield conn
                handler_transaction.settle(conn, self._run_id, self._token, self._own.result)
                # Before the commit, because after it the worker's heartbeat no longer finds the claim.
                self._own.settling(None)
                done = True
        except BaseException:
            done = False
            raise
        finally:
            self._own.conn = None
            self._own.settling(done)

    @asynccontextmanager
    async def _within_async(self) -> AsyncIterator[AsyncConnection[Any]]:
        self._own.begin()
        done = False
        try:
            async with handler_transaction.opened_async(self._conn, self._dsn) as conn:
                await handler_transaction.assert_claim(conn, self._run_id, self._token)
                yield conn
                await handler_transaction.settle_async(conn, self._run_id, self._token, self._own.result)
                self._own.settling(None)
                done = True
        except BaseException:
            done = False
            raise
        finally:
            self._own.settling(done)

    def _dsn(self) -> str:
        if self._own.dsn is None:
            raise TaskError("transaction: this Run belongs to no worker; give it a connection: run.transaction(conn)")
        return self._own.dsn
