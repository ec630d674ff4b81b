"""The supervisor: one parent process that starts N workers, restarts them and passes stops on.

Invariant: the supervisor runs as long as one of its workers can work, and no longer.

It starts its own command line once for each worker; an environment variable marks the process as a worker. It runs no
user code and has no connection to the database. The workers have their own sessions, so that a signal from a terminal
reaches them once, through the parent. When the parent ends, the workers end (supervisor_link.py). Processes that stayed
in a worker's session end with that worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from pgsched import gc_tuning, log
from pgsched.errors import MemoryReached
from pgsched.execute.subprocess.child import kill_session
from pgsched.worker.process_endpoint import FOLDER
from pgsched.worker.supervision.children import (
    Child,
    Renewal,
    WorkerPlace,
    cancel_restarts,
    restart_pause_s,
    start_child,
)
from pgsched.worker.supervision.endpoint_proxy import Member, serve_endpoints
from pgsched.worker.supervision.supervisor_link import READY, SPENT, SWOLLEN

logger = log.get("supervisor")
# No restart helps: wrong input, a schema too old or too new, a missing grant, no embedded server.
HOPELESS = (2, 5, 6, 7, 9)
WHY = {SPENT: "runs", SWOLLEN: "memory"}
PROVEN_S = 10.0  # a worker that ends after this time has not failed at its start


class Supervisor:
    """N worker processes, and the signals that stop them."""

    def __init__(self, command: Sequence[str], processes: int, env: Mapping[str, str] | None = None) -> None:
        self._command = list(command)
        self._env = dict(os.environ if env is None else env)
        self._places = [WorkerPlace(number) for number in range(1, processes + 1)]
        self._children: dict[int, Child] = {}
        self._renewal = Renewal()
        self._stops = 0
        self._worst_code = 0
        self._has_worked = False  # a worker has come to work at least once

    async def run(self) -> int:
        """Keep the workers running until a stop, or until none can work; return the highest of their exit codes."""
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._handle_signals()
        logger.info("supervising", processes=len(self._places), pid=os.getpid())
        try:
            self._start(self._places[0])  # the others once it works: if none can work, only one reports why
            await self._over.wait()
        finally:
            for child in list(self._children.values()):
                child.kill()
        return self._worst_code

    def members(self) -> list[Member]:
        """Return the present workers, for the endpoint; called from its thread."""
        return [child.member for child in list(self._children.values())]

    def show(self, folder: str | None) -> None:
        """Set the folder for the workers' socket files."""
        if folder is not None:
            self._env[FOLDER] = folder

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            on_terminal = any(os.isatty(fd) for fd in (0, 1, 2))
            self._loop.add_signal_handler(signal.SIGHUP, self.stop if on_terminal else self.renew)

    # ---- starting

    def _start(self, place: WorkerPlace, *, heir: bool = False) -> None:
        place.restart = None
        if self._stops or (place.child is not None and not heir):
            return
        try:
            child = start_child(self._command, self._env, place)
        except OSError as error:  # no process, descriptor or memory is free; that may change soon
            self._not_started(place, error, heir=heir)
            return
        self._children[child.pid] = child
        if heir:
            self._renewal.heir = child
        else:
            place.child = child
        self._loop.add_reader(child.link, self._hear, child)

    def _not_started(self, place: WorkerPlace, error: OSError, *, heir: bool) -> None:
        """Try again after a pause; a worker that was to be renewed stays."""
        if heir:
            logger.error("not renewed: no process can be started", process=place.number, error=str(error))
            self._renewal.end()
            return
        place.failures += 1
        pause_s = restart_pause_s(place.failures, random.random())
        fields = {"process": place.number, "error": str(error), "in_s": round(pause_s, 2)}
        logger.error("no process can be started: trying again", **fields)
        place.restart = self._loop.call_later(pause_s, self._start, place)

    def _hear(self, child: Child) -> None:
        try:
            words = child.link.recv(4096).decode(errors="replace").split()
        except BlockingIOError:
            return
        except OSError:
            words = []
        if not words:
            self._loop.remove_reader(child.link)
        for word in words:
            self._on_ready(child) if word == READY else self._on_leaving(child, word)

    def _on_ready(self, child: Child) -> None:
        child.ready, child.place.code = True, None
        if child is self._renewal.heir:
            self._renewal.heir, old, child.place.child = None, child.place.child, child
            if old is not None:
                old.ask_to_stop()
            self._renew_next()
        if not self._has_worked:
            self._has_worked = True
            for place in self._places[1:]:
                self._start(place)

    def _on_leaving(self, child: Child, word: str) -> None:
        """Start a successor now: the worker ends only when its runs have, which may take long."""
        logger.info("worker leaves", process=child.place.number, pid=child.pid, why=WHY.get(word, "drained"))
        if child.place.child is child:
            self._replace(child, failed=word == SWOLLEN and time.monotonic() - child.started < PROVEN_S)

    def _replace(self, child: Child, *, failed: bool) -> float:
        """Start a successor, after a pause if the worker has failed; return the pause in seconds."""
        place = child.place
        place.child = None
        place.failures = place.failures + 1 if failed else 0
        pause_s = restart_pause_s(place.failures, random.random())
        if not self._stops and (self._renewal.heir is None or self._renewal.heir.place is not place):
            place.restart = self._loop.call_later(pause_s, self._start, place)
        return pause_s

    # ---- ending

    def _reap(self) -> None:
        """Reap every child that has ended, also those that a container's first process inherits."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                child = self._children.pop(found[0], None)
                if child is not None:
                    child.process.returncode = os.waitstatus_to_exitcode(found[1])
                    self._hear(child)  # its last messages
                    self._loop.remove_reader(child.link)
                    child.link.close()
                    kill_session(child.pid)  # processes that its handlers left running
                    self._ended(child, child.process.returncode)
        if not self._children and self._stops:
            self._over.set()

    def _ended(self, child: Child, code: int) -> None:
        place, exit_code = child.place, code if code >= 0 else 128 - code
        fields = {"process": place.number, "pid": child.pid, "exit_code": exit_code}
        if self._stops:
            logger.info("worker ended", **fields)
            # a worker that was stopped before it came to work has not failed
            blameless = exit_code == MemoryReached.exit_code or (code == -signal.SIGTERM and not child.ready)
            self._worst_code = max(self._worst_code, 0 if blameless else exit_code)
        elif child is self._renewal.heir:
            logger.error("not renewed: the new worker does not start", **fields)
            self._renewal.end()
            if place.child is None:  # the place has no worker
                self._lost(child, exit_code, failed=True)
        elif place.child is not child:
            logger.info("worker ended", **fields)
        elif not self._has_worked:
            self._give_up(exit_code)
        else:
            worked_s = time.monotonic() - child.started if child.ready else 0.0
            self._lost(child, exit_code, failed=worked_s < PROVEN_S and not (child.ready and exit_code == 0))

    def _lost(self, child: Child, code: int, *, failed: bool) -> None:
        """Start another worker for a place without one, or give up."""
        child.place.code = code
        pause_s = self._replace(child, failed=failed)
        if self._hopeless():
            self._give_up(code)
            return
        level = logger.info if code == 0 else logger.warning
        fields = {"process": child.place.number, "pid": child.pid, "exit_code": code, "in_s": round(pause_s, 2)}
        level("worker ended: a new one is started", **fields)

    def _hopeless(self) -> bool:
        return not self._children and all(place.code in HOPELESS for place in self._places)

    def _give_up(self, code: int) -> None:
        logger.error("giving up: no worker can start", exit_code=code)
        self._worst_code = code
        self._stops += 1
        cancel_restarts(self._places)

    # ---- signals

    def stop(self) -> None:
        """Drain the workers at the first call, hurry them at the second, kill them at the third."""
        self._stops += 1
        self._renewal.end()
        cancel_restarts(self._places)
        for child in list(self._children.values()):
            child.ask_to_stop() if self._stops <= 2 else child.kill()
        if not self._children:
            self._over.set()

    def renew(self) -> None:
        """Replace the workers one after the other, each when its successor is ready."""
        if self._renewal.heir is not None:
            self._renewal.again = True
        elif not self._stops:
            logger.info("renewing", processes=len(self._places))
            self._renewal.begin(self._places)
            self._renew_next()

    def _renew_next(self) -> None:
        if (place := self._renewal.next()) is not None:
            self._start(place, heir=True)
        elif self._renewal.again:
            self._renewal.again = False
            self.renew()


def supervise(processes: int, dsn: str | None, metrics: str | None = None, health: str | None = None) -> int:
    """Run this process's own command line with `processes` workers; return the exit code.

    `dsn`: their PGSCHED_DSN. `metrics`, `health`: the addresses for their endpoints.
    """
    env = dict(os.environ) | ({} if dsn is None else {"PGSCHED_DSN": dsn})
    gc_tuning.tune_for_long_run()
    supervisor = Supervisor([sys.executable, *sys.orig_argv[1:]], processes, env)
    with serve_endpoints(metrics, health, supervisor.members) as folder:
        supervisor.show(folder)
        return asyncio.run(supervisor.run())
