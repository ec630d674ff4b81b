"""Pings: tell the ping_url of a job that a run starts, has succeeded or is dead, as Healthchecks takes it.

The protocol is that of https://healthchecks.io/docs/http_api/: POST to the URL itself is a success, `/start` and
`/fail` behind its path are the others; `rid` names the run, and the body is kept with the event.

Invariant: a ping goes only where an HTTP run of this worker might go (execute/http), and delays neither a claim nor a
settlement. What cannot be sent within a few seconds is dropped, and the log says so, without the URL: it is a secret.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid5

from pgsched import log
from pgsched.app.signals import format_error
from pgsched.core.model import Claim, Outcome
from pgsched.execute.http.allowlist import AllowList, Forbidden, Resolve, resolve_host
from pgsched.execute.http.request import Ask, url_problem

if TYPE_CHECKING:
    from pgsched.execute.http.client import Client

logger = log.get("pings")
RUNS = UUID("0e0e4a1e-2f0f-4bc5-8a62-6a2d5c7a3b10")  # the namespace of the ids of runs
LANES = 4  # requests at a time; the pings of one job follow each other
MOST_WAITING = 1000
ANSWER_S = 5.0  # of one request
PAUSES_S = (1.0, 4.0)  # before the second and the third try
CLOSE_S = 2.0
BODY_BYTES = 10_000
STATES = {"succeeded": "", "dead": "/fail"}


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping. `url`: with the event in its path. `lane`: pings with the same lane follow each other."""

    url: str
    body: bytes
    run_id: int
    lane: int


class Pings:
    """The listener that sends the pings of one worker's jobs, in a thread with an event loop of its own.

    `allow`: the entries of --http-allow.
    """

    def __init__(self, allow: Iterable[str], resolve: Resolve = resolve_host) -> None:
        """Raise InputError for a wrong entry in `allow`."""
        self._allow = AllowList.read(allow)
        self._resolve = resolve
        self._lock = threading.Lock()
        self._waiting = 0
        self._idle = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lanes: list[asyncio.Queue[Ping]] = []
        self._dropped = 0
        self._told_at = 0.0

    def wants(self, claim: Claim) -> bool:
        """Check whether the run's job has a ping_url."""
        return isinstance(claim.options, dict) and isinstance(claim.options.get("ping_url"), str)

    def begun(self, claim: Claim) -> None:
        """Send that an attempt begins."""
        self.put(ping_of(claim, "/start", b""))

    def ended(self, claim: Claim, outcome: Outcome, state: str) -> None:
        """Send that a run has succeeded or is dead. Of others nothing is sent: they go on, or a person ended them."""
        if (event := STATES.get(state)) is not None:
            self.put(ping_of(claim, event, body_of(claim, outcome, state)))

    def put(self, ping: Ping | None) -> None:
        """Send a ping soon; drop it where too many wait. Returns at once."""
        if ping is None:
            return
        with self._lock:
            if self._waiting >= MOST_WAITING:
                self._dropped += 1
                full = time.monotonic() - self._told_at > 60.0
                self._told_at = time.monotonic() if full else self._told_at
                dropped = self._dropped
            else:
                full = False
                self._waiting += 1
                self._idle.clear()
                self._start().call_soon_threadsafe(self._lanes[ping.lane % LANES].put_nowait, ping)
        if full:
            logger.warning("pings are dropped: too many wait", waiting=MOST_WAITING, dropped=dropped)

    def close(self) -> None:
        """Wait until all is sent, for at most CLOSE_S, and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        if not self._idle.wait(CLOSE_S):
            logger.warning("pings are dropped: the worker ends", waiting=self._waiting)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> asyncio.AbstractEventLoop:
        """Return the thread's event loop; start the thread at the first call."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._lanes = [asyncio.Queue() for _ in range(LANES)]
            threading.Thread(target=self._serve, args=(self._loop,), name="pgsched-pings", daemon=True).start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        client = make_client(self._allow, self._resolve)
        lanes = [loop.create_task(self._serve_lane(client, lane)) for lane in self._lanes]
        try:
            loop.run_forever()
        finally:
            for lane in lanes:
                lane.cancel()
            loop.run_until_complete(asyncio.gather(*lanes, return_exceptions=True))
            if client is not None:
                loop.run_until_complete(client.close())
            loop.close()

    async def _serve_lane(self, client: Client | None, lane: asyncio.Queue[Ping]) -> None:
        while True:
            ping = await lane.get()
            try:
                if client is not None:
                    await send(client, ping)
            finally:
                with self._lock:
                    self._waiting -= 1
                    if not self._waiting:
                        self._idle.set()


def make_client(allow: AllowList, resolve: Resolve) -> Client | None:
    """Return the client, or None where the package for it is not installed, which is logged."""
    try:
        from pgsched.execute.http.client import Client
    except ImportError:
        logger.error("pings are not sent: they need the package httpx: pip install 'pgsched[http]'")
        return None
    return Client(allow, resolve, LANES)


async def send(client: Client, ping: Ping) -> None:
    """Send a ping, with a few tries. Raises nothing but a cancellation."""
    problem = url_problem(ping.url)
    for pause_s in (*PAUSES_S, None):
        if problem is not None:
            break
        try:
            async with asyncio.timeout(ANSWER_S), client.answer(ask_of(ping)) as response:
                status = response.status
        except Forbidden as error:
            problem = str(error)
            break
        except Exception as error:  # also a TimeoutError
            why = f"no answer within {ANSWER_S:g} s" if isinstance(error, TimeoutError) else format_error(error)
        else:
            if 200 <= status < 300:
                return
            why = f"it answered {status}"
            if 300 <= status < 500 and status not in (408, 429):
                problem = why
        if pause_s is None:
            problem = why
        elif problem is None:
            await asyncio.sleep(pause_s)
    logger.warning("a ping was dropped", host=host_of(ping.url), run=ping.run_id, error=log.redact(problem or "")[:200])


def ask_of(ping: Ping) -> Ask:
    """Return the request of a ping."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Pgsched-Run-Id": str(ping.run_id)}
    return Ask(ping.url, "POST", headers, frozenset(), ping.body, frozenset({"2xx"}), ANSWER_S, ANSWER_S, False)


def ping_of(claim: Claim, event: str, body: bytes) -> Ping | None:
    """Return the ping of a claim for this event; None where its URL cannot be read."""
    options: dict[str, Any] = claim.options if isinstance(claim.options, dict) else {}
    try:
        url = event_url(str(options["ping_url"]), event, run_uuid(claim))
    except (KeyError, ValueError):
        return None
    return Ping(url, body, claim.id, claim.job_id or 0)


def event_url(url: str, event: str, rid: UUID) -> str:
    """Return the URL for an event: the event behind the path, the id of the run in the query. Raises ValueError."""
    parts = urlsplit(url)
    query = f"{parts.query}&rid={rid}" if parts.query else f"rid={rid}"
    path = parts.path.rstrip("/") + event if event else parts.path
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def run_uuid(claim: Claim) -> UUID:
    """Return an id for the run that all of its attempts share, on every worker."""
    return uuid5(RUNS, f"{claim.job_id} {claim.id} {claim.scheduled_at}")


def body_of(claim: Claim, outcome: Outcome, state: str) -> bytes:
    """Return what is sent with the end of a run: which it was, its error, and the end of its output."""
    slot = "" if claim.scheduled_at is None else f", slot {claim.scheduled_at.isoformat()}"
    head = f"run {claim.id} {state}, attempt {claim.attempt} of {claim.max_attempts}{slot}\n"
    error = f"{outcome.error}\n" if outcome.error and state != "succeeded" else ""
    first = (head + error[:2000]).encode("utf-8", "replace")
    tail = (outcome.log_tail or "").encode("utf-8", "replace")
    room = BODY_BYTES - len(first)
    return first + tail[-room:].decode("utf-8", "ignore").encode()


def host_of(url: str) -> str:
    """Return the host of a URL, for the log."""
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"
