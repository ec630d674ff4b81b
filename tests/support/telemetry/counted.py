"""Handlers whose runs the tests of metrics count."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pgsched import App

app = App("counted")


@app.task(name="fine")
async def fine() -> None: ...


@app.task(name="slot")
async def slot() -> None: ...


@app.task(name="fails")
async def fails() -> None:
    raise ValueError("as it should")


@app.task(name="waits")
async def waits(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task(name="waits.for")
def waits_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.02)


@app.task(name="blocks")
async def blocks(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - the handler is meant to block the event loop
