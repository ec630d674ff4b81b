"""An app whose handlers run in child processes: they compute, raise, hang, crash, flood, and use too much memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pgsched import App, Discard, Retry, Run

app = App("processes")
CHUNK = 1 << 20


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def started(path: str) -> None:
    """Tell the test that the handler has started: make a file with the process id, which appears only when complete."""
    part = Path(f"{path}.part")
    part.write_text(str(os.getpid()))
    part.rename(path)


def cleaned(on: str) -> None:
    Path(f"{on}.clean").touch()


def process(name: str, **more: Any) -> Any:
    return app.task(name=name, run_in="process", **more)


@process("pid")
def pid() -> int:
    return os.getpid()


@process("echo")
def echo(value: Any) -> Any:
    return value


@process("described")
def described(run: Run, word: str) -> list[Any]:
    slot = run.scheduled_at.isoformat() if run.scheduled_at else None
    return [run.id, run.job_id, slot, run.attempt, str(run.token), run.cancelled.is_set(), word]


@process("on_loop")
async def on_loop() -> list[Any]:
    await asyncio.sleep(0)
    return [os.getpid(), id(asyncio.get_running_loop())]


@process("leaves_a_task")
async def leaves_a_task(on: str) -> None:
    async def left() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned(on)

    left_behind = asyncio.create_task(left())
    await asyncio.sleep(0)
    assert not left_behind.done()


@process("leaves_for_ever")
async def leaves_for_ever() -> int:
    async def left() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    left_behind = asyncio.create_task(left())
    await asyncio.sleep(0)
    assert not left_behind.done()
    return os.getpid()


@process("exits_in_a_task")
async def exits_in_a_task(awaited: bool) -> int:
    async def leave() -> None:
        sys.exit(3)

    task = asyncio.create_task(leave())
    await (task if awaited else asyncio.sleep(0.1))
    return os.getpid()


RAISED: dict[str, BaseException] = {
    "plain": ValueError("wrong\n  number"),
    "unprintable": Unprintable(),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "cancelled": asyncio.CancelledError("mine"),
    "surrogate": ValueError("nul\0 and \ud800"),
    "endless": ValueError("x" * 1_000_000),
    "retry": Retry(after=90, message="busy"),
    "discard": Discard("no such customer"),
}
RESULTS: dict[str, Any] = {"object": object(), "nan": float("nan"), "nul": "a\0b", "huge": "x" * 1_100_000}


@process("raises")
def raises(which: str) -> None:
    raise RAISED[which]


@process("raises_on_loop")
async def raises_on_loop(which: str) -> None:
    raise RAISED[which]


@process("returns")
def returns(which: str) -> Any:
    return RESULTS[which]


@process("sleeps")
def sleeps(on: str) -> None:
    try:
        started(on)
        time.sleep(3600)
    finally:
        cleaned(on)


@process("looks")
def looks(run: Run, on: str) -> None:
    started(on)
    if run.cancelled.wait(60):
        cleaned(on)


@process("sleeps_on_loop")
async def sleeps_on_loop(on: str) -> None:
    try:
        started(on)
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0)
        cleaned(on)


@process("busy")
def busy(on: str) -> None:
    started(on)
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue


@process("deaf")
def deaf(on: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    started(on)
    time.sleep(3600)


@process("holds_the_interpreter")
def holds_the_interpreter(on: str) -> None:
    started(on)
    ctypes.PyDLL(None).sleep(3600)


@process("with_children")
def with_children(on: str) -> None:
    left = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    started(on)
    for child in left:
        child.wait()


@process("leaves")
def leaves(code: int) -> None:
    os._exit(code)


@process("segfault")
def segfault() -> None:
    ctypes.string_at(0)


@process("forks")
def forks() -> str:
    made = os.fork()
    if made:
        os.waitpid(made, 0)
    return "one of two"


@process("flood")
def flood() -> str:
    for _ in range(20):
        print("y\n" * (CHUNK // 2))
        os.write(2, b"\xff\0" * (CHUNK // 2))
    return "done"


@process("prints")
def prints(text: str) -> None:
    print(text, end="")


@process("reads")
def reads() -> str:
    return sys.stdin.read() + os.read(0, 10).decode()


@process("closes_all")
def closes_all() -> None:
    os.closerange(0, 100)
    time.sleep(3600)


@process("scribbles")
def scribbles() -> None:
    for fd in range(3, 30):
        try:
            os.write(fd, b"\xff" * 100)
        except OSError:
            continue
    time.sleep(3600)


@process("hungry", memory_mb=64)
def hungry(mb: int) -> int:
    return len(bytearray(mb << 20)) >> 20


@process("unlimited")
def unlimited(mb: int) -> int:
    return len(bytearray(mb << 20)) >> 20


@process("hungry_on_loop", memory_mb=64)
async def hungry_on_loop(mb: int) -> int:
    return len(bytearray(mb << 20)) >> 20
