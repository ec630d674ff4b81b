"""A statement that nobody answers ends with the connection, within a bound that this process keeps by itself.

The server's own statement_timeout reaches nobody through a network, a pooler or a server process that has stopped dead
while its kernel goes on acknowledging packets: TCP finds nothing wrong with that, and would wait for ever.
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
MARGIN_S = 5.0  # a server that is alive gives up first, and says so
GREEDY_S = 0.002
START_S = 10.0  # until it is said how long: for what is asked right after the start


class Unanswered(psycopg.OperationalError):
    """There was no answer. Whether the statement was executed is unknown."""


def let_go(error: E) -> E:
    """The same error, without the connection that an attempt in vain has opened. psycopg keeps that in a circle with
    the error: the socket, and a session that the server may have begun, would live until Python looks for circles."""
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)
    return error


def bound_s(timeout_s: float) -> float | None:
    """Seconds to wait for the answer to a statement that the server ends after `timeout_s`; None (for 0): any time."""
    return timeout_s + MARGIN_S if timeout_s > 0 else None


def bounded(gen: Generator[Any, Any, T], within_s: float) -> Generator[Any, Any, T]:
    """What psycopg waits with, until nothing has come for so long. Raises Unanswered."""
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
    """What psycopg waits with, but that all that has come is read at once, for up to GREEDY_S. libpq takes 16 KB at a
    time, and each way around the event loop for more may lead past handlers that work for milliseconds."""
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
    """A blocking connection that is closed when an answer stays out for `answer_within_s`."""

    answer_within_s: float | None = START_S
    acting_for: str | None = None  # the person for whom it changes things, as the audit has it (db/rows.py)

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        if self.answer_within_s is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(bounded(gen, self.answer_within_s), *args, **options)
        except Unanswered:
            self.pgconn.finish()
            raise
        except KeyboardInterrupt:  # in `bounded` itself it leaves nothing to wait with for the cancelled statement
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


class AsyncPatientConnection(psycopg.AsyncConnection[Any]):
    """The asyncio form of `PatientConnection`. For up to `hold_s` it holds the event loop: an answer that comes at once
    is then read without a detour through the loop, which is worth it where nothing else is being done. What has come is
    read for up to GREEDY_S in any case."""

    answer_within_s: float | None = START_S
    hold_s = 0.0

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        if self.answer_within_s is not None:
            gen = bounded(gen, self.answer_within_s)
        try:
            if self.hold_s > 0:
                found = waiting.wait(held(gen, self.hold_s), self.pgconn.socket, interval=self.hold_s)
                if not isinstance(found, Rest):
                    return found
                gen = found.gen
            gen = drained(gen, self.pgconn.socket)
            return await super().wait(gen, *args, **options)
        except Unanswered:
            self.pgconn.finish()
            raise


def expect(conn: psycopg.Connection[Any], within_s: float) -> None:
    """Wait so many seconds for the answer to a statement from now on, if that can be done."""
    if isinstance(conn, PatientConnection):
        conn.answer_within_s = within_s


def hold(conn: psycopg.AsyncConnection[Any], seconds: float) -> None:
    """Hold the event loop for up to so long at each wait from now on, if that can be done."""
    if isinstance(conn, AsyncPatientConnection):
        conn.hold_s = seconds


@dataclass(frozen=True, slots=True)
class Rest(Generic[T]):
    """What remains to wait with."""

    gen: Generator[Any, Any, T]


def held(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T | Rest[T]]:
    """Wait with `gen`: its value, or the rest of it when nothing has come for the interval, or not all in time."""
    until = time.monotonic() + seconds
    try:
        waits_for = next(gen)
        while ready := (yield waits_for):
            waits_for = gen.send(ready)
            if time.monotonic() > until:
                break
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return Rest(resumed(gen, waits_for))


def resumed(gen: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """The rest of `gen`, which waits for this."""
    try:
        while True:
            waits_for = gen.send((yield waits_for))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
