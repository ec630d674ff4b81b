"""The worker's end of one pooled child process: starts it, sends it attempts, stops and ends it.

Invariant: every message to a child gets an answer, or the death of the child is the answer.

Both the channel and the process are watched, because neither alone is enough. After the channel's end of file the child
may still live: user code may have closed the channel. After the child's death the channel may still be open: a process
that the child forked may hold it. Frames may also be unread then.
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

from pgsched.app.app_location import AppLocation
from pgsched.app.control import Control
from pgsched.core.text import replace_unstorable
from pgsched.execute.anonymous_file import open_anonymous_file
from pgsched.execute.output.record import Record
from pgsched.execute.process_pool.protocol import HEAD_BYTES, Message, apply_output, apply_request, frame, frame_length
from pgsched.execute.subprocess.child import ProcessSession
from pgsched.execute.subprocess.program import signal_name

KILLED_WITHIN_S = 3.0
LAST_WORDS_S = 0.2
FAULT_BYTES = 16_000
START = (
    "import sys; sys.path[:] = sys.argv[2:];"
    " from pgsched.execute.process_pool.child_main import run_child; run_child(sys.argv[1])"
)


class Channel(asyncio.Protocol):
    """The reader of a child's frames: passes on each complete frame."""

    def __init__(self, child: PoolChild) -> None:
        self._child = child
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        """Collect bytes, and pass on each complete frame."""
        self._data += data
        try:
            while len(self._data) >= HEAD_BYTES:
                end = HEAD_BYTES + frame_length(self._data)
                if len(self._data) < end:
                    return
                message = json.loads(self._data[HEAD_BYTES:end])
                del self._data[:end]
                self._child.answered(message)
        except ValueError:  # user code wrote into the channel
            self._child.kill()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end of the channel."""
        self._child.hung_up()


class PoolChild(ProcessSession):
    """A running child process. Make it on the event loop's thread; call `open` before the first `ask`."""

    def __init__(self, home: AppLocation) -> None:
        self._faults = open_anonymous_file()
        self._ours, channel = socket.socketpair()  # where one of these three fails, the files close themselves
        stop, self._stop_line = os.pipe()
        fds = (channel.fileno(), stop, self._faults.fileno())
        descriptors = ",".join(str(number) for number in (*fds, os.getpid()))
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", START, descriptors, *home.search],
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
        self._is_leaving = False
        self.idle_timer: asyncio.TimerHandle | None = None
        self.on_death: Callable[[], None] | None = None
        self.attempt: tuple[Record | None, Control | None] = (None, None)  # where its output and its requests go
        self.dead = asyncio.Event()
        self._watch = self._loop.create_task(self._watched())

    async def open(self) -> None:
        """Start to read the channel."""
        self._transport, _ = await self._loop.create_connection(lambda: Channel(self), sock=self._ours)

    @property
    def alive(self) -> bool:
        """Whether the child can take a message; it may still die at any moment."""
        return not self.dead.is_set() and not self._eof.is_set() and self._process.poll() is None

    async def ask(self, message: Message) -> Message | None:
        """Send a message and return the answer, or None where the child died instead.

        A message whose wait is cancelled stays open for `stop`.
        """
        assert self._transport is not None
        self._answer = self._loop.create_future()
        if self.dead.is_set():
            return None
        self._transport.write(frame(message))
        return await asyncio.shield(self._answer)

    async def stop(self, grace_s: float) -> None:
        """End the attempt of the open message: softly for `grace_s` seconds; then kill the child in any case."""
        try:
            with contextlib.suppress(OSError):
                os.write(self._stop_line, b"s")
            self.signal(signal.SIGCONT)  # a stopped process reacts to nothing
            if self._answer is not None:
                await asyncio.wait({self._answer}, timeout=grace_s)
        finally:  # also when a second cancellation cuts the grace time short
            self.kill()

    async def leave(self, within_s: float) -> None:
        """Let an idle child end by itself within `within_s` seconds, so that its exit handlers run."""
        self._is_leaving = True
        if self._transport is not None:
            self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.dead.wait()

    async def end(self) -> None:
        """Kill the child with everything in its session, and release its descriptors."""
        self._is_leaving = True
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
        """Return how a dead child ended: its exit code or signal."""
        code = self.returncode
        if code is None:
            return "exit code unknown"
        return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"

    def fault(self) -> str | None:
        """Return the stack that faulthandler wrote, where the child died of a segmentation fault or the like."""
        with contextlib.suppress(OSError, ValueError):
            return (
                replace_unstorable(os.pread(self._faults.fileno(), FAULT_BYTES, 0).decode("utf-8", "replace")) or None
            )
        return None

    def answered(self, message: Message | None) -> None:
        """Take a frame: the answer, output or a request of the handler; None: no further frame will come."""
        if message is not None and ("said" in message or "asked" in message):
            self._heard(message)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
        elif message is not None:  # no message is open: something other than pgsched wrote this frame
            self.kill()

    def _heard(self, message: Message) -> None:
        record, control = self.attempt
        try:
            if "asked" in message and control is not None:
                apply_request(control, message)
            elif "said" in message and record is not None:
                apply_output(record, message)
        except (KeyError, TypeError, ValueError, AttributeError):
            self.kill()

    def hung_up(self) -> None:
        """Note the end of the channel: the child is about to end, or user code has closed the channel."""
        self._eof.set()
        if not self._is_leaving:
            self._loop.call_later(LAST_WORDS_S, self.kill)

    async def _watched(self) -> None:
        await self.ended()
        if self._answer is not None and not self._answer.done():  # its last frames may still be in the channel
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
