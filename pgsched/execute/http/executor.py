"""The executor of kind `http`: each attempt is one request, limited in time and in the size of the stored answer.

Invariant: a request goes only where the worker may send one (allowlist.py).

`task` is the URL, and `args` describes the rest (request.py). Every attempt of a run has the same Idempotency-Key. An
answer within the time-outs becomes an outcome (response.py). No answer is a failure that is retried. A cancelled
attempt closes its connection at once, so `kill_after` has no effect here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pgsched.app.signals import format_error
from pgsched.core.model import Claim, Outcome
from pgsched.errors import InputError
from pgsched.execute.http import redirect
from pgsched.execute.http.allowlist import AllowList, Forbidden, Resolve, resolve_host
from pgsched.execute.http.request import Ask, read_request
from pgsched.execute.http.response import outcome_of_answer
from pgsched.execute.outcomes import refusal_outcome
from pgsched.execute.slot_tokens import fill_slot, is_unknown_zone


class HttpExecutor:
    """The executor of HTTP requests of one worker, with one client."""

    abandoned = 0

    def __init__(self, allow: Iterable[str], concurrency: int, resolve: Resolve = resolve_host) -> None:
        """Make the client. Raises InputError for a wrong entry in `allow`, and where httpx is not installed."""
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
        """Send the request of one claim and return its outcome."""
        try:
            ask = read_request(fill_slot(claim))
        except InputError as error:
            return refusal_outcome(str(error), retry=is_unknown_zone(error))
        limit_s = ask.connect_timeout_s + ask.read_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._exchange(ask)
        except TimeoutError:
            return refusal_outcome(f"HTTP: no whole answer within {limit_s:g} s", retry=True)
        except Forbidden as error:
            return refusal_outcome(f"HTTP: {error}")
        except self._http.InvalidURL as error:
            return refusal_outcome(f"task: {error}")
        except self._http.SlowAnswer:
            return refusal_outcome(f"HTTP: nothing heard for {ask.read_timeout_s:g} s", retry=True)
        except Exception as error:
            return refusal_outcome(f"HTTP: {format_error(error)}", retry=True)

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def _exchange(self, ask: Ask) -> Outcome:
        """Send the request, follow redirects where the job wants it, and return the outcome."""
        for _ in range(redirect.MOST_REDIRECTS + 1):
            async with self._client.answer(ask) as response:
                location = self._http.headers(response).get("location")
                follow = ask.follow_redirects and response.status in redirect.STATUSES
                expected = ask.expects(response.status)
                if location is None or not follow or expected:
                    answer = await self._http.read_answer(response)
                    return outcome_of_answer(answer, expected=expected)
            ask = redirect.follow_redirect(ask, response.status, location)
        return refusal_outcome(f"HTTP: more than {redirect.MOST_REDIRECTS} redirects")
