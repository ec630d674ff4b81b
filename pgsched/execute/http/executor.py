"""The rule: an HTTP job is one request, bounded in time and in what is kept, and sent only where the worker may.

`task` is the URL and `args` says the rest (request.py). Every attempt of a run carries the same Idempotency-Key.
An answer within the time-outs becomes an outcome (response.py); no answer is a failure that is retried. Cancelled
means aborted: the connection is closed at once, and `kill_after` has no meaning here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pgsched.app.signals import one_line
from pgsched.core.model import Claim, Outcome
from pgsched.errors import InputError
from pgsched.execute.http import redirect
from pgsched.execute.http.allowlist import AllowList, Forbidden, Resolve, resolved
from pgsched.execute.http.request import Ask, read
from pgsched.execute.http.response import outcome
from pgsched.execute.outcomes import refused


class HttpExecutor:
    """Sends the requests of one worker, through one client."""

    abandoned = 0

    def __init__(self, allow: Iterable[str], concurrency: int, resolve: Resolve = resolved) -> None:
        """Raises InputError for a wrong entry in `allow`, and when httpx is not installed."""
        permitted = AllowList.read(allow)
        try:
            from pgsched.execute.http import client
        except ImportError as error:
            raise InputError(
                "allow: http needs the package httpx: pip install 'pgsched[http]', or leave http out", "allow"
            ) from error
        self._http = client
        self._client = client.Client(permitted, resolve, concurrency)

    async def execute(self, claim: Claim) -> Outcome:
        try:
            ask = read(claim)
        except InputError as error:
            return refused(str(error))
        limit_s = ask.connect_timeout_s + ask.read_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._exchange(ask)
        except TimeoutError:
            return refused(f"HTTP: no whole answer within {limit_s:g} s", retry=True)
        except Forbidden as error:
            return refused(f"HTTP: {error}")
        except self._http.InvalidURL as error:
            return refused(f"task: {error}")
        except self._http.SlowAnswer:
            return refused(f"HTTP: nothing heard for {ask.read_timeout_s:g} s", retry=True)
        except Exception as error:
            return refused(f"HTTP: {one_line(error)}", retry=True)

    async def close(self) -> None:
        await self._client.close()

    async def _exchange(self, ask: Ask) -> Outcome:
        """Ask, and ask again where the answer redirects to."""
        for _ in range(redirect.MOST + 1):
            async with self._client.answer(ask) as response:
                location = self._http.headers(response).get("location")
                follow = ask.follow_redirects and response.status in redirect.STATUSES
                expected = ask.expects(response.status)
                if location is None or not follow or expected:
                    answer = await self._http.received(response)
                    return outcome(answer, expected=expected)
            ask = redirect.redirected(ask, response.status, location)
        return refused(f"HTTP: more than {redirect.MOST} redirects")
