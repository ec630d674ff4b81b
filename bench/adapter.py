"""Drive the adapters: each contestant runs in processes of its own, with lines of JSON between them and the driver.

Invariant: every contestant is driven in the same way. A worker reports about every 50 ms how many runs it has started
(see record.STEP). When asked, it reports everything that its handlers saw. Then it is killed.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench import install
from bench.contestants import Contestant
from bench.server import scalar

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 900.0


class Failed(Exception):
    """A contestant did not do what was asked of it; the text ends with the last lines of its stderr."""


@dataclass
class Seen:
    """What a worker's handlers saw.

    `seen`: how often each number was run.
    `stamps`: when each number started, if stamps were asked for.
    `late`: for each slot, its second and how many seconds later its handler started.
    """

    count: int = 0
    first_ns: int = 0
    seen: bytes = b""
    stamps: list[int] = field(default_factory=list)
    late: list[tuple[int, float]] = field(default_factory=list)


class Process:
    """One process of an adapter. `points` of a worker: how many runs had started, at which monotonic ns."""

    def __init__(self, contestant: Contestant, verb: str, dsn: str, **settings: object) -> None:
        argv, extra = install.command(contestant)
        self.contestant, self.verb = contestant, verb
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        given = {f"BENCH_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
        self.popen = subprocess.Popen(
            [*argv, verb],
            cwd=ROOT,
            env={**os.environ, **extra, "BENCH_DSN": dsn, **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.points: list[tuple[int, int]] = []
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if not line.startswith("{"):
                continue  # printed by a library
            said = json.loads(line)
            if set(said) == {"n", "ns"}:
                self.points.append((said["n"], said["ns"]))
            else:
                self.lines.put(said)
        self.lines.put(None)

    def ask(self, text: str = "") -> None:
        """Send a line. Raises Failed if the process no longer reads."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(text + "\n")
            self.popen.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.contestant.name} {self.verb}: {error}; {self.last_words()}") from error

    def answer(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the next answer of the contestant. Raises Failed if there is none."""
        try:
            said = self.lines.get(timeout=timeout_s)
        except queue.Empty:
            text = f"no answer within {timeout_s:.0f} s; {self.last_words()}"
            raise Failed(f"{self.contestant.name} {self.verb}: {text}") from None
        if said is None:
            self.popen.wait(10)
            raise Failed(f"{self.contestant.name} {self.verb}: exit {self.popen.returncode}; {self.last_words()}")
        return said

    def check(self) -> None:
        """Raise Failed if the process has ended."""
        if self.popen.poll() is not None:
            raise Failed(f"{self.contestant.name} {self.verb}: exit {self.popen.returncode}; {self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of the process's stderr."""
        self._errors.seek(0)
        return " | ".join(self._errors.read().strip().splitlines()[-6:])[-1500:] or "it said nothing"

    def dump(self) -> Seen:
        """Return everything that a worker's handlers saw."""
        self.ask()
        said = self.answer(60)
        return Seen(said["count"], said["first_ns"], base64.b64decode(said["seen"]), said["stamps"], said["late"])

    @property
    def started(self) -> int:
        """Return how many runs the worker had started when it last reported."""
        return self.points[-1][0] if self.points else 0

    def end(self) -> None:
        """Kill the process if it still runs."""
        self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self._errors):
            if stream is not None:
                with suppress(OSError):  # the process has ended, with data left in the pipe
                    stream.close()


def call(contestant: Contestant, verb: str, dsn: str, **settings: object) -> dict[str, Any]:
    """Run a verb that answers with one line; return that line."""
    process = Process(contestant, verb, dsn, **settings)
    try:
        return process.answer()
    finally:
        process.end()


@contextmanager
def workers(contestant: Contestant, dsn: str, count: int, **settings: object) -> Iterator[list[Process]]:
    """Start worker processes for the block. Killing them ends the runs that they still have."""
    with ExitStack() as ends:
        started = []
        for _ in range(count):
            process = Process(contestant, "work", dsn, workers=count, **settings)
            ends.callback(process.end)
            started.append(process)
        yield started


def unfinished(look: psycopg.Connection, contestant: Contestant) -> bool:
    """Check whether the database has unfinished work.

    The statement must not scan tables sequentially: then a long history makes it no slower.
    """
    with look.transaction():
        look.execute("SET LOCAL enable_seqscan = off")
        return bool(scalar(look, contestant.unfinished))


def wait_for(condition: Any, processes: list[Process], timeout_s: float, what: str, every_s: float = 0.02) -> Any:
    """Wait until the condition is true; return its value. Raises Failed after the time, or when a process has ended."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            words = "; ".join(process.last_words() for process in processes)
            raise Failed(f"{processes[0].contestant.name}: {what} did not come within {timeout_s:.0f} s; {words}")
        time.sleep(every_s)
    return value
