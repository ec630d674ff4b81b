"""An app that has the same handlers in every place: on the event loop, in a thread and in a child process."""

from __future__ import annotations

# ruff: noqa: ASYNC230, ASYNC240 - touching a file does not block the loop noticeably
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgsched import App, Run

app = App("matrix")
LINES = 300_000


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


def ok() -> str:
    return "done"


def fail() -> None:
    raise ValueError("no luck")


def flood() -> str:
    print("0123456789abcdef\n" * LINES, end="")
    sys.stderr.write("x" * (LINES * 10))
    return "done"


def not_utf8() -> None:
    os.write(1, b"\xff\x00\xfe\n")
    print(b"caf\xe9".decode(errors="replace"))
    raise ValueError(b"caf\xe9\x00".decode(errors="surrogateescape"))


def unprintable() -> None:
    raise Unprintable


def not_json() -> Any:
    return {"function": not_json}


def echo(values: list[str]) -> list[str]:
    return values


def wait_plain(on: str) -> None:
    Path(on).touch()
    time.sleep(3600)


def wait_and_look(run: Run, on: str) -> None:
    Path(on).touch()
    run.cancelled.wait(3600)
    Path(f"{on}.stopped").touch()


async def wait_async(on: str) -> None:
    Path(on).touch()
    try:
        await asyncio.sleep(3600)
    finally:
        Path(f"{on}.stopped").touch()


def leave(on: str) -> None:
    """Start a program, do not wait for it, write its process id to a file, and sleep."""
    child = subprocess.Popen(["sleep", "3600"])
    Path(on).write_text(str(child.pid))
    time.sleep(3600)


def gated(gate: str, on: str) -> str:
    """Note the start in the file `on`, and run until the file `gate` exists."""
    with Path(on).open("a") as starts:
        starts.write(".")
    while not Path(gate).exists():
        time.sleep(0.02)
    return "done"


async def gated_on_loop(gate: str, on: str) -> str:
    with Path(on).open("a") as starts:
        starts.write(".")
    while not Path(gate).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return "done"


def on_loop(function: Callable[[], Any]) -> Callable[[], Any]:
    async def handler() -> Any:
        return function()

    return handler


async def echo_on_loop(values: list[str]) -> list[str]:
    return values


for function in (ok, fail, flood, not_utf8, unprintable, not_json):
    app.task(name=f"loop.{function.__name__}")(on_loop(function))
    app.task(name=f"thread.{function.__name__}", run_in="thread")(function)
    app.task(name=f"process.{function.__name__}", run_in="process")(function)
app.task(name="loop.echo")(echo_on_loop)
app.task(name="thread.echo", run_in="thread")(echo)
app.task(name="process.echo", run_in="process")(echo)
app.task(name="loop.wait")(wait_async)
app.task(name="thread.wait", run_in="thread")(wait_and_look)
app.task(name="thread.leave", run_in="thread")(leave)
app.task(name="thread.deaf", run_in="thread")(wait_plain)
app.task(name="process.wait", run_in="process")(wait_plain)
app.task(name="loop.gated")(gated_on_loop)
app.task(name="thread.gated", run_in="thread")(gated)
app.task(name="process.gated", run_in="process")(gated)
