"""Run the statements of an SQL job in one transaction, on a connection of their own.

Invariant: the run's success is the last statement of that transaction.

The connection is new for each run, because settings, temporary tables and locks of a job stay in its session. Rows are
read one by one, because a forgotten SELECT of a large table must not fill the worker's memory.

A text that ends its transaction fails for good, because each further attempt would commit the same changes again. The
end is detected by the transaction's virtual id, which no other transaction has, however soon it follows. Its start time
would not be enough.

SET ROLE gives the job the rights of its owner. It is set in the session, so it also holds after a COMMIT in the text
(except where a pooler shares the session). It protects from mistakes, not from a malicious owner, because the text can
RESET ROLE. The login is the real protection: with `--sql-login` it has no role of pgsched, and the worker settles the
run after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

# Names and operators are qualified, because the text may have set any search path. The second statement is sent with
# the worker's rights.
TRANSACTION = (
    "SELECT pid, virtualtransaction FROM pg_catalog.pg_locks"
    " WHERE pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() LIMIT 1"
)
SET_FOR_TRANSACTION = (
    b"SELECT pg_catalog.set_config(s.name, s.value, true) FROM ROWS FROM"
    b" (pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[])) AS s(name, value)"
)
BECOME_OWNER = (
    "SELECT pg_catalog.set_config('role', %(owner)s, %(local)s) WHERE current_user OPERATOR(pg_catalog.<>) %(owner)s"
)
# Command tags of statements that commit. ROLLBACK is not here, because ROLLBACK TO a savepoint has the same tag.
COMMITTED = (b"COMMIT", b"PREPARE TRANSACTION")
COPY = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)
UNREACHABLE_S = 2.0
# The run is settled with our own rights, because an owner may have none on our schema. Then the owner's rights are set
# again, for triggers at the commit.
AS_OURSELVES = "SET LOCAL ROLE NONE"


@dataclass(frozen=True, slots=True)
class SqlText:
    """The statements to run, their named parameters, and the role that they run as.

    `owner`: None: the login itself.
    `claim`: a run and its token, settled by the same transaction; None where the database does not know the run.
    `settings`: values of custom settings until the end of the transaction, by their names.
    """

    statements: str
    parameters: dict[str, Any]
    owner: str | None
    claim: tuple[int, UUID] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


class TransactionEnded(Exception):
    """Raised if the statements ended the transaction that settles their run."""

    def __init__(self, error: psycopg.Error | None = None) -> None:
        """Build the error. `error`: a failure after the transaction ended."""
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
        """Run the statements and commit; return how many rows all of them together touched or returned."""
        settings = ELSEWHERE if text.owner is None else THEIRS
        conn = await aconnect(self._dsn, purpose=self._purpose, timeout_s=0, settings=settings, encoding=None)
        self._conn = conn
        try:
            conn.add_notice_handler(lambda notice: self._on_notice(notice.message_primary or ""))
            if not is_shared(conn):  # behind a pooler, the pooler is the server's client
                with contextlib.suppress(psycopg.Error):
                    await conn.execute(LOOK_FOR_CLIENT)
                await become_owner(conn, text.owner, local=False)  # before BEGIN, because a ROLLBACK undoes settings
            await begin_async(conn)
            self._pid, begun = await transaction_identity(conn)
            await become_owner(conn, text.owner)
            await set_for_transaction(conn, text.settings)
            rows = await conn.wait(count_rows(conn.pgconn, merge_parameters(conn, text)))
            within = conn.info.transaction_status is pq.TransactionStatus.INTRANS
            if not within or await transaction_identity(conn) != (self._pid, begun):
                raise TransactionEnded
            if text.claim is not None:  # if the claim is lost, the statements roll back
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
        """Cancel the statement, and end its server process if it has not stopped after `grace_s` seconds."""
        self._stopping = True
        try:
            if self._conn is None:
                work.cancel()
            else:
                with contextlib.suppress(psycopg.Error):
                    await self._conn.cancel_safe(timeout=UNREACHABLE_S)
            await asyncio.wait({work}, timeout=grace_s)
        finally:  # also when a second cancellation ends the grace time early
            if not work.done():
                await self._terminate()
                work.cancel()
                await asyncio.wait({work}, timeout=UNREACHABLE_S)
            with contextlib.suppress(asyncio.CancelledError):
                _ = work.done() and work.exception()

    async def _terminate(self) -> None:
        """End the statement's server process from another connection; ignore failures."""
        if self._conn is None or self._conn.closed or self._pid is None:
            return
        with contextlib.suppress(Exception):
            async with await aconnect(self._dsn, purpose="sql stop", timeout_s=UNREACHABLE_S) as conn:
                await conn.execute("SELECT pg_terminate_backend(%(pid)s)", {"pid": self._pid})


async def transaction_identity(conn: AsyncConnection[Any]) -> tuple[int, str]:
    """Return the server process of the open transaction, and the id that no other transaction has."""
    row = await (await conn.execute(TRANSACTION)).fetchone()
    assert row is not None  # each transaction holds a lock on its own id
    return int(row[0]), str(row[1])


def other_database_dsn(name: str, dsn: str) -> str:
    """Return the connection string of another database, which may be read-only. Raises InputError."""
    try:
        given = parameters(dsn)
    except InputError as error:
        raise InputError(f"sql-dsn: {name}: {str(error).removeprefix('dsn: ')}", "sql-dsn") from None
    return make_conninfo("", **{"target_session_attrs": "any", **given})


async def become_owner(conn: AsyncConnection[Any], owner: str | None, *, local: bool = True) -> None:
    """Take the owner's rights until the end of the transaction (`local`) or of the session."""
    if owner is not None:
        await conn.execute(BECOME_OWNER, {"owner": owner, "local": local})


async def set_for_transaction(conn: AsyncConnection[Any], settings: Mapping[str, str]) -> None:
    """Set custom settings until the end of the transaction."""
    if settings:
        await conn.execute(SET_FOR_TRANSACTION, [[*settings], [*settings.values()]])


def merge_parameters(conn: AsyncConnection[Any], text: SqlText) -> bytes:
    """Return the text with its parameters filled in.

    The client does that, because the server accepts several statements only without parameters.
    """
    if not text.parameters:
        return text.statements.encode(conn.info.encoding)
    values = {name: Jsonb(value) if isinstance(value, (dict, list)) else value
              for name, value in text.parameters.items()}  # fmt: skip
    return AsyncClientCursor(conn).mogrify(text.statements, values).encode(conn.info.encoding)


def count_rows(pgconn: pq.abc.PGconn, statements: bytes) -> PQGen[int]:
    """Send the statements, discard each row as it comes, and count the rows.

    Raises the first error, or TransactionEnded.
    """
    pgconn.send_query(statements)
    pgconn.set_single_row_mode()
    yield from generators.send(pgconn)
    rows, error, committed = 0, None, False
    while (result := (yield from generators.fetch(pgconn))) is not None:
        if result.status in COPY:
            raise errors.FeatureNotSupported("COPY FROM STDIN and COPY TO STDOUT have no client in a job")
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
