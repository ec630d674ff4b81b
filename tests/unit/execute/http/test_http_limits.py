"""HTTP jobs: time limits, cancellation, and what is kept between requests."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pgsched.core.model import Outcome, Result
from pgsched.execute.http.executor import HttpExecutor
from tests.support.executing import cancel_when, claim, execute, holds
from tests.support.http.answering import Server, answer, never, serving
from tests.support.http.asking_http import HERE, http
from tests.support.waiting import wait_until

# ---- time


def drip(start: bytes) -> Callable[[socket.socket], None]:
    """Return an answer that sends `start`, and then single bytes without end.

    The bytes come often enough to pass a limit on silence.
    """

    def say(link: socket.socket) -> None:
        link.sendall(start)
        while True:
            link.sendall(b"x")
            time.sleep(0.05)

    return say


@pytest.mark.parametrize(
    "say", [never, drip(b"HTTP/1.1 200 OK\r\nX-Slow: "), drip(b"HTTP/1.1 200 OK\r\n\r\n")],
    ids=["silence", "slow head", "slow body"],
)  # fmt: skip
def test_a_response_that_takes_too_long_is_a_failure_that_is_retried(server: Server, say: Any) -> None:
    server.answers["/"] = say
    outcome = http(server.url(), {"connect_timeout_s": 0.3, "read_timeout_s": 0.3})
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error in ("HTTP: nothing heard for 0.3 s", "HTTP: no whole answer within 0.6 s")
    wait_until(lambda: server.left, what="the connection to be closed")


def test_a_name_server_that_hangs_ends_in_the_connect_timeout(server: Server) -> None:
    def hang(host: str, port: int) -> list[str]:
        time.sleep(600)
        return []

    begun = time.monotonic()
    outcome = execute(HttpExecutor([], 1, hang), claim("http", "http://slow.example/", {"connect_timeout_s": 0.2}))
    assert outcome.retry and outcome.error is not None
    assert outcome.error.endswith("no connection to slow.example port 80 within 0.2 s")
    assert time.monotonic() - begun < 20, "the thread in the name server held up the end of the loop"


@pytest.mark.parametrize("say", [never, drip(b"HTTP/1.1 200 OK\r\n\r\n")], ids=["before the head", "in the body"])
def test_cancelling_aborts_the_request_at_once(server: Server, say: Any) -> None:
    server.answers["/"] = say
    executor = HttpExecutor(HERE, 1)
    stopped = cancel_when(executor, claim("http", server.url(), kill_after_s=3600), lambda: server.seen)
    assert isinstance(stopped, asyncio.CancelledError)
    wait_until(lambda: server.left, what="the connection to be closed")


def test_cancelled_requests_free_their_connections(server: Server) -> None:
    server.answers["/never"] = never

    async def main() -> Outcome:
        executor = HttpExecutor(HERE, 2)
        for round_ in range(1, 21):
            tasks = [asyncio.create_task(executor.execute(claim("http", server.url("/never")))) for _ in range(2)]
            await holds(lambda n=round_: len(server.seen) == 2 * n)  # type: ignore[misc]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        last = await executor.execute(claim("http", server.url(), {"read_timeout_s": 5}))
        await executor.close()
        return last

    assert asyncio.run(main()).result is Result.SUCCEEDED


def test_as_many_requests_run_at_once_as_the_concurrency_allows(server: Server) -> None:
    together = threading.Barrier(20)

    def say(link: socket.socket) -> None:
        together.wait(10)
        link.sendall(answer())

    async def main() -> list[Outcome]:
        server.answers["/"] = say
        executor = HttpExecutor(HERE, 20)
        found = await asyncio.gather(*(executor.execute(claim("http", server.url())) for _ in range(20)))
        await executor.close()
        return found

    assert {outcome.result for outcome in asyncio.run(main())} == {Result.SUCCEEDED}


def test_connections_are_kept_between_runs_and_cookies_are_not(server: Server) -> None:
    server.answers["/"] = answer(set_cookie="session=secret; Path=/")

    async def main() -> None:
        executor = HttpExecutor(HERE, 2)
        for number in range(3):
            await executor.execute(claim("http", server.url(), id=number))
        await executor.close()

    asyncio.run(main())
    assert len(server.seen) == 3 and server.connections == 1
    assert all("cookie" not in seen.headers for seen in server.seen)


def test_proxy_variables_of_the_environment_are_ignored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert http(server.url()).result is Result.SUCCEEDED
        assert proxy.connections == 0
