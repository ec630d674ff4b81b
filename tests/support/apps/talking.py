"""Handlers that print, log and report progress, in every place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import structlog

from pgsched import App, Run

app = App("talking")


def say(word: str) -> None:
    print(word, "printed")
    print(word, "complained", file=sys.stderr)
    logging.getLogger("talking").info("%s logged", word)
    logging.getLogger("talking").warning("%s warned", word)
    structlog.get_logger().info(f"{word} structured", n=1)


@app.task(name="in_thread", capture=True)
def in_thread(word: str) -> None:
    say(word)


@app.task(name="on_loop", capture=True)
async def on_loop(word: str) -> None:
    say(word)
    await asyncio.create_task(nested(word))
    await asyncio.to_thread(print, word, "from its thread")


async def nested(word: str) -> None:
    await asyncio.sleep(0)
    print(word, "from its task")


@app.task(name="in_process", capture=True, run_in="process")
def in_process(word: str) -> None:
    say(word)


@app.task(name="process_on_loop", capture=True, run_in="process")
async def process_on_loop(word: str) -> None:
    say(word)
    await asyncio.create_task(nested(word))


@app.task(name="silent")
def silent(word: str) -> None:
    say(word)


@app.task(name="fails", capture=True)
def fails() -> None:
    print("before it failed")
    raise ValueError("it")


@app.task(name="dies", capture=True, run_in="process")
def dies(run: Run) -> None:
    print("before it died")
    run.cancelled.wait(1.5)
    os.kill(os.getpid(), 9)


@app.task(name="forks", capture=True, run_in="process")
def forks(run: Run) -> None:
    """Print lines, then fork: the forked process returns from the handler too, with output that was not sent yet."""
    for n in range(3):
        print("line", n)
        run.cancelled.wait(0.05)
    print("last")
    if made := os.fork():
        os.waitpid(made, 0)


@app.task(name="floods", capture=True, run_in="process")
def floods(mb: int) -> None:
    for n in range(mb * 10_000):
        print(f"{n:09d}{'x' * 90}")


@app.task(name="told", run_in="process")
def told(run: Run, count: int) -> None:
    tell(run, count)


@app.task(name="told_in_thread")
def told_in_thread(run: Run, count: int) -> None:
    tell(run, count)


@app.task(name="told_on_loop")
async def told_on_loop(run: Run, count: int) -> None:
    tell(run, count)


def tell(run: Run, count: int) -> None:
    for n in range(count):
        run.progress(n + 1, count, "counting")
    run.log("counted", n=count)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def tell_oddly(run: Run, note: str) -> str:
    """Report progress with values that are not JSON types; the pause lets the first report be written."""
    notes: dict[str, Any] = {"unprintable": Unprintable(), "path": Path("/tmp"), "long": "x" * (80 << 20)}
    run.progress(Decimal(3), Fraction(10), notes[note])
    run.cancelled.wait(1.5)
    run.progress(Decimal(4), Fraction(10), notes[note])
    run.log("told")
    return "done"


@app.task(name="told_oddly", run_in="process")
def told_oddly(run: Run, note: str) -> str:
    return tell_oddly(run, note)


@app.task(name="told_oddly_in_thread")
def told_oddly_in_thread(run: Run, note: str) -> str:
    return tell_oddly(run, note)


meeting = threading.Barrier(2)


@app.task(name="meets", capture=True)
def meets(word: str) -> None:
    """Print and log in turns with another run of this task."""
    for n in range(50):
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(10)
        print(word, n)
        logging.getLogger("talking").warning("%s %s", word, n)


turns: dict[str, Any] = {}


@app.task(name="takes_turns", capture=True)
async def takes_turns(word: str) -> None:
    turns[word] = asyncio.Event()
    while len(turns) < 2:  # noqa: ASYNC110 - until the other run has started too
        await asyncio.sleep(0)
    for n in range(50):
        print(word, n)
        await asyncio.sleep(0)


@app.task(name="gives")
def gives(size: int) -> str:
    return "x" * size


@app.task(name="gives_on_loop")
async def gives_on_loop(size: int) -> str:
    return "x" * size


@app.task(name="gives_from_a_process", run_in="process")
def gives_from_a_process(size: int) -> str:
    return "x" * size


@app.task(name="gives_numbers")
def gives_numbers(count: int) -> list[int]:
    return [1] * count
