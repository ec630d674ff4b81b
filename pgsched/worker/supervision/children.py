"""The child processes of a supervisor: how a worker is started and named, and which workers are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgsched.worker.supervision.endpoint_proxy import Member
from pgsched.worker.supervision.supervisor_link import environment

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


@dataclass(eq=False)
class WorkerPlace:
    """One of the N places of a supervisor: its worker, and how often in a row a worker has failed at its start."""

    number: int
    child: Child | None = None
    failures: int = 0
    code: int | None = None  # exit code of the last worker
    restart: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Child:
    """One worker process."""

    place: WorkerPlace
    process: subprocess.Popen[bytes]
    link: socket.socket
    started: float
    ready: bool = False

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def ask_to_stop(self) -> None:
        """Send one stop request."""
        with contextlib.suppress(OSError):  # the process has ended
            self.link.send(b"s")

    def kill(self) -> None:
        """Kill the process, without Popen.kill, which might reap it unnoticed."""
        os.kill(self.pid, signal.SIGKILL)

    @property
    def member(self) -> Member:
        """The child's name for the endpoint: its place, with its pid added while another worker has the place."""
        name = str(self.place.number) if self.place.child is self else f"{self.place.number}/{self.pid}"
        return Member(name, self.pid, self.ready)


class Renewal:
    """The workers that are to be replaced, one at a time.

    - `heir`: the new worker that takes the place over when it is ready.
    - `again`: another renewal was requested meanwhile.
    """

    def __init__(self) -> None:
        self.heir: Child | None = None
        self.again = False  # requested again during this one
        self._places_left: list[WorkerPlace] = []

    def begin(self, places: Iterable[WorkerPlace]) -> None:
        """Start to replace the workers of these places."""
        self._places_left, self.again = [*places], False

    def next(self) -> WorkerPlace | None:
        """Return the next place with a worker; a place without one gets a new worker anyway."""
        while self._places_left:
            place = self._places_left.pop(0)
            if place.child is not None:
                return place
        return None

    def end(self) -> None:
        """Replace no more workers."""
        self.heir, self.again = None, False
        self._places_left.clear()


def start_child(command: Sequence[str], env: Mapping[str, str], place: WorkerPlace) -> Child:
    """Start a worker process for this place. Raises OSError."""
    ours, theirs = socket.socketpair()
    public, first = environment(env, place.number, theirs.fileno())
    with theirs, contextlib.ExitStack() as unless_started:
        unless_started.callback(ours.close)
        process = subprocess.Popen(
            command, env=public, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )  # fmt: skip
        unless_started.pop_all()
    with contextlib.suppress(OSError):  # the process has ended
        ours.sendall(first)
    ours.setblocking(False)
    return Child(place, process, ours, time.monotonic())


def cancel_restarts(places: Iterable[WorkerPlace]) -> None:
    """Cancel the starts that wait for the end of their pause."""
    for place in places:
        if place.restart is not None:
            place.restart.cancel()


def restart_pause_s(failures: int, chance: float) -> float:
    """Return the seconds until the next start after `failures` failures in a row.

    `chance`: a random number in [0, 1), so that pauses differ.
    """
    if failures == 0:
        return 0.0
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10)) * (0.5 + chance / 2))
