"""Connections that close themselves when a statement gets no answer within a given time.

The server's own statement_timeout has no effect where a network, a pooler or a server process has stopped, while its
kernel still acknowledges packets. TCP sees no fault then, and would wait for ever. So this process limits the wait
itself.
"""

from __future__ import annotations

import select
import time
import traceback
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import waiting
from psycopg.pq import TransactionStatus
from psycopg.waiting import READY_R, WAIT_R

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
MARGIN_S = 5.0  # a live server ends the statement first, and reports that
GREEDY_S = 0.002
START_S = 10.0  # the limit right after the start, until the caller sets its own


class Unanswered(psycopg.OperationalError):
    """No answer came. Whether the statement was executed is unknown."""


def drop_references(error: E) -> E:
    """Return the same error without its references to the connection of a failed attempt.

    psycopg's frames keep the connection in a reference cycle with the error. The socket, and perhaps a session in the
    server, would stay open until the next garbage collection.
    """
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)
    return error


def answer_limit_s(timeout_s: float) -> float | None:
    """Return how many seconds to wait for an answer if the server ends the statement after `timeout_s`.

    None (for 0): no limit.
    """
    return timeout_s + MARGIN_S if timeout_s > 0 else None


def bounded(gen: Generator[Any, Any, T], within_s: float) -> Generator[Any, Any, T]:
    """Run psycopg's wait generator until nothing has arrived for `within_s` seconds. Raises Unanswered."""
    deadline = time.monotonic() + within_s
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            if ready:
                deadline = time.monotonic() + within_s
            elif time.monotonic() > deadline:
                gen.close()
                raise Unanswered(f"no answer for {within_s:g} s")
            waits_for = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def drained(gen: Generator[Any, Any, T], socket: int) -> Generator[Any, Any, T]:
    """Run psycopg's wait generator, and read everything that has arrived at once, for up to GREEDY_S.

    libpq reads 16 KB at a time. Each return to the event loop for more may have to wait for handlers that work for
    milliseconds.
    """
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            until = time.monotonic() + GREEDY_S
            waits_for = gen.send(ready)
            while ready == READY_R and waits_for == WAIT_R and poll.poll(0) and time.monotonic() < until:
                waits_for = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class PatientConnection(psycopg.Connection[Any]):
    """A blocking connection that is closed when no answer comes for `answer_within_s` seconds."""

    answer_within_s: float | None = START_S
    acting_for: str | None = None  # the person named in the audit for changes on this connection (db/rows.py)

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Wait for the generator's result. Raises Unanswered, and closes the connection then."""
        if self.answer_within_s is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(bounded(gen, self.answer_within_s), *args, **options)
        except Unanswered:
            self.pgconn.finish()
            raise
        except KeyboardInterrupt:  # inside `bounded` it ends the generator that waits for the cancelled statement
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


class AsyncPatientConnection(psycopg.AsyncConnection[Any]):
    """The asyncio form of `PatientConnection`.

    For up to `hold_s` seconds a wait blocks the event loop, so that an immediate answer is read without a detour
    through the loop. That is faster where the loop has no other work. What has arrived is always read for up to
    GREEDY_S.
    """

    answer_within_s: float | None = START_S
    hold_s = 0.0

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Wait for the generator's result. Raises Unanswered, and closes the connection then."""
        if self.answer_within_s is not None:
            gen = bounded(gen, self.answer_within_s)
        try:
            if self.hold_s > 0:
                found = waiting.wait(hold_wait(gen, self.hold_s), self.pgconn.socket, interval=self.hold_s)
                if not isinstance(found, UnfinishedWait):
                    return found
                gen = found.gen
            gen = drained(gen, self.pgconn.socket)
            return await super().wait(gen, *args, **options)
        except Unanswered:
            self.pgconn.finish()
            raise


def expect(conn: psycopg.Connection[Any], within_s: float) -> None:
    """Limit the wait for each answer to `within_s` seconds from now on, if the connection can do that."""
    if isinstance(conn, PatientConnection):
        conn.answer_within_s = within_s


def hold(conn: psycopg.AsyncConnection[Any], seconds: float) -> None:
    """Block the event loop for up to `seconds` at each wait from now on, if the connection can do that."""
    if isinstance(conn, AsyncPatientConnection):
        conn.hold_s = seconds


@dataclass(frozen=True, slots=True)
class UnfinishedWait(Generic[T]):
    """A wait generator that has not finished."""

    gen: Generator[Any, Any, T]


def hold_wait(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T | UnfinishedWait[T]]:
    """Run the wait generator; return its value, or a `UnfinishedWait` when it must go on in the event loop.

    A `UnfinishedWait` is returned when nothing has arrived for one interval, or when `seconds` are over.
    """
    until = time.monotonic() + seconds
    try:
        waits_for = next(gen)
        while ready := (yield waits_for):
            waits_for = gen.send(ready)
            if time.monotonic() > until:
                break
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return UnfinishedWait(resume_wait(gen, waits_for))


def resume_wait(gen: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Return a generator that continues `gen`, which waits for `waits_for`."""
    try:
        while True:
            waits_for = gen.send((yield waits_for))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
