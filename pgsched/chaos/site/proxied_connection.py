"""One proxied connection: two directions, each with its delay, each of which can be held.

The rule: the end of a held direction is held as well. A side that cannot be heard cannot say goodbye either.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from pgsched.chaos.site.wire_protocol import Backend, Frontend, Request

if TYPE_CHECKING:
    from pgsched.chaos.site.proxy import Proxy

PIECE = 1 << 16
MOST_PIECES = 256
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """A client, and the server on its behalf."""

    def __init__(self, client: Streams, server: Streams, proxy: Proxy) -> None:
        self.frontend = Frontend()
        self.backend = Backend()
        self.transaction: list[str] = []  # the statements since BEGIN
        self._client, self._server, self._proxy = client, server, proxy
        self._asked = 0  # requests that the server will answer
        self._lose_at: int | None = None  # cut when it has answered so many; until then nothing goes down
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._flows: list[asyncio.Task[None]] = []
        self.release()

    async def run(self) -> None:
        """Pass everything on until either side has ended, or `cut`."""
        up, down = asyncio.Queue[tuple[float, bytes]](MOST_PIECES), asyncio.Queue[tuple[float, bytes]](MOST_PIECES)
        self._flows = [
            asyncio.ensure_future(flow)
            for flow in (
                self._hear(self._client[0], up, "up"),
                self._hear(self._server[0], down, "down"),
                self._say(up, self._server[1], self._up),
                self._say(down, self._client[1], self._down),
            )
        ]
        try:
            # a `_say` ends when it has delivered the end of its direction: then there is nothing to say any more
            await asyncio.wait(self._flows[2:], return_when=asyncio.FIRST_COMPLETED)
            for _, writer in (self._client, self._server):
                writer.close()  # after what is under way: the server's last words say why it ended the session
        finally:
            for flow in self._flows:
                flow.cancel()
            await asyncio.gather(*self._flows, return_exceptions=True)

    def cut(self) -> None:
        """End both sides at once, as a reset does. What is under way is lost."""
        for flow in self._flows:
            flow.cancel()
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    def hold(self, direction: Literal["up", "down"]) -> None:
        """Keep what goes in this direction until `release`."""
        (self._up if direction == "up" else self._down).clear()

    def release(self) -> None:
        """Deliver what is held, and everything from now on."""
        self._up.set()
        self._down.set()

    async def _hear(
        self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]], direction: Literal["up", "down"]
    ) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while data := await reader.read(PIECE):
                seconds = self._proxy.delay_s
                for piece in self._heard_up(data) if direction == "up" else self._heard_down(data):
                    await queue.put((clock() + seconds, piece))
        except ConnectionError:
            pass
        await queue.put((clock(), b""))

    async def _say(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            at, data = await queue.get()
            if (wait_s := at - clock()) > 0:
                await asyncio.sleep(wait_s)
            await gate.wait()
            if not data:
                return
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:
                return

    def _heard_up(self, data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        for request in self.frontend.feed(data):
            if (at := self._loss(request)) == "before":
                self.cut()
                return pieces
            self._asked += request.answered
            if at == "after":
                self._lose_at = self._asked
            pieces.append(request.data)
        return pieces

    def _heard_down(self, data: bytes) -> list[bytes]:
        if self.frontend.begun and not self.frontend.encrypted:
            self.backend.feed(data)
        elif data in (b"S", b"G"):  # the answer to a request for encryption: yes
            self.frontend.encrypted = True
        if self._lose_at is None:
            return [data]
        if self.backend.ready >= self._lose_at:
            self.cut()
        return []

    def _loss(self, request: Request) -> str | None:
        """Is the answer to this request to be lost, and when?"""
        for text in request.statements:
            if text.upper().startswith("BEGIN"):
                self.transaction.clear()
        self.transaction += request.statements
        found = next((loss.at for loss in self._proxy.losses if loss.takes(self, request.statements)), None)
        if any(text.upper().startswith(("COMMIT", "ROLLBACK")) for text in request.statements):
            self.transaction.clear()
        return found
