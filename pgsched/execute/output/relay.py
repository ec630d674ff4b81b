"""The relay in a child process: sends the attempt's output and progress to the worker.

Invariant: code that prints never waits for the worker; only the relay's thread and the attempt's end do.

Output travels in separate frames: at once, then at most four times a second. All output is sent before the attempt's
answer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from pgsched.execute.output.record import Journal, Record
from pgsched.execute.process_pool.protocol import Message, output_message

WAITING_BYTES = 1 << 20
PAUSE_S = 0.25


class Relay:
    """The sender of one child process's output. `send` writes one frame; two threads call it, never both at once."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._has_output = threading.Event()
        self._journal = Journal(WAITING_BYTES, head_share=0)
        self._journal.on_wake = self._has_output.set
        # Started before any memory limit is set, because the thread's stack counts against the limit.
        threading.Thread(target=self._serve, name="pgsched-relay", daemon=True).start()

    def begin(self) -> Record:
        """Return the Record of the next attempt."""
        return Record(self._journal, (0, 0), 0)

    def end(self, record: Record) -> None:
        """Close the record and send its remaining output.

        A process that the handler forked may come here too, and does nothing. Its copy of the record is sent already,
        and its copy of a lock may never be released.
        """
        if os.getpid() == self._process:
            record.close()
            self._flush()

    def answer(self, message: Message) -> None:
        """Send the attempt's outcome, or a request of its handler."""
        with self._lock:
            self._send(message)

    def _serve(self) -> None:
        while True:
            self._has_output.wait()
            self._has_output.clear()
            self._flush()
            time.sleep(PAUSE_S)

    def _flush(self) -> None:
        with self._lock:
            for record in self._journal.waiting():
                self._send(output_message(record.take()))
                self._journal.written(record)
