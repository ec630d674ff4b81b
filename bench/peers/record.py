"""Record what the handlers do, and report it to the driver.

Invariant: every contestant's handler does the same work, and reports it in the same way. A handler calls `record(i)`
with the number that its job carries. The worker prints a line of JSON about every PERIOD_NS, and at least every STEP
runs. When it reads a line on stdin, it prints everything that it saw. So a contestant is counted even if it cannot shut
down in good order.

This file uses only the standard library, because it runs in every contestant's own interpreter.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from array import array
from typing import Any

STEP = 500
LEAST_STEP = 10
PERIOD_NS = 50_000_000
SECOND = 1_000_000_000
SAYING = threading.Lock()


class Record:
    """How often each number was run and, if asked for, when."""

    def __init__(self, n: int, stamped: bool) -> None:
        self.count = 0
        self.first_ns = 0
        self.step = LEAST_STEP
        self.next_line = LEAST_STEP
        self.line_ns = 0
        self.seen = bytearray(max(1, n))
        self.stamps = array("q", [0]) * n if stamped else None
        self.late: list[tuple[int, float]] = []

    def record(self, i: int) -> None:
        """Record that job number `i` has started. Numbers beyond the expected ones are only counted."""
        if self.count == 0 or self.stamps is not None:
            self._stamp(i)
        self.count += 1
        if i < len(self.seen):
            self.seen[i] = min(self.seen[i] + 1, 255)
        if self.count == self.next_line:
            self._tell()

    def _tell(self) -> None:
        """Print a line about how far it is; schedule the next one about PERIOD_NS later at the current rate."""
        now = time.monotonic_ns()
        say(n=self.count, ns=now)
        self.step = min(STEP, max(LEAST_STEP, self.step * PERIOD_NS // max(1, now - (self.line_ns or self.first_ns))))
        self.next_line, self.line_ns = self.count + self.step, now

    def _stamp(self, i: int) -> None:
        now = time.monotonic_ns()
        if self.count == 0:
            self.first_ns = now
            say(n=0, ns=now)
        if self.stamps is not None and i < len(self.stamps) and not self.stamps[i]:
            self.stamps[i] = now

    def dump(self) -> None:
        """Print everything."""
        stamps = [] if self.stamps is None else self.stamps.tolist()
        seen = base64.b64encode(bytes(self.seen)).decode()
        say(end=True, count=self.count, first_ns=self.first_ns, seen=seen, stamps=stamps, late=self.late)


def say(**values: Any) -> None:
    """Print one line of JSON for the driver. The lock keeps other lines out of one that takes several writes."""
    line = json.dumps(values) + "\n"
    with SAYING:
        sys.stdout.write(line)
        sys.stdout.flush()


def from_environment() -> Record:
    """Return the record that a worker process fills; each line that arrives on stdin makes it print."""
    made = Record(int(os.environ.get("BENCH_N", "0")), os.environ.get("BENCH_STAMPS") == "1")

    def answer() -> None:
        for _ in sys.stdin:
            made.dump()

    threading.Thread(target=answer, name="bench-dump", daemon=True).start()
    return made


def dsn() -> str:
    """Return the DSN of this measurement's database."""
    return os.environ["BENCH_DSN"]


def number(name: str, default: int) -> int:
    """Return a setting that the driver passes in the environment."""
    return int(os.environ.get(f"BENCH_{name}", default))


def text(name: str) -> str:
    """Return a text that the driver passes in the environment."""
    return os.environ[f"BENCH_{name}"]


class Pulse:
    """Instants at a steady rate; an enqueue that is late is sent at once, and the time of sending is recorded."""

    def __init__(self, rate: float, n: int) -> None:
        self.period_ns = int(SECOND / rate)
        self.n = n
        self.before: list[int] = []
        self.after: list[int] = []
        self.start_ns = time.monotonic_ns() + 200_000_000

    def wait_s(self, i: int) -> float:
        """Return the seconds until enqueue number `i` is to be sent."""
        return max(0.0, (self.start_ns + i * self.period_ns - time.monotonic_ns()) / SECOND)

    def sending(self) -> None:
        """Record that the next enqueue is about to be sent."""
        self.before.append(time.monotonic_ns())

    def committed(self) -> None:
        """Record that the enqueue is committed: its call has returned."""
        self.after.append(time.monotonic_ns())

    def say(self) -> None:
        """Print when each enqueue was sent and committed."""
        say(before=self.before, after=self.after)
