"""A child process's part: what its attempt says goes to the worker in frames of their own, at once and then some times
a second, and all of it before the attempt's answer.

The rule: whoever says something never waits for the worker; only this thread and the attempt's end do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from pgsched.execute.output.record import Journal, Record
from pgsched.execute.process_pool.protocol import Message, said_message

WAITING_BYTES = 1 << 20
PAUSE_S = 0.25


class Relay:
    """Sends what is said. `send` writes one frame; it is called from two threads, never from both at once."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._said = threading.Event()
        self._journal = Journal(WAITING_BYTES, head_share=0)
        self._journal.on_wake = self._said.set
        # Started before any limit on memory holds: its stack counts.
        threading.Thread(target=self._serve, name="pgsched-relay", daemon=True).start()

    def begin(self) -> Record:
        """The Record of the next attempt."""
        return Record(self._journal, (0, 0), 0)

    def end(self, record: Record) -> None:
        """Send the rest of it. What the handler forked may come here as well: it has a copy of what is sent already,
        and perhaps of a lock that nobody will release there."""
        if os.getpid() == self._process:
            record.close()
            self._flush()

    def answer(self, message: Message) -> None:
        """Send the attempt's outcome, or what its handler asks for."""
        with self._lock:
            self._send(message)

    def _serve(self) -> None:
        while True:
            self._said.wait()
            self._said.clear()
            self._flush()
            time.sleep(PAUSE_S)

    def _flush(self) -> None:
        with self._lock:
            for record in self._journal.waiting():
                self._send(said_message(record.take()))
                self._journal.written(record)
