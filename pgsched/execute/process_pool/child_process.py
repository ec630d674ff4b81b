"""The worker's end of one pooled child process.

The rule: every question to a child is answered, if only by its death. The channel's end of file alone does not say
that a child is dead (something it forked may hold the channel), nor does its death say that all was read: both are
watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

from pgsched.app.app_location import Home
from pgsched.app.control import Control
from pgsched.core.text import storable
from pgsched.execute.anonymous_file import anonymous_file
from pgsched.execute.output.record import Record
from pgsched.execute.process_pool.protocol import HEAD_BYTES, Message, frame, hear, length, obey
from pgsched.execute.subprocess.child import Group
from pgsched.execute.subprocess.program import signal_name

KILLED_WITHIN_S = 3.0
LAST_WORDS_S = 0.2
FAULT_BYTES = 16_000
START = (
    "import sys; sys.path[:] = sys.argv[2:];"
    " from pgsched.execute.process_pool.child_main import main; main(sys.argv[1])"
)


class Channel(asyncio.Protocol):
    """Frames of a child, as they come."""

    def __init__(self, child: PoolChild) -> None:
        self._child = child
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            while len(self._data) >= HEAD_BYTES:
                end = HEAD_BYTES + length(self._data)
                if len(self._data) < end:
                    return
                message = json.loads(self._data[HEAD_BYTES:end])
                del self._data[:end]
                self._child.answered(message)
        except ValueError:  # user code wrote into the channel
            self._child.kill()

    def connection_lost(self, error: Exception | None) -> None:
        self._child.hung_up()


class PoolChild(Group):
    """A running child. Must be made on the loop's thread; `open` before the first `ask`."""

    def __init__(self, home: Home) -> None:
        self._faults = anonymous_file()
        self._ours, channel = socket.socketpair()  # the files close themselves where one of these three cannot be had
        stop, self._stop_line = os.pipe()
        fds = (channel.fileno(), stop, self._faults.fileno())
        told = ",".join(str(number) for number in (*fds, os.getpid()))
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", START, told, *home.search],
                stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self._ours.close()
            self._release()
            raise
        finally:
            channel.close()
            os.close(stop)
        super().__init__(process)
        self._ours.setblocking(False)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Message | None] | None = None
        self._eof = asyncio.Event()
        self._left = False
        self.rest: asyncio.TimerHandle | None = None
        self.on_death: Callable[[], None] | None = None
        self.attempt: tuple[Record | None, Control | None] = (None, None)  # what it says and asks goes there
        self.dead = asyncio.Event()
        self._watch = self._loop.create_task(self._watched())

    async def open(self) -> None:
        """Listen to the child."""
        self._transport, _ = await self._loop.create_connection(lambda: Channel(self), sock=self._ours)

    @property
    def alive(self) -> bool:
        """Can it be asked? It may still die at any moment."""
        return not self.dead.is_set() and not self._eof.is_set() and self._process.poll() is None

    async def ask(self, message: Message) -> Message | None:
        """Its answer; None when it died instead. A cancelled question stays open for `stop`."""
        assert self._transport is not None
        self._answer = self._loop.create_future()
        if self.dead.is_set():
            return None
        self._transport.write(frame(message))
        return await asyncio.shield(self._answer)

    async def stop(self, grace_s: float) -> None:
        """Have the open question's attempt end, softly for so long; kill the child whatever comes of it."""
        try:
            with contextlib.suppress(OSError):
                os.write(self._stop_line, b"s")
            self.signal(signal.SIGCONT)  # a stopped process hears nothing
            if self._answer is not None:
                await asyncio.wait({self._answer}, timeout=grace_s)
        finally:  # also when a second cancellation cuts the grace time short
            self.kill()

    async def leave(self, within_s: float) -> None:
        """Let an idle child end by itself, so that what it registered for its exit is done."""
        self._left = True
        if self._transport is not None:
            self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.dead.wait()

    async def end(self) -> None:
        """Kill it with everything in its session, and let go of it."""
        self._left = True
        self.kill()
        gone = asyncio.create_task(self.all_ended())
        try:
            await asyncio.wait({gone, self._watch}, timeout=KILLED_WITHIN_S)
        finally:
            gone.cancel()
            if self._transport is not None:
                self._transport.abort()
            else:
                self._ours.close()
            self._release()

    def how_it_ended(self) -> str:
        """How a dead child came to its end."""
        code = self.returncode
        if code is None:
            return "exit code unknown"
        return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"

    def fault(self) -> str | None:
        """The stack at a segmentation fault or the like, if the child died of one."""
        with contextlib.suppress(OSError, ValueError):
            return storable(os.pread(self._faults.fileno(), FAULT_BYTES, 0).decode("utf-8", "replace")) or None
        return None

    def answered(self, message: Message | None) -> None:
        """The channel brought an answer, or something that was said, or nothing more will come (None)."""
        if message is not None and ("said" in message or "asked" in message):
            self._heard(message)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
        elif message is not None:  # nobody asked: it was not our program that wrote this
            self.kill()

    def _heard(self, message: Message) -> None:
        record, control = self.attempt
        try:
            if "asked" in message and control is not None:
                obey(control, message)
            elif "said" in message and record is not None:
                hear(record, message)
        except (KeyError, TypeError, ValueError, AttributeError):
            self.kill()

    def hung_up(self) -> None:
        """The channel has ended: the child is about to end, or has closed it under itself."""
        self._eof.set()
        if not self._left:
            self._loop.call_later(LAST_WORDS_S, self.kill)

    async def _watched(self) -> None:
        await self.ended()
        if self._answer is not None and not self._answer.done():  # its last words may still be on their way
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._eof.wait()
        self.dead.set()
        self.answered(None)
        if self.on_death is not None:
            self.on_death()

    def _release(self) -> None:
        if self._stop_line >= 0:
            os.close(self._stop_line)
            self._stop_line = -1
            self._faults.close()
