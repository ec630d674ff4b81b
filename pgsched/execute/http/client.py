"""The HTTP client: opens every connection of the HTTP executor, to permitted addresses only.

Invariant: nothing gets around the check of addresses, because the check is made where the connection is opened. No
spelling of a host, no redirect and no second answer of a name server can avoid it.

The name stays in the Host header and in TLS, where certificates are always verified. This is the only module that
imports httpx, which is an optional package. A worker imports this module only when it allows the kind `http`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping

import httpcore
import httpx

from pgsched.execute.http.allowlist import AllowList, Resolve, filter_permitted
from pgsched.execute.http.request import Ask
from pgsched.execute.http.response import BODY_BYTES, Answer
from pgsched.threads import Threads

InvalidURL = httpx.InvalidURL
SlowAnswer = (httpcore.ReadTimeout, httpcore.WriteTimeout, httpcore.PoolTimeout)
IDLE_S = 5.0
POOL_SIZE = 8
NO_LIMIT_S = 600.0
AGENT = {"User-Agent": "pgsched", "Accept": "*/*", "Accept-Encoding": "identity"}


class Backend(httpcore.AsyncNetworkBackend):
    """A network back end for httpcore that connects to permitted addresses only."""

    def __init__(self, allow: AllowList, resolve: Resolve, size: int) -> None:
        self._allow = allow
        self._resolve = resolve
        # Not the event loop's own threads: a thread that waits for a name server would delay the worker's exit.
        self._threads: Threads[list[str] | Exception] = Threads(size)
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first permitted address that answers.

        Raises Forbidden, httpcore.ConnectError or httpcore.ConnectTimeout.
        """
        limit_s = NO_LIMIT_S if timeout is None else timeout
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect(host, port, time.monotonic() + limit_s)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection to {host} port {port} within {limit_s:g} s") from error

    async def _connect(self, host: str, port: int, until: float) -> httpcore.AsyncNetworkStream:
        addresses = filter_permitted(host, port, await self._addresses(host, port), self._allow)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            # Each address gets an equal share of the time that is left, so that a silent one leaves some for the next.
            share_s = max(0.001, (until - time.monotonic()) / left)
            try:
                return await self._sockets.connect_tcp(address, port, share_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                if left == 1:
                    raise httpcore.ConnectError(f"cannot connect to {address} port {port}: {_reason(error)}") from error
        raise AssertionError("filter_permitted returns at least one address")

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, as httpcore's interface requires."""
        await self._sockets.sleep(seconds)

    def close(self) -> None:
        """End the idle threads that resolve names."""
        self._threads.close()

    async def _addresses(self, host: str, port: int) -> list[str]:
        def call() -> list[str] | Exception:
            try:
                return self._resolve(host, port)
            except Exception as error:  # OSError, or a UnicodeError for a label that is too long
                return error

        result = await self._threads.submit(call)
        if isinstance(result, Exception):
            reason = getattr(result, "strerror", None) or result
            raise httpcore.ConnectError(f"cannot resolve {host}: {reason}") from result
        return result


def _reason(error: BaseException) -> str:
    if isinstance(error, httpcore.ConnectTimeout):
        return "no answer in time"
    deepest = error
    while (below := deepest.__cause__ or deepest.__context__) is not None:
        deepest = below
    number = getattr(deepest, "errno", None)
    return os.strerror(number).lower() if number else str(deepest)


class Client:
    """The connections of one worker, at most `size`, kept open for the next request.

    Proxies, cookies and .netrc are not used. httpx's own client would take them from the environment or from another
    run's answer.
    """

    def __init__(self, allow: AllowList, resolve: Resolve, size: int) -> None:
        self._backend = Backend(allow, resolve, size)
        trusted = httpx.create_ssl_context()
        # Several small pools: httpcore's work for one request grows with the square of the pool's connections.
        self._pools = [
            httpcore.AsyncConnectionPool(
                ssl_context=trusted,
                max_connections=min(size, POOL_SIZE),
                keepalive_expiry=IDLE_S,
                network_backend=self._backend,
            )
            for _ in range(-(-size // POOL_SIZE))
        ]
        self._busy = [0] * len(self._pools)

    @contextlib.asynccontextmanager
    async def answer(self, ask: Ask) -> AsyncIterator[httpcore.Response]:
        """Send a request and yield the answer's head; the body is still to be read. Closes the answer at the end.

        Raises Forbidden, httpx.InvalidURL, and the errors of httpcore.
        """
        chosen = self._busy.index(min(self._busy))
        self._busy[chosen] += 1
        try:
            response = await self._send(self._pools[chosen], ask)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            self._busy[chosen] -= 1

    async def _send(self, pool: httpcore.AsyncConnectionPool, ask: Ask) -> httpcore.Response:
        sent = {name: value for name, value in AGENT.items() if name.lower() not in ask.job_headers} | ask.headers
        request = httpx.Request(ask.method, ask.url, headers=sent, content=ask.content)
        url = request.url
        limits = {"connect": ask.connect_timeout_s} | dict.fromkeys(("read", "write", "pool"), ask.read_timeout_s)
        return await pool.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=ask.content,
                extensions={"timeout": limits},
            )
        )

    async def close(self) -> None:
        """Close all connections and end the idle threads."""
        self._backend.close()
        for pool in self._pools:
            await pool.aclose()


async def read_answer(response: httpcore.Response) -> Answer:
    """Read the answer with the first BODY_BYTES of its body; do not read the rest."""
    body, cut = bytearray(), False
    async with contextlib.aclosing(response.aiter_stream()) as parts:  # type: ignore[type-var]
        async for part in parts:
            body += part
            if cut := len(body) > BODY_BYTES:
                break
    return Answer(response.status, headers(response), bytes(body[:BODY_BYTES]), cut)


def headers(response: httpcore.Response) -> Mapping[str, str]:
    """Return the answer's headers, with names in any case."""
    return httpx.Headers(response.headers)
