"""One connection through the proxy: each of its two directions can be delayed and held.

Invariant: the end of a held direction is held as well. The other side gets neither data nor the end of the connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from pgsched.chaos.site.wire_protocol import Backend, Frontend, Request

if TYPE_CHECKING:
    from pgsched.chaos.site.proxy import Loss, Proxy

PIECE = 1 << 16
MOST_PIECES = 256
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """A client's connection, and the connection to the server on its behalf."""

    def __init__(self, client: Streams, server: Streams, proxy: Proxy) -> None:
        self.frontend = Frontend()
        self.backend = Backend()
        self.transaction: list[str] = []  # the statements since BEGIN
        self._client, self._server, self._proxy = client, server, proxy
        self._requests = 0  # how many requests the server has to answer
        self._lose_at: int | None = None  # cut after this many answers; until then, no answer is passed on
        self._losing: Loss | None = None  # why, until it is counted
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._flows: list[asyncio.Task[None]] = []
        self.release()

    async def run(self) -> None:
        """Pass all data on until either side has ended, or until `cut`."""
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
            # `_say` ends after it has delivered the end of its direction: then nothing is left to deliver.
            await asyncio.wait(self._flows[2:], return_when=asyncio.FIRST_COMPLETED)
            for _, writer in (self._client, self._server):
                writer.close()  # data under way is still sent: the server's last message says why it ended
        finally:
            self._note_lost()
            for flow in self._flows:
                flow.cancel()
            await asyncio.gather(*self._flows, return_exceptions=True)

    def cut(self) -> None:
        """End both sides at once, as a reset does. Data under way is lost."""
        for flow in self._flows:
            flow.cancel()
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    def hold(self, direction: Literal["up", "down"]) -> None:
        """Keep the data of this direction until `release`."""
        (self._up if direction == "up" else self._down).clear()

    def release(self) -> None:
        """Deliver the data that is held, and pass all later data."""
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
            loss = self._loss(request)
            if loss is not None and loss.at == "before":
                loss.note_lost()
                self.cut()
                return pieces
            self._requests += request.answered
            if loss is not None:
                self._lose_at, self._losing = self._requests, loss
            pieces.append(request.data)
        return pieces

    def _heard_down(self, data: bytes) -> list[bytes]:
        if self.frontend.has_started and not self.frontend.encrypted:
            self.backend.feed(data)
        elif data in (b"S", b"G"):  # the answer to a request for encryption: accepted
            self.frontend.encrypted = True
        if self._lose_at is None:
            return [data]
        if self.backend.ready >= self._lose_at:
            self._note_lost()
            self.cut()
        return []

    def _note_lost(self) -> None:
        """Count the answer that is lost now, if there is one."""
        loss, self._losing = self._losing, None
        if loss is not None:
            loss.note_lost()

    def _loss(self, request: Request) -> Loss | None:
        """Return the fault that loses the answer to this request, or None."""
        for text in request.statements:
            if text.upper().startswith("BEGIN"):
                self.transaction.clear()
        self.transaction += request.statements
        found = next((loss for loss in self._proxy.losses if loss.takes(self, request.statements)), None)
        if any(text.upper().startswith(("COMMIT", "ROLLBACK")) for text in request.statements):
            self.transaction.clear()
        return found
