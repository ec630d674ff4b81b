"""The reloader of `pgsched worker --reload`: a parent process that starts its worker anew when a file changes.

Invariant: the parent runs no user code, so nothing in the code can end it. While a file that has changed cannot be
compiled the present worker goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.abc
import importlib.util
import os
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

from pgsched import log
from pgsched.errors import InputError
from pgsched.execute.subprocess.child import kill_session
from pgsched.worker.supervision.children import Child, WorkerPlace, start_child

logger = log.get("reload")
HURRY_S, KILL_S = 1.0, 10.0  # after the first stop: until handlers are stopped, until the process is killed
MOST_NAMES = 3


def require_watchfiles() -> None:
    """Raise InputError where the package watchfiles is missing."""
    if importlib.util.find_spec("watchfiles") is None:
        raise InputError("reload: needs the package watchfiles: pip install 'pgsched[reload]'", "reload")


class Reloader:
    """A worker process that is replaced after each change of a file below `folder`.

    `changes`: yields the changed files of a moment; None: what watchfiles finds below the folder.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        env: Mapping[str, str] | None = None,
        changes: AsyncIterator[set[Path]] | None = None,
    ) -> None:
        self._command = list(command)
        self._folder = folder
        self._env = dict(os.environ if env is None else env)
        self._changes = changes
        self._changed: set[Path] = set()  # files that have changed since the worker started
        self._place = WorkerPlace(1)
        self._stops = 0
        self._replacing = False
        self._code = 0
        self._over = asyncio.Event()
        self._ended = asyncio.Event()  # there is no worker process

    async def run(self) -> int:
        """Keep a worker running until a stop; return the exit code of the last one."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        changes = self._changes or watch(self._folder)
        logger.info("watching", folder=str(self._folder), **{log.PLAIN: f"watching {self._folder} for changes"})
        self._start()
        following = asyncio.create_task(self._follow(changes))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({following, over}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            await over
        finally:
            over.cancel()
            following.cancel()
            await asyncio.gather(following, over, return_exceptions=True)
            if self._place.child is not None:
                self._place.child.kill()
        return self._code

    def stop(self) -> None:
        """Drain the worker at the first call, hurry it at the second, kill it at the third."""
        self._stops += 1
        child = self._place.child
        if child is None:
            self._over.set()
        elif self._stops <= 2:
            child.ask_to_stop()
        else:
            child.kill()

    async def _follow(self, changes: AsyncIterator[set[Path]]) -> None:
        """Start the worker anew after each change."""
        async for files in changes:
            if self._stops:
                return
            names = format_files(files, self._folder)
            self._changed |= files
            broken = {file: error for file in self._changed if (error := find_syntax_error(file, self._folder))}
            if broken:
                problem = broken[min(broken)]
                logger.error("not reloaded", error=problem, **{log.PLAIN: f"not reloaded: {problem}"})
                continue
            logger.info("reloading", files=names, **{log.PLAIN: f"reloading: {names} changed"})
            self._replacing = True
            await self._end_worker()
            if self._stops:
                return
            for file in self._changed:
                forget_compiled(file)
            self._changed.clear()
            self._start()

    def _start(self) -> None:
        self._ended.clear()
        self._replacing = False
        self._place.child = start_child(self._command, self._env, self._place)

    async def _end_worker(self) -> None:
        """Stop the worker: it drains for a second, then its handlers are stopped, and at last it is killed."""
        for act, seconds in ((Child.ask_to_stop, HURRY_S), (Child.ask_to_stop, KILL_S), (Child.kill, None)):
            if (child := self._place.child) is None:
                return
            act(child)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()

    def _reap(self) -> None:
        """Reap every child that has ended."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                child = self._place.child
                if child is None or found[0] != child.pid:
                    continue
                code = os.waitstatus_to_exitcode(found[1])
                child.process.returncode = code
                self._code = code if code >= 0 else 128 - code
                child.link.close()
                kill_session(child.pid)
                self._place.child = None
                self._ended.set()
                self._tell_end()
        if self._stops and self._place.child is None:
            self._over.set()

    def _tell_end(self) -> None:
        if not (self._stops or self._replacing):
            text = f"the worker has ended with exit code {self._code}: waiting for a change"
            logger.warning("waiting", exit_code=self._code, **{log.PLAIN: text})


async def watch(folder: Path) -> AsyncIterator[set[Path]]:
    """Yield the Python files and settings files below the folder that have changed, many changes at a time."""
    from watchfiles import PythonFilter, awatch

    async for changes in awatch(folder, watch_filter=PythonFilter(extra_extensions=[".toml"])):
        yield {Path(path) for _, path in changes}


def find_syntax_error(file: Path, folder: Path) -> str | None:
    """Return file, line and error of a Python file that cannot be compiled, None for any other file."""
    if file.suffix != ".py":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the worker shows them
            importlib.abc.InspectLoader.source_to_code(file.read_bytes(), str(file))  # as an import does; nothing runs
    except SyntaxError as error:
        return f"{relative_name(file, folder)}:{error.lineno or 0}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:  # such as too deeply nested code
        return f"{relative_name(file, folder)}: {error or type(error).__name__}"
    except OSError:  # it is gone
        pass
    return None


def forget_compiled(file: Path) -> None:
    """Remove Python's compiled copy of a file.

    A copy counts as new where second and size of the file are the same, so a second edit in one second would be lost:
    https://docs.python.org/3/reference/import.html#cached-bytecode-invalidation
    """
    with contextlib.suppress(OSError, NotImplementedError):
        Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)


def format_files(files: Iterable[Path], folder: Path) -> str:
    """Return the names of the first files, and how many more there are."""
    names = sorted(relative_name(file, folder) for file in files)
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def relative_name(file: Path, folder: Path) -> str:
    """Return the file relative to the folder, if it lies below it."""
    return str(file.relative_to(folder) if folder in file.parents else file)


def reload_worker(dsn: str | None) -> int:
    """Run this process's own command line anew at each change below the current folder; return the exit code.

    `dsn`: the worker's PGSCHED_DSN. Raises InputError where watchfiles is missing.
    """
    require_watchfiles()
    env = dict(os.environ) | ({} if dsn is None else {"PGSCHED_DSN": dsn})
    return asyncio.run(Reloader([sys.executable, *sys.orig_argv[1:]], Path.cwd(), env).run())
