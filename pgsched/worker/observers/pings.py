"""Pings: tell the ping_url of a job that a run starts, has succeeded or is dead, as Healthchecks takes it.

The protocol is that of https://healthchecks.io/docs/http_api/: POST to the URL itself is a success, `/start` and
`/fail` behind its path are the others; `rid` names the run, and the body is kept with the event.

Invariant: a ping goes only where an HTTP run of this worker might go (execute/http), and delays neither a claim nor a
settlement. What has waited for LATEST_S is dropped: the service takes the time of its arrival. The log says so, without
the URL, which is a secret.

Jobs do not hold up each other: the pings of one job follow each other, so few of them wait, and only some of the
requests may be to one host at a time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

from pgsched import log
from pgsched.app.signals import format_error
from pgsched.core.model import Claim, Outcome
from pgsched.execute.http.allowlist import AllowList, Forbidden, Resolve, resolve_host
from pgsched.execute.http.request import Ask, url_problem

if TYPE_CHECKING:
    from pgsched.execute.http.client import Client

logger = log.get("pings")
RUNS = UUID("0e0e4a1e-2f0f-4bc5-8a62-6a2d5c7a3b10")  # the namespace of the ids of runs
AT_ONCE = 32  # requests at a time
OF_A_HOST = 8  # of them
MOST_WAITING = 1000
OF_A_JOB = 20  # of them
LATEST_S = 30.0  # a ping that has waited for longer is not sent
ANSWER_S = 5.0  # of one request
PAUSES_S = (1.0, 4.0)  # before the second and the third try
CLOSE_S = 2.0
BODY_BYTES = 10_000
STATES = {"succeeded": "", "dead": "/fail"}


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping. `url`: with the event in its path. `until`: when it is too late to send it, in monotonic seconds."""

    url: str
    body: bytes
    run_id: int
    job_id: int
    until: float


class Turns:
    """Who may send: AT_ONCE at a time, of them OF_A_HOST to one host, in the order in which they ask."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._of_host: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def wait(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn, which lasts as long as the block."""
        if (of_host := self._of_host.get(host)) is None:
            of_host = self._of_host[host] = asyncio.Semaphore(OF_A_HOST)
        async with of_host, self._all:
            yield


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
        self._of_job: dict[int, deque[Ping]] = {}  # what waits; a job with an entry has a task that sends it
        self._client: Client | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._turns = Turns()
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
            waiting = self._of_job.get(ping.job_id, ())
            if self._waiting >= MOST_WAITING or len(waiting) >= OF_A_JOB:
                self._dropped += 1
                full = time.monotonic() - self._told_at > 60.0
                self._told_at = time.monotonic() if full else self._told_at
                dropped = self._dropped
            else:
                full = False
                self._waiting += 1
                self._idle.clear()
                loop = self._start()
                if waiting:
                    self._of_job[ping.job_id].append(ping)
                else:
                    self._of_job[ping.job_id] = deque([ping])
                    loop.call_soon_threadsafe(self._begin_job, ping.job_id)
        if full:
            logger.warning("pings are dropped: too many wait", job=ping.job_id, host=host_of(ping.url), dropped=dropped)

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
            self._of_job, self._turns = {}, Turns()
            threading.Thread(target=self._serve, args=(self._loop,), name="pgsched-pings", daemon=True).start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        client = self._client = make_client(self._allow, self._resolve)
        try:
            loop.run_forever()
        finally:
            sending = asyncio.all_tasks(loop)
            for one in sending:
                one.cancel()
            loop.run_until_complete(asyncio.gather(*sending, return_exceptions=True))
            if client is not None:
                loop.run_until_complete(client.close())
            loop.close()

    def _begin_job(self, job_id: int) -> None:
        """Start the task that sends what waits of a job. Called on the thread's event loop."""
        sending = asyncio.get_running_loop().create_task(self._serve_job(job_id, self._of_job))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _serve_job(self, job_id: int, of_job: dict[int, deque[Ping]]) -> None:
        """Send what waits of a job, in its order, until nothing does."""
        waiting = of_job[job_id]
        while waiting:
            try:
                if self._client is not None:
                    await self._send_in_turn(self._client, waiting[0])
            finally:
                with self._lock:
                    waiting.popleft()
                    if not waiting:
                        del of_job[job_id]
                    self._waiting -= 1
                    if not self._waiting:
                        self._idle.set()

    async def _send_in_turn(self, client: Client, ping: Ping) -> None:
        host = host_of(ping.url)
        async with self._turns.wait(host):
            if time.monotonic() > ping.until:
                logger.warning("a ping was dropped", host=host, run=ping.run_id, error="others took too long before it")
                return
            await send(client, ping)


def make_client(allow: AllowList, resolve: Resolve) -> Client | None:
    """Return the client, or None where the package for it is not installed, which is logged."""
    try:
        from pgsched.execute.http.client import Client
    except ImportError:
        logger.error("pings are not sent: they need the package httpx: pip install 'pgsched[http]'")
        return None
    return Client(allow, resolve, AT_ONCE)


async def send(client: Client, ping: Ping) -> None:
    """Send a ping, with a few tries. Raises nothing but a cancellation."""
    problem = problem_of(ping.url)
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


def problem_of(url: str) -> str | None:
    """Return why no ping may go to this URL; None if one may."""
    problem = url_problem(url)  # in words about the task of an HTTP job
    return problem and problem.removeprefix("task: ").partition(";")[0]


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
    return Ping(url, body, claim.id, claim.job_id or 0, time.monotonic() + LATEST_S)


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
