"""The rule: an SQL job's statements run in one transaction on a connection of their own, row by row, and the run's
success is its last statement.

A fresh connection, because a session keeps what a job leaves in it (settings, temporary tables, locks). Row by row,
because a forgotten SELECT of a large table must not fill the worker's memory.

A text that ends that transaction is a failure for good: what it committed by itself would be there once for each
attempt. It is told by the transaction's virtual id, which no other has, however soon it follows: not by its time.

SET ROLE gives the job its owner's rights and mistakes, in the session, so that what follows a COMMIT of the text's own
has them too (but not where a pooler shares the session); it is no wall against an owner who means harm, because the
text can RESET ROLE. The wall is the login: with `--sql-login` it has no role of pgsched, and the worker settles the run
after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection, errors, generators, pq
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result
from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import LOOK_FOR_CLIENT, aconnect
from pgsched.db.connection.dsn import parameters
from pgsched.db.connection.sealed import ELSEWHERE, THEIRS
from pgsched.db.connection.transaction_pooling import begin_async, is_shared
from pgsched.db.queries.runs import handler_transaction
from pgsched.errors import InputError

# Qualified, operators too: the text may have set any search path, and the second is sent with the worker's rights.
TRANSACTION = (
    "SELECT pid, virtualtransaction FROM pg_catalog.pg_locks"
    " WHERE pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() LIMIT 1"
)
BECOME_OWNER = (
    "SELECT pg_catalog.set_config('role', %(owner)s, %(local)s) WHERE current_user OPERATOR(pg_catalog.<>) %(owner)s"
)
# What a statement says that has committed. ROLLBACK is what ROLLBACK TO a savepoint says, too.
COMMITTED = (b"COMMIT", b"PREPARE TRANSACTION")
COPY = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)
UNREACHABLE_S = 2.0
# The settlement as ourselves, because an owner may have no right on our schema; then as the owner again, for triggers
# at the commit.
AS_OURSELVES = "SET LOCAL ROLE NONE"


@dataclass(frozen=True, slots=True)
class SqlText:
    """What to run: the statements, their named parameters, and the role that they run as.

    `claim`, a run and its token, is settled by the same transaction; None where the database does not know it.
    """

    statements: str
    parameters: dict[str, Any]
    owner: str | None
    claim: tuple[int, UUID] | None = None


class TransactionEnded(Exception):
    """The statements ended the transaction that settles their run."""

    def __init__(self, error: psycopg.Error | None = None) -> None:
        """`error`: what went wrong after that."""
        super().__init__(
            "the statements ended the transaction of their run, so that its success cannot be recorded together with "
            "what they wrote, which may be there in part: leave out COMMIT, ROLLBACK and the like (savepoints are "
            "allowed), or let a program run them" + (f"; after that: {error}" if error else "")
        )


class SqlJob:
    """One run of some statements, which can be stopped."""

    def __init__(self, dsn: str, purpose: str, on_notice: Callable[[str], None]) -> None:
        self._dsn = dsn
        self._purpose = purpose
        self._on_notice = on_notice
        self._conn: AsyncConnection[Any] | None = None
        self._pid: int | None = None
        self._stopping = False

    async def run(self, text: SqlText) -> int:
        """Run and commit; returns how many rows all statements together touched or returned."""
        settings = ELSEWHERE if text.owner is None else THEIRS
        conn = await aconnect(self._dsn, purpose=self._purpose, timeout_s=0, settings=settings, encoding=None)
        self._conn = conn
        try:
            conn.add_notice_handler(lambda notice: self._on_notice(notice.message_primary or ""))
            if not is_shared(conn):  # there the pooler is the server's client
                with contextlib.suppress(psycopg.Error):
                    await conn.execute(LOOK_FOR_CLIENT)
                await become_owner(conn, text.owner, local=False)  # before it begins: a ROLLBACK takes back what is set
            await begin_async(conn)
            self._pid, begun = await transaction(conn)
            await become_owner(conn, text.owner)
            rows = await conn.wait(drain(conn.pgconn, merged(conn, text)))
            within = conn.info.transaction_status is pq.TransactionStatus.INTRANS
            if not within or await transaction(conn) != (self._pid, begun):
                raise TransactionEnded
            if text.claim is not None:  # a zombie's statements roll back
                await conn.execute(AS_OURSELVES)
                await handler_transaction.settle_async(conn, *text.claim, {"rowcount": rows})
                await become_owner(conn, text.owner)
            if self._stopping:
                raise errors.QueryCanceled("cancelled before its commit")
            await conn.execute("COMMIT")
            return rows
        finally:
            await conn.close()

    async def stop(self, work: asyncio.Task[int], grace_s: float) -> None:
        """Cancel the statement, and end its server process if it has not stopped after `grace_s`."""
        self._stopping = True
        try:
            if self._conn is None:
                work.cancel()
            else:
                with contextlib.suppress(psycopg.Error):
                    await self._conn.cancel_safe(timeout=UNREACHABLE_S)
            await asyncio.wait({work}, timeout=grace_s)
        finally:  # also when a second cancellation cuts the grace time short
            if not work.done():
                await self._terminate()
                work.cancel()
                await asyncio.wait({work}, timeout=UNREACHABLE_S)
            with contextlib.suppress(asyncio.CancelledError):
                _ = work.done() and work.exception()

    async def _terminate(self) -> None:
        if self._conn is None or self._conn.closed or self._pid is None:
            return
        with contextlib.suppress(Exception):
            async with await aconnect(self._dsn, purpose="sql stop", timeout_s=UNREACHABLE_S) as conn:
                await conn.execute("SELECT pg_terminate_backend(%(pid)s)", {"pid": self._pid})


async def transaction(conn: AsyncConnection[Any]) -> tuple[int, str]:
    """The process of the server that runs the open transaction, and what tells that from every other of the process."""
    row = await (await conn.execute(TRANSACTION)).fetchone()
    assert row is not None  # each transaction holds a lock on itself
    return int(row[0]), str(row[1])


def elsewhere(name: str, dsn: str) -> str:
    """The connection string of another database: one that takes no writes will do. Raises InputError without it."""
    try:
        given = parameters(dsn)
    except InputError as error:
        raise InputError(f"sql-dsn: {name}: {str(error).removeprefix('dsn: ')}", "sql-dsn") from None
    return make_conninfo("", **{"target_session_attrs": "any", **given})


async def become_owner(conn: AsyncConnection[Any], owner: str | None, *, local: bool = True) -> None:
    """Have the owner's rights until the end of the transaction, or of the session."""
    if owner is not None:
        await conn.execute(BECOME_OWNER, {"owner": owner, "local": local})


def merged(conn: AsyncConnection[Any], text: SqlText) -> bytes:
    """The text with its parameters put in on this side: the server takes several statements only without any."""
    if not text.parameters:
        return text.statements.encode(conn.info.encoding)
    values = {name: Jsonb(value) if isinstance(value, (dict, list)) else value
              for name, value in text.parameters.items()}  # fmt: skip
    return AsyncClientCursor(conn).mogrify(text.statements, values).encode(conn.info.encoding)


def drain(pgconn: pq.abc.PGconn, statements: bytes) -> PQGen[int]:
    """Send the statements, let every row go as it comes, count them. Raises the first error, or TransactionEnded."""
    pgconn.send_query(statements)
    pgconn.set_single_row_mode()
    yield from generators.send(pgconn)
    rows, error, committed = 0, None, False
    while (result := (yield from generators.fetch(pgconn))) is not None:
        if result.status in COPY:
            raise errors.FeatureNotSupported("COPY FROM STDIN and COPY TO STDOUT have nobody to talk to in a job")
        if result.status == pq.ExecStatus.FATAL_ERROR:
            error = error_from_result(result)
        elif result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            rows += result.command_tuples or 0
            committed = committed or result.command_status in COMMITTED
    if committed:
        raise TransactionEnded(error)
    if error is not None:
        raise error
    return rows
